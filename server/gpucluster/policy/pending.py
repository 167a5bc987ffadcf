"""The jobs of one leaf queue that could start now, first in first out, indexed by what they ask for.

Jobs that ask for the same (their *shape*) behave alike: where one cannot start, its followers cannot either. A cycle
therefore looks at one job per shape, however many wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator

from ..model.jobs import Job, JobSpec, TaskRole
from ..model.resources import CPU, GPU, MEMORY, gpu_of_type

Shape = tuple[tuple[TaskRole, ...], int]


def shape_of(spec: JobSpec) -> Shape:
    """What decides whether, apart from its turn, a job can start: its task roles and its tier."""
    return (spec.roles, spec.tier)


class PendingQueue:
    """FIFO by job number: a job that comes back after a lost attempt has its old place again."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._by_shape: dict[Shape, list[int]] = {}
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """In order."""
        return (self._jobs[number] for number in self._numbers)

    def __contains__(self, number: object) -> bool:
        return number in self._jobs

    def add(self, job: Job) -> None:
        self._jobs[job.number] = job
        insort(self._numbers, job.number)
        insort(self._by_shape.setdefault(shape_of(job.spec), []), job.number)

    def remove(self, job: Job) -> None:
        """Raises KeyError when it is not in here."""
        del self._jobs[job.number]
        _remove_sorted(self._numbers, job.number)
        shape = shape_of(job.spec)
        _remove_sorted(self._by_shape[shape], job.number)
        if not self._by_shape[shape]:
            del self._by_shape[shape]

    def position(self, number: int) -> int | None:
        """1 = next; None when it is not in here."""
        return bisect_left(self._numbers, number) + 1 if number in self._jobs else None

    def cursor(self, gpu_types: Collection[str]) -> Cursor:
        """A reader for one cycle. Nothing may be added or removed while it is in use."""
        return Cursor(self._jobs, self._by_shape, gpu_types)


def _remove_sorted(numbers: list[int], number: int) -> None:
    del numbers[bisect_left(numbers, number)]


class Cursor:
    """Goes through one leaf's jobs in order during a cycle.

    The rule of passing: when the job in front cannot start, a follower may pass it only if it uses none of the
    resources that the one in front lacks (docs/policies/fifo.md). What is lacked adds up over all that were passed.
    """

    __slots__ = ("_by_shape", "_gpu_types", "_heads", "_jobs", "_started", "barred")

    def __init__(
        self, jobs: dict[int, Job], by_shape: dict[Shape, list[int]], gpu_types: Collection[str]
    ) -> None:
        self._jobs = jobs
        self._by_shape = by_shape
        self._gpu_types = gpu_types
        self._started: dict[Shape, int] = {}  # so many of a shape, always its first ones
        self._heads: list[tuple[int, Shape]] = []
        #: Names of the resources that jobs in front wait for: "gpu", "gpu/<type>", "cpu", "memory".
        self.barred: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """Begin again with the first job that has not started, nobody held up by anybody."""
        self.barred = set()
        self._heads = []
        for shape, numbers in self._by_shape.items():
            started = self._started.get(shape, 0)
            if started < len(numbers):
                self._heads.append((numbers[started], shape))
        heapq.heapify(self._heads)

    def head(self) -> Job | None:
        """The next job that may start, or None when all that are left are held up behind others."""
        while self._heads:
            job = self._jobs[self._heads[0][0]]
            if not is_barred(job.spec, self.barred, self._gpu_types):
                return job
            heapq.heappop(self._heads)
        return None

    def started(self) -> None:
        """The head starts: on to the next."""
        _, shape = heapq.heappop(self._heads)
        numbers = self._by_shape[shape]
        self._started[shape] = started = self._started.get(shape, 0) + 1
        if started < len(numbers):
            heapq.heappush(self._heads, (numbers[started], shape))

    def blocked(self, lacking: Collection[str]) -> None:
        """The head cannot start for want of these resources: on to the next that needs none of them."""
        heapq.heappop(self._heads)
        self.barred.update(lacking)

    @property
    def barred_types(self) -> set[str]:
        """GPU types that jobs in front wait for: not for those behind."""
        return {name.removeprefix(f"{GPU}/") for name in self.barred if name.startswith(f"{GPU}/")}


def is_barred(spec: JobSpec, barred: Collection[str], gpu_types: Collection[str]) -> bool:
    """Does the job use a resource that others have to get first? Of GPU types, one that is not barred is enough."""
    if not barred:
        return False
    return any(_role_is_barred(role, barred, gpu_types) for role in spec.roles)


def _role_is_barred(role: TaskRole, barred: Collection[str], gpu_types: Collection[str]) -> bool:
    if (role.cpus and CPU in barred) or (role.memory and MEMORY in barred):
        return True
    if not role.gpus:
        return False
    if GPU in barred:
        return True
    return all(gpu_of_type(gpu_type) in barred for gpu_type in role.gpu_types or gpu_types)
