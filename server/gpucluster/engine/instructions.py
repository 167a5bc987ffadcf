"""What the engine asks of the world: typed instructions out. Carried out only after their transition is in the store."""

from __future__ import annotations

import dataclasses

from ..model.jobs import StopCause, TaskPlacement


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """Base."""


@dataclasses.dataclass(frozen=True, slots=True)
class StartTask(Instruction):
    job_id: str
    attempt_id: str
    placement: TaskPlacement


@dataclasses.dataclass(frozen=True, slots=True)
class StopTask(Instruction):
    """Ask for the end of a task: notice (SIGTERM), then `grace_s` later SIGKILL of its whole tree. May be repeated."""

    attempt_id: str
    rank: int
    node: str
    cause: StopCause
    grace_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUpNode(Instruction):
    """An administrator has given the node up: its tasks are to be ended and reported lost. May be repeated."""

    node: str
