"""The queue tree with its books: what each queue is guaranteed, may use at most, and uses (DESIGN section 6 *Queues*).

One concept: an amount is taken from, or given back to, a leaf and thereby each of its ancestors. All questions about
headroom, claims and shares are answered from these books. The tree tolerates any state (guarantees above the cluster,
use above a maximum after nodes were lost); sensible specifications are checked where they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..model.errors import InvalidRequest, NotFound
from ..model.queues import ROOT, QueueSpec
from ..model.resources import GPU, Resources, sum_resources

_TYPED = f"{GPU}/"
NOTHING = Resources()


class Excess(NamedTuple):
    """A limit that a request would break: `used` + request > `limit` of `resource` in `queue`."""

    queue: str
    resource: str
    used: int
    limit: int


class Queue:
    """One node of the tree. `used` is written by QueueTree.take and QueueTree.release alone."""

    __slots__ = ("children", "depth", "guarantee", "parent", "spec", "used")

    def __init__(self, spec: QueueSpec, parent: Queue | None) -> None:
        self.spec = spec
        self.parent = parent
        self.children: list[Queue] = []
        self.depth: int = parent.depth + 1 if parent else 0
        self.used: dict[str, int] = {}
        #: What counts as guaranteed at this level before ancestors cut it down; None = stands on an ancestor's.
        self.guarantee: Mapping[str, int] | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_leaf(self) -> bool:
        return not self.children

    @property
    def maximum(self) -> Mapping[str, int]:
        """The queue's own maximum; a resource that is not named has none."""
        return self.spec.max or {}

    def path(self) -> Iterator[Queue]:
        """The queue itself, then its ancestors up to the root."""
        queue: Queue | None = self
        while queue is not None:
            yield queue
            queue = queue.parent

    def guaranteed_amount(self, resource: str) -> int:
        """The guarantee of this level in one resource (0 when unset here).

        A GPU type that the guarantee does not name may take what the untyped guarantee leaves beside the named types.
        """
        if self.guarantee is None:
            return 0
        amount = self.guarantee.get(resource)
        if amount is not None or not resource.startswith(_TYPED):
            return amount or 0
        named = sum(value for name, value in self.guarantee.items() if name.startswith(_TYPED))
        return max(0, self.guarantee.get(GPU, 0) - named)


class QueueTree:
    """The whole tree. Queues keep the order in which they were given; ties are broken by it."""

    def __init__(self, specs: Iterable[QueueSpec], capacity: Resources = NOTHING) -> None:
        self.queues: dict[str, Queue] = {}
        self.capacity = NOTHING
        self._build(list(specs))
        self.set_capacity(capacity)

    # ---- building

    def _build(self, specs: list[QueueSpec]) -> None:
        by_name: dict[str, QueueSpec] = {}
        for spec in specs:
            if spec.name in by_name:
                raise InvalidRequest("queues", f"two queues are named {spec.name!r}")
            by_name[spec.name] = spec
        root = by_name.pop(ROOT, QueueSpec(name=ROOT, parent=None))
        self.queues[ROOT] = Queue(root, None)
        rest = list(by_name.values())
        while rest:
            ready = [spec for spec in rest if (spec.parent or ROOT) in self.queues]
            if not ready:
                self._refuse_rest(rest, by_name)
            for spec in ready:
                self.add(spec)
            rest = [spec for spec in rest if spec.name not in self.queues]

    @staticmethod
    def _refuse_rest(rest: list[QueueSpec], by_name: Mapping[str, QueueSpec]) -> None:
        for spec in rest:
            if spec.parent not in by_name:
                raise InvalidRequest("queues", f"queue {spec.name!r} has the unknown parent {spec.parent!r}")
        names = ", ".join(spec.name for spec in rest)
        raise InvalidRequest("queues", f"these queues are their own ancestors: {names}")

    def add(self, spec: QueueSpec) -> Queue:
        """Hang a new leaf below its parent, which must be there. Call `set_capacity` afterwards."""
        parent = self.queues[spec.parent or ROOT]
        queue = self.queues[spec.name] = Queue(spec, parent)
        parent.children.append(queue)
        return queue

    def set_capacity(self, capacity: Resources) -> None:
        """The cluster is this large now: the root's guarantee, and the measure of shares."""
        self.capacity = capacity
        for queue in sorted(self.queues.values(), key=lambda queue: -queue.depth):
            queue.guarantee = self._stated_guarantee(queue)
        self.root.guarantee = capacity.to_dict()

    @staticmethod
    def _stated_guarantee(queue: Queue) -> Mapping[str, int] | None:
        """As specified; unset on an inner queue = the sum of its children's, where any of them is set."""
        if queue.spec.guaranteed is not None:
            return queue.spec.guaranteed
        of_children = [Resources(child.guarantee) for child in queue.children if child.guarantee is not None]
        return sum_resources(of_children).to_dict() if of_children else None

    # ---- looking around

    @property
    def root(self) -> Queue:
        return self.queues[ROOT]

    def __contains__(self, name: object) -> bool:
        return name in self.queues

    def __getitem__(self, name: str) -> Queue:
        """Raises NotFound for an unknown queue."""
        try:
            return self.queues[name]
        except KeyError:
            raise NotFound(f"there is no queue {name!r}", field="queue") from None

    def leaves(self) -> list[Queue]:
        """The queues that take jobs, in the order given. A root without children takes none."""
        return [queue for queue in self.queues.values() if queue.is_leaf and queue.parent is not None]

    # ---- the books

    def take(self, name: str, amounts: Mapping[str, int]) -> None:
        """Count `amounts` as used by the queue and each of its ancestors."""
        for queue in self[name].path():
            for resource, amount in amounts.items():
                queue.used[resource] = queue.used.get(resource, 0) + amount

    def release(self, name: str, amounts: Mapping[str, int]) -> None:
        """The reverse of `take`."""
        for queue in self[name].path():
            for resource, amount in amounts.items():
                left = queue.used.get(resource, 0) - amount
                if left:
                    queue.used[resource] = left
                else:
                    queue.used.pop(resource, None)

    # ---- questions

    def over_max(self, name: str, amounts: Mapping[str, int]) -> list[Excess]:
        """The maxima of the queue and its ancestors that `amounts` on top of the present use would break."""
        return [
            Excess(queue.name, resource, queue.used.get(resource, 0), limit)
            for queue in self[name].path()
            for resource, limit in queue.maximum.items()
            if amounts.get(resource, 0) and queue.used.get(resource, 0) + amounts[resource] > limit
        ]

    def headroom(self, name: str, resource: str) -> int | None:
        """How much more of a resource the queue may use before a maximum on its path is reached; None = no maximum."""
        rooms = [
            queue.maximum[resource] - queue.used.get(resource, 0)
            for queue in self[name].path()
            if resource in queue.maximum
        ]
        return min(rooms) if rooms else None

    def is_within_guarantee(self, name: str, amounts: Mapping[str, int]) -> bool:
        """Would the queue, with `amounts` on top, be within what is guaranteed at every level that states a guarantee?

        A level that states none stands on its nearest ancestor that does. Where none but the root states one, nothing is
        promised: such a queue lives on what is lent.
        """
        if self.stands_on(name) is None:
            return False
        for queue in self[name].path():
            if queue.guarantee is None:
                continue
            for resource, amount in amounts.items():
                if amount and queue.used.get(resource, 0) + amount > queue.guaranteed_amount(resource):
                    return False
        return True

    def used_over_guaranteed(self, name: str) -> float:
        """How full the guarantee that the queue stands on is: the fullest resource, 1.0 = all of it."""
        queue = self.stands_on(name) or self.root
        return max((_ratio(used, queue.guaranteed_amount(r)) for r, used in queue.used.items()), default=0.0)

    def stands_on(self, name: str) -> Queue | None:
        """The queue whose guarantee counts for this one: itself, or its nearest ancestor below the root that has one."""
        for queue in self[name].path():
            if queue.guarantee is not None:
                return queue if queue.parent is not None else None
        return None

    def weighted_share(self, queue: Queue) -> float:
        """Dominant share: the largest part of the cluster that the queue uses in any resource, divided by its weight."""
        share = max((_ratio(used, self.capacity[r]) for r, used in queue.used.items()), default=0.0)
        if queue.spec.weight > 0:
            return share / queue.spec.weight
        return float("inf")  # weight 0: served when nobody else wants it

    def borrowed(self, name: str) -> Resources:
        """What the queue uses above its guarantee. A queue without one of its own borrows nothing by itself."""
        queue = self[name]
        if queue.guarantee is None:
            return Resources()
        excess = ((r, used - queue.guaranteed_amount(r)) for r, used in queue.used.items())
        return Resources({r: amount for r, amount in excess if amount > 0})

    def tightest_max(self, name: str) -> dict[str, int]:
        """The lowest maximum on the queue's path, by resource."""
        tightest: dict[str, int] = {}
        for queue in self[name].path():
            for resource, limit in queue.maximum.items():
                tightest[resource] = min(limit, tightest.get(resource, limit))
        return tightest


def _ratio(used: int, whole: int) -> float:
    if used <= 0:
        return 0.0
    return used / whole if whole > 0 else float("inf")
