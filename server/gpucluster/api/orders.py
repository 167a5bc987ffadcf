"""Makes a task's order from the engine's instruction: program, secrets, and where the gang meets."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..backends.local import free_port
from ..engine.instructions import StartTask
from ..engine.protocols import TaskOrder

if TYPE_CHECKING:
    from ..engine.state import ClusterState
    from ..store.secrets import Secrets

#: All nodes of the local backend are on this machine.
MASTER_ADDRESS = "127.0.0.1"
_PORTS_KEPT = 1024


class OrderMaker:
    """An OrderFactory (engine/protocols.py). Raises NotFound when the job's secrets are gone."""

    def __init__(self, state: Callable[[], ClusterState], secrets: Secrets) -> None:
        self._state = state
        self._secrets = secrets
        self._ports: OrderedDict[str, int] = OrderedDict()

    def __call__(self, instruction: StartTask) -> TaskOrder:
        job = self._state().job(instruction.job_id)
        placements = job.attempt.placements if job.attempt else [instruction.placement]
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
            master_addr=MASTER_ADDRESS,
            master_port=self._port(instruction.attempt_id),
            program=job.program,
            secret_env=self._secrets.read(job.id, job.program.secret_env),
            grace_s=job.spec.grace_s,
        )

    def _port(self, attempt_id: str) -> int:
        """A port that was free a moment ago, the same for all tasks of the attempt."""
        if attempt_id not in self._ports:
            self._ports[attempt_id] = free_port(MASTER_ADDRESS)
            if len(self._ports) > _PORTS_KEPT:
                self._ports.popitem(last=False)
        return self._ports[attempt_id]
