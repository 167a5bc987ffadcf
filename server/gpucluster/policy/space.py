"""What is where: the books of nodes and GPUs. Who holds which GPU, and how much CPU and memory of each node is taken.

`ClusterSpace.take` and `release` are the only ways to change them. Holds stay when a node is lost, shrinks or is not
known yet (after a restart): what runs there holds its GPUs until it is surely over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from ..model.errors import GpuclusterError
from ..model.jobs import TaskPlacement
from ..model.resources import CPU, GPU, MEMORY, Resources, sum_resources
from ..model.topology import Gpu, GpuHealth, Node, NodeHealth

#: A topology cell within a node: (socket, switch), (socket,), or () for the whole node.
TopologyCell = tuple[int, ...]


class DoubleHold(GpuclusterError):
    """A GPU would get a second holder, or is given back by another: a fault of the program, never of a user."""

    code = "double_hold"


class NodeSpace:
    """One node's books. `node` is None while only holds on it are known. Written by ClusterSpace alone."""

    __slots__ = (
        "_cpu_held",
        "_free",
        "_memory_held",
        "_patterns",
        "held",
        "name",
        "node",
        "topology_cell_sizes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.held: dict[str, str] = {}  # GPU uuid -> attempt id
        self._cpu_held = 0
        self._memory_held = 0
        self._free: dict[str, list[Gpu]] = {}  # by type, in the node's order; healthy and not held
        self._patterns: dict[str, Hashable] = {}
        #: How many healthy GPUs each topology cell of the node has: by (socket, switch), by (socket,), and by ().
        self.topology_cell_sizes: dict[TopologyCell, int] = {}

    @property
    def is_open(self) -> bool:
        """May new tasks start here?"""
        return self.node is not None and self.node.health is NodeHealth.READY

    @property
    def cpu_held(self) -> int:
        """Thousandths of a core that tasks hold."""
        return self._cpu_held

    @property
    def memory_held(self) -> int:
        """Bytes that tasks hold."""
        return self._memory_held

    @property
    def cpu_free(self) -> int:
        """Thousandths of a core; below 0 when the node shrank under what runs on it."""
        return (self.node.cpu if self.node else 0) - self._cpu_held

    @property
    def memory_free(self) -> int:
        """Bytes; below 0 when the node shrank under what runs on it."""
        return (self.node.memory if self.node else 0) - self._memory_held

    def free_gpus(self, gpu_type: str) -> Sequence[Gpu]:
        """GPUs of a type that could be given out, in the node's order (whether or not the node is open)."""
        return self._free.get(gpu_type, ())

    def all_free_gpus(self) -> list[Gpu]:
        """GPUs of any type that could be given out."""
        return [gpu for gpus in self._free.values() for gpu in gpus]

    @property
    def rack(self) -> str:
        return self.node.rack if self.node else ""

    def free_pattern(self, gpu_type: str) -> Hashable:
        """Equal for two nodes on which the same choice of GPUs of this type is best."""
        return self._patterns.get(gpu_type)

    @property
    def free_gpu_count(self) -> int:
        return sum(len(gpus) for gpus in self._free.values())

    def used(self) -> Resources:
        """What tasks hold here, GPUs without type."""
        return Resources({GPU: 1000 * len(self.held), CPU: self._cpu_held, MEMORY: self._memory_held})

    def _set_node(self, node: Node) -> None:
        self.node = node
        self.topology_cell_sizes = topology_cell_counts(
            gpu for gpu in node.gpus if gpu.health is GpuHealth.OK
        )
        self._recount_free()

    def _recount_free(self) -> None:
        self._free = {}
        for gpu in self.node.gpus if self.node else ():
            if gpu.health is GpuHealth.OK and gpu.uuid not in self.held:
                self._free.setdefault(gpu.type, []).append(gpu)
        sizes = tuple(self.topology_cell_sizes.items())
        everything = tuple((gpu.socket, gpu.switch) for gpus in self._free.values() for gpu in gpus)
        self._patterns = {
            gpu_type: (sizes, everything, tuple((gpu.socket, gpu.switch) for gpu in gpus))
            for gpu_type, gpus in self._free.items()
        }

    def _hold(self, placement: TaskPlacement, holder: str) -> None:
        for uuid in placement.gpus:
            if uuid in self.held:
                raise DoubleHold(
                    f"GPU {uuid} on {self.name} is held by {self.held[uuid]}, wanted by {holder}"
                )
        for uuid in placement.gpus:
            self.held[uuid] = holder
        self._cpu_held += placement.resources[CPU]
        self._memory_held += placement.resources[MEMORY]
        if placement.gpus:
            self._recount_free()

    def _let_go(self, placement: TaskPlacement, holder: str) -> None:
        for uuid in placement.gpus:
            if self.held.get(uuid) != holder:
                raise DoubleHold(f"GPU {uuid} on {self.name} is not held by {holder}")
            del self.held[uuid]
        self._cpu_held -= placement.resources[CPU]
        self._memory_held -= placement.resources[MEMORY]
        if placement.gpus:
            self._recount_free()


class ClusterSpace:
    """All nodes' books, and what is free in sum on open nodes."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, NodeSpace] = {}
        self._free_by_type: dict[str, int] = {}  # GPUs on open nodes
        #: The nodes that have reported, by name. To be read only.
        self.nodes: dict[str, Node] = {}
        #: The types that any node has, healthy or not, in the order in which they became known.
        self.gpu_types: tuple[str, ...] = ()
        self._open: tuple[NodeSpace, ...] = ()
        self._perfect: ClusterSpace | None = None
        for node in nodes:
            self.set_node(node)

    # ---- changing

    def set_node(self, node: Node) -> None:
        """A node is there, or is otherwise than before. Holds on it stay."""
        space = self._nodes.setdefault(node.name, NodeSpace(node.name))
        self._count(space, -1)
        space._set_node(node)
        self._count(space, +1)
        self.nodes[node.name] = node
        self._open = tuple(one for one in self._nodes.values() if one.is_open)
        self._perfect = None
        self.gpu_types = tuple(dict.fromkeys(gpu.type for node in self.nodes.values() for gpu in node.gpus))

    def take(self, holder: str, placements: Iterable[TaskPlacement]) -> None:
        """`holder` (an attempt id) holds these from now. Raises DoubleHold, and then changes nothing of that task."""
        for placement in placements:
            space = self._nodes.setdefault(placement.node, NodeSpace(placement.node))
            self._count(space, -1)
            try:
                space._hold(placement, holder)
            finally:
                self._count(space, +1)

    def release(self, holder: str, placements: Iterable[TaskPlacement]) -> None:
        """The reverse of `take`."""
        for placement in placements:
            space = self._nodes[placement.node]
            self._count(space, -1)
            try:
                space._let_go(placement, holder)
            finally:
                self._count(space, +1)

    def _count(self, space: NodeSpace, sign: int) -> None:
        if not space.is_open:
            return
        for gpu_type, gpus in space._free.items():
            self._free_by_type[gpu_type] = self._free_by_type.get(gpu_type, 0) + sign * len(gpus)

    # ---- looking

    def __iter__(self) -> Iterator[NodeSpace]:
        """Nodes in the order in which they became known."""
        return iter(self._nodes.values())

    def __getitem__(self, name: str) -> NodeSpace:
        return self._nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def open_nodes(self) -> Sequence[NodeSpace]:
        """Nodes on which new tasks may start."""
        return self._open

    def perfect(self) -> ClusterSpace:
        """The registered nodes as they would be empty and in perfect health: what could ever be given out. Not to be
        written.
        """
        if self._perfect is None:
            self._perfect = ClusterSpace(_in_perfect_health(node) for node in self.nodes.values())
        return self._perfect

    def free_gpus(self, gpu_type: str) -> int:
        """GPUs of a type that could be given out now, on all open nodes."""
        return self._free_by_type.get(gpu_type, 0)

    def capacity(self) -> Resources:
        """What the cluster can give out in all: healthy GPUs of nodes that are not lost."""
        return sum_resources(node.capacity() for node in self.nodes.values())


def topology_cell_counts(gpus: Iterable[Gpu]) -> dict[TopologyCell, int]:
    """How many of these GPUs of one node lie in each switch (socket, switch), socket (socket,) and in the node ()."""
    counts: Counter[TopologyCell] = Counter()
    for gpu in gpus:
        counts.update(((gpu.socket, gpu.switch), (gpu.socket,), ()))
    return dict(counts)


def _in_perfect_health(node: Node) -> Node:
    gpus = tuple(msgspec.structs.replace(gpu, health=GpuHealth.OK) for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=gpus, health=NodeHealth.READY)
