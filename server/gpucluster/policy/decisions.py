"""What a policy can decide, and what it decides on. The engine carries decisions out; it adds nothing to them.

`Stop` has its place in the interface from the start (eviction, drain, migration); the present policy only starts jobs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..model.jobs import StopCause, TaskPlacement
from .pending import PendingQueue
from .space import ClusterSpace
from .tree import QueueTree


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Base. About one job."""

    job_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Start(Decision):
    """Start a new attempt of the whole gang here. `borrowed`: it starts on capacity above its queue's guarantee."""

    placements: tuple[TaskPlacement, ...]
    borrowed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Stop(Decision):
    """Stop the present attempt, with grace."""

    cause: StopCause
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision may depend on. The books are the engine's own: a policy tries plans on them through `Trial`
    and leaves them as they were.

    `pending`: by leaf queue, the jobs that could start now (those that wait for another job, or for the end of a
    back-off, are not in it).
    """

    tree: QueueTree
    space: ClusterSpace
    pending: Mapping[str, PendingQueue]
