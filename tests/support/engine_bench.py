"""A bench for the engine: makers of nodes, queues and jobs; a store in memory; an engine with both, audited at each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpucluster.engine.audit import audit
from gpucluster.engine.core import Engine, EngineOptions, StepResult
from gpucluster.engine.events import (
    EngineEvent,
    JobSubmitted,
    NodeChanged,
    NodeHealthSet,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
    TimerFired,
)
from gpucluster.engine.instructions import GiveUpNode, StopTask
from gpucluster.engine.options import DEFAULT_OPTIONS
from gpucluster.engine.protocols import ChangeSet, HistoryEntry, Recovered
from gpucluster.model.errors import GpuclusterError
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import (
    ENDED_STATES,
    Attempt,
    Job,
    JobSpec,
    JobState,
    Program,
    ProgramKind,
    StopCause,
    TaskExit,
    TaskRole,
)
from gpucluster.model.principals import Principal
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import Gpu, GpuHealth, HealthSetting, Node, NodeHealth

GIB = 1 << 30
SECOND = 1_000_000
ALICE = Principal(issuer="unix", subject="1000", name="alice", groups=("vision",))
BOB = Principal(issuer="unix", subject="1001", name="bob")


def make_node(
    name: str,
    gpus: int = 8,
    gpu_type: str = "A100",
    *,
    cpu: int = 64,
    memory: int = 512,
    rack: str = "rack-0",
    health: NodeHealth = NodeHealth.READY,
    bad: Iterable[int] = (),
) -> Node:
    """Two GPUs per switch, two switches per socket. `cpu` in cores, `memory` in GiB, `bad`: indices of broken GPUs."""
    return Node(
        name=name,
        cpu=cpu * 1000,
        memory=memory * GIB,
        rack=rack,
        health=health,
        gpus=tuple(
            Gpu(
                uuid=f"{name}/{index}",
                index=index,
                type=gpu_type,
                memory_bytes=80 * GIB,
                socket=index // 4,
                switch=index // 2,
                health=GpuHealth.BAD if index in bad else GpuHealth.OK,
            )
            for index in range(gpus)
        ),
    )


def make_role(
    gpus: int = 1,
    tasks: int = 1,
    *,
    cpus: float = 1,
    memory: float = 1,
    types: Sequence[str] = (),
    name: str = "worker",
) -> TaskRole:
    """`memory` in GiB."""
    return TaskRole(
        name=name,
        count=tasks,
        gpus=gpus * 1000,
        cpus=round(cpus * 1000),
        memory=round(memory * GIB),
        gpu_types=tuple(types),
    )


def make_spec(queue: str = "default", gpus: int = 1, tasks: int = 1, **more: Any) -> JobSpec:
    """Words of make_role describe the one role; all others are fields of JobSpec."""
    role = {key: more.pop(key) for key in ("cpus", "memory", "types") if key in more}
    roles = more.pop("roles", None) or (make_role(gpus, tasks, **role),)
    return JobSpec(name=more.pop("name", "job"), queue=queue, roles=tuple(roles), **more)


def make_job(
    spec: JobSpec, job_id: str = "job", number: int = 0, owner: Principal = ALICE, **more: Any
) -> Job:
    program = Program(kind=ProgramKind.COMMAND, source="true", command=("true",))
    return Job(id=job_id, number=number, owner=owner, spec=spec, program=program, **more)


def gpu_queue(name: str, guaranteed: int | None = None, most: int | None = None, **more: Any) -> QueueSpec:
    """A queue in whole GPUs; eight cores and 64 GiB are guaranteed with each."""
    amounts = None
    if guaranteed is not None:
        amounts = {"gpu": guaranteed * 1000, "cpu": guaranteed * 8000, "memory": guaranteed * 64 * GIB}
    return QueueSpec(
        name=name, guaranteed=amounts, max=None if most is None else {"gpu": most * 1000}, **more
    )


def _resources(kind: type, value: Any) -> Any:
    return kind(value)


ENCODER = msgspec.msgpack.Encoder(enc_hook=dict)
JOB_DECODER = msgspec.msgpack.Decoder(Job, dec_hook=_resources)
ATTEMPT_DECODER = msgspec.msgpack.Decoder(Attempt, dec_hook=_resources)


class MemoryStore:
    """Keeps what was committed as bytes, so that later changes of the engine's records do not reach it."""

    def __init__(self) -> None:
        self._jobs: dict[str, bytes] = {}
        self._attempts: dict[str, bytes] = {}
        self.history: list[HistoryEntry] = []
        self.events: list[PublishedEvent] = []
        self.steps: list[tuple[str, str, Any]] = []
        self.ended: dict[str, JobState] = {}
        self.settings: dict[str, HealthSetting] = {}

    def commit(self, changes: ChangeSet) -> None:
        assert len({job.id for job in changes.jobs}) == len(changes.jobs)
        for job in changes.new_jobs:
            assert job.id not in self._jobs, "a job is new only once"
            assert job.id in changes.submissions
        for job in (*changes.new_jobs, *changes.jobs):
            assert job.id not in self.ended, "an ended job does not change any more"
            self._jobs[job.id] = ENCODER.encode(msgspec.structs.replace(job, attempt=None))
            if job.state in ENDED_STATES:
                self.ended[job.id] = job.state
        for attempt in changes.attempts:
            self._attempts[attempt.job_id] = ENCODER.encode(attempt)
        self.history += changes.history
        for event in changes.events:
            assert event.seq == len(self.events) + 1, "one sequence without gaps"
            self.events.append(event)
        self.steps += changes.steps
        self.settings |= {setting.node: setting for setting in changes.health_settings}

    def job(self, job_id: str) -> Job:
        job = JOB_DECODER.decode(self._jobs[job_id])
        if job_id in self._attempts:
            job.attempt = ATTEMPT_DECODER.decode(self._attempts[job_id])
        return job

    def jobs(self) -> list[Job]:
        return [self.job(job_id) for job_id in self._jobs]

    def recover(self) -> Recovered:
        return Recovered(
            jobs=[job for job in self.jobs() if not job.is_ended],
            last_seq=len(self.events),
            last_job_number=max((job.number for job in self.jobs()), default=0),
            ended_states={job_id: state.value for job_id, state in self.ended.items()},
            health_settings=list(self.settings.values()),
        )


class Bench:
    """An engine, its store and a virtual clock. Every step is committed and audited."""

    def __init__(
        self,
        queues: Sequence[QueueSpec] = (QueueSpec(name="default"),),
        nodes: Sequence[Node] = (),
        options: EngineOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.queues, self.options = list(queues), options
        self.store = MemoryStore()
        self.now_us = 1_700_000_000 * SECOND
        self.last: StepResult
        self._ids = 0
        self.engine = self._new_engine(nodes)

    def _new_engine(self, nodes: Sequence[Node]) -> Engine:
        return Engine(queues=self.queues, nodes=nodes, new_id=self._new_id, options=self.options)

    def _new_id(self, time_us: int) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def step(self, *events: EngineEvent, after_s: float = 0.0) -> StepResult:
        self.now_us += round(after_s * SECOND)
        self.last = self.engine.step(self.now_us, events)
        assert audit(self.engine.state) == []
        self.store.commit(self.last.changes)
        return self.last

    def crash(self) -> None:
        """The engine's memory is gone; a new one is built from the store."""
        nodes = list(self.engine.state.reported.values())
        self.engine = self._new_engine(nodes)
        self.engine.recover(self.store.recover())
        self.step(TimerFired())

    # ---- what is done to jobs

    def submit(self, queue: str = "default", gpus: int = 1, tasks: int = 1, **more: Any) -> str:
        job_id = f"job-{len(self.store.jobs()) + 1}"
        key = more.pop("idempotency_key", None)
        ended = more.pop("ended_dependencies", {})
        numbers = more.pop("dependency_numbers", {})
        owner = more.pop("owner", ALICE)
        spec = make_spec(queue, gpus, tasks, **more)
        event = JobSubmitted(make_job(spec, job_id, owner=owner, idempotency_key=key), b"{}", ended, numbers)
        refused = self.step(event).refused
        if refused:
            raise refused[0][1]
        return job_id

    def attempt_id(self, job_id: str) -> str:
        attempt = self.engine.state.jobs[job_id].attempt
        assert attempt is not None
        return attempt.id

    def start(self, job_id: str, *ranks: int) -> None:
        """These ranks (none = all) report that they are up."""
        count = self.engine.state.jobs[job_id].spec.task_count
        attempt_id = self.attempt_id(job_id)
        self.step(*(TaskStarted(attempt_id, rank) for rank in ranks or range(count)))

    def end(self, job_id: str, *ranks: int, code: int = 0, **more: Any) -> None:
        """These ranks (none = all) end with this exit code; as told to, if the job is being stopped."""
        cause = self.engine.state.jobs[job_id].stop_cause
        more.setdefault("stop_cause", None if cause is None else cause.label)
        count = self.engine.state.jobs[job_id].spec.task_count
        attempt_id = self.attempt_id(job_id)
        more.setdefault("ended_us", self.now_us)
        self.step(
            *(TaskEnded(attempt_id, rank, TaskExit(code=code, **more)) for rank in ranks or range(count))
        )

    def lose(self, job_id: str, *ranks: int, reason: str = "its node is gone") -> None:
        attempt_id = self.attempt_id(job_id)
        self.step(*(TaskLost(attempt_id, rank, reason) for rank in ranks or (0,)))

    def fail_start(
        self, job_id: str, rank: int = 0, reason: str = "no such interpreter", retry: bool = True
    ) -> None:
        self.step(TaskStartFailed(self.attempt_id(job_id), rank, reason, retry))

    def stop(self, job_id: str, cause: StopCause = StopCause.CANCEL, actor: str = "unix:1000") -> None:
        refused = self.step(StopRequested(job_id, cause, actor)).refused
        if refused:
            raise refused[0][1]

    def change_node(self, node: Node, **changes: Any) -> None:
        self.step(NodeChanged(msgspec.structs.replace(node, **changes)))

    def set_node(
        self, name: str, health: NodeHealth, reason: str | None = None, actor_name: str = "root"
    ) -> None:
        """As an administrator does."""
        refused = self.step(NodeHealthSet(name, health, "unix:0", actor_name, reason)).refused
        if refused:
            raise refused[0][1]

    def pass_time(self, seconds: float) -> StepResult:
        return self.step(TimerFired(), after_s=seconds)

    # ---- what is seen

    def job(self, job_id: str) -> Job:
        """As the store has it."""
        return self.store.job(job_id)

    def state(self, job_id: str) -> str:
        return self.job(job_id).state.value

    def states(self, *job_ids: str) -> list[str]:
        return [self.state(job_id) for job_id in job_ids]

    def gpus(self, job_id: str) -> list[str]:
        attempt = self.job(job_id).attempt
        assert attempt is not None
        return [uuid for placement in attempt.placements for uuid in placement.gpus]

    def nodes_of(self, job_id: str) -> list[str]:
        attempt = self.job(job_id).attempt
        assert attempt is not None
        return [placement.node for placement in attempt.placements]

    def why(self, job_id: str) -> Any:
        return self.engine.why(job_id, self.now_us)

    def story(self, job_id: str) -> list[str]:
        """The states that the job went through."""
        return [entry.to_state for entry in self.store.history if entry.job_id == job_id]

    def stops(self) -> list[StopTask]:
        """Stops asked for in the last step."""
        return [one for one in self.last.instructions if isinstance(one, StopTask)]

    def given_up(self) -> list[str]:
        """Nodes that the backend was asked to give up in the last step."""
        return [one.node for one in self.last.instructions if isinstance(one, GiveUpNode)]

    def used(self, queue: str, resource: str = "gpu") -> int:
        return self.engine.state.tree[queue].used.get(resource, 0)


def refusal(call: Any, *arguments: Any) -> GpuclusterError:
    """The error that a call ends with."""
    try:
        call(*arguments)
    except GpuclusterError as error:
        return error
    raise AssertionError("it was not refused")
