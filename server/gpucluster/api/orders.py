"""Makes a task's order from the engine's instruction: program, secrets, and where the gang meets."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..engine.instructions import StartTask
from ..engine.protocols import TaskOrder
from ..model.jobs import TaskPlacement

if TYPE_CHECKING:
    from ..engine.state import ClusterState
    from ..store.secrets import Secrets

#: Attempts whose meeting point is remembered: while a gang starts, all its tasks are told the same.
_MEETINGS_KEPT = 1024

#: Where the tasks of a gang meet: Backend.meeting_point of engine/protocols.py.
MeetingPoint = Callable[[Sequence[TaskPlacement]], tuple[str, int]]


class OrderMaker:
    """An OrderFactory (engine/protocols.py). Raises NotFound when the job's secrets are gone."""

    def __init__(
        self, state: Callable[[], ClusterState], secrets: Secrets, meeting_point: MeetingPoint
    ) -> None:
        self._state = state
        self._secrets = secrets
        self._meeting_point = meeting_point
        self._meetings: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def __call__(self, instruction: StartTask) -> TaskOrder:
        job = self._state().job(instruction.job_id)
        placements = job.attempt.placements if job.attempt else [instruction.placement]
        address, port = self._meeting(instruction.attempt_id, placements)
        per_node = Counter(placement.node for placement in placements)
        return TaskOrder(
            job_id=job.id,
            job_number=job.number,
            job_name=job.spec.name,
            attempt_id=instruction.attempt_id,
            attempt_number=job.attempt.number if job.attempt else job.attempts_made,
            owner=job.owner.id,
            owner_name=job.owner.name,
            queue=job.spec.queue,
            placement=instruction.placement,
            world_size=job.spec.task_count,
            local_world_size=per_node[instruction.placement.node],
            master_addr=address,
            master_port=port,
            program=job.program,
            secret_env=self._secrets.read(job.id, job.program.secret_env),
            grace_s=job.spec.grace_s,
        )

    def _meeting(self, attempt_id: str, placements: Sequence[TaskPlacement]) -> tuple[str, int]:
        """The same for all tasks of the attempt."""
        if attempt_id not in self._meetings:
            self._meetings[attempt_id] = self._meeting_point(placements)
            if len(self._meetings) > _MEETINGS_KEPT:
                self._meetings.popitem(last=False)
        return self._meetings[attempt_id]
