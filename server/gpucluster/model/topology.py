"""Nodes, GPUs and topology cells: GPU ⊂ switch ⊂ socket ⊂ node ⊂ rack ⊂ cluster (level names configurable)."""

from __future__ import annotations

import enum

import msgspec

from .resources import GPU, WHOLE_GPU, Resources, gpu_of_type

#: Level names from the smallest topology cell to the largest. A cluster.yaml may rename those between "gpu" and "cluster".
DEFAULT_LEVELS = ("gpu", "switch", "socket", "node", "rack", "cluster")


class GpuHealth(str, enum.Enum):
    """`foreign`: in use by a process that is not ours, so not given out; `bad`: taken out by an administrator or NVML."""

    OK = "ok"
    FOREIGN = "foreign"
    BAD = "bad"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a node. `index` is its place on the node (NVML order), `switch` and `socket` number the cells around it."""

    uuid: str
    index: int
    type: str
    memory_bytes: int
    socket: int = 0
    switch: int = 0
    nvlink_island: int | None = None
    pci_bus_id: str | None = None
    mig_enabled: bool = False
    health: GpuHealth = GpuHealth.OK
    note: str | None = None  # why it is foreign or bad, for people
    simulated: bool = False


class NodeHealth(str, enum.Enum):
    READY = "ready"
    CORDONED = "cordoned"  # nothing new starts here; what runs goes on
    LOST = "lost"


class HealthSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrator set for a node. It holds, over restarts too, until one sets something else.

    `actor` is a principal id, `actor_name` their name for people, `time_us` since when (microseconds since the epoch).
    """

    node: str
    health: NodeHealth
    actor: str
    actor_name: str
    reason: str | None = None
    time_us: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `cpu` in thousandths of a core, `memory` in bytes, `extra` any other named resource."""

    name: str
    gpus: tuple[Gpu, ...]
    cpu: int
    memory: int
    rack: str = "rack-0"
    extra: dict[str, int] = {}
    labels: dict[str, str] = {}
    health: NodeHealth = NodeHealth.READY
    simulated: bool = False

    def capacity(self) -> Resources:
        """What can be given out here in all: healthy GPUs only, and nothing at all when the node is lost."""
        if self.health is NodeHealth.LOST:
            return Resources()
        amounts: dict[str, int] = {"cpu": self.cpu, "memory": self.memory, **self.extra}
        for gpu in self.gpus:
            if gpu.health is GpuHealth.OK:
                for name in (GPU, gpu_of_type(gpu.type)):
                    amounts[name] = amounts.get(name, 0) + WHOLE_GPU
        return Resources(amounts)


_WORSE = (NodeHealth.READY, NodeHealth.CORDONED, NodeHealth.LOST)


def under(node: Node, setting: HealthSetting | None) -> Node:
    """The node as it counts: of what its agent reports and what an administrator set, the worse."""
    if setting is None or _WORSE.index(setting.health) <= _WORSE.index(node.health):
        return node
    return msgspec.structs.replace(node, health=setting.health)
