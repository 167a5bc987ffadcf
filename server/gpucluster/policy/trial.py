"""Trying plans on the live books with an undo log: take, look, roll back. The world is never copied."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from ..model.jobs import TaskPlacement
from ..model.resources import Resources, sum_resources
from .space import ClusterSpace
from .tree import QueueTree


class Trial:
    """A context: on leaving it the books are as they were, whatever was tried."""

    def __init__(self, tree: QueueTree, space: ClusterSpace) -> None:
        self._tree = tree
        self._space = space
        self._taken: list[tuple[str, str, Sequence[TaskPlacement], Resources]] = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rollback(0)

    def take(self, queue: str, job_id: str, placements: Sequence[TaskPlacement]) -> None:
        """As if this job had started there."""
        amounts = sum_resources(placement.resources for placement in placements)
        self._space.take(job_id, placements)
        self._tree.take(queue, amounts)
        self._taken.append((queue, job_id, placements, amounts))

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self._taken)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, the newest first."""
        while len(self._taken) > mark:
            queue, job_id, placements, amounts = self._taken.pop()
            self._tree.release(queue, amounts)
            self._space.release(job_id, placements)
