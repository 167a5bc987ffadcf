"""The engine: events in, changes and instructions out. No I/O, no clock, no randomness of its own.

One step handles the events in their order, then what is due by now, then runs the policy on the live books and carries
its decisions out. The same class serves the live service and the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model.errors import GpuclusterError, NotFound
from ..model.jobs import HOLDING_STATES, Job, JobSpec, JobState, TaskState
from ..model.principals import Principal
from ..model.queues import QueueSpec
from ..model.topology import HealthSetting, Node
from ..policy.cycle import decide
from ..policy.decisions import Decision, Start, Stop
from ..policy.explain import Why
from . import inquiries
from .events import (
    EndedJobShared,
    EngineEvent,
    JobSubmitted,
    NodeChanged,
    NodeHealthSet,
    ShareChanged,
    StepReported,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
    TimerFired,
)
from .inquiries import DryRunPlan
from .instructions import GiveUpNode
from .lifecycle import BACK_OFF, GIVE_UP, LIMIT, STOP, Lifecycle, TimerKey
from .options import DEFAULT_OPTIONS, EngineOptions
from .progress import PROGRESS, ProgressFeed
from .protocols import Recovered
from .record import StepRecord, StepResult
from .state import ClusterState
from .timers import Timers
from .views import node_event, queue_event

__all__ = ["DryRunPlan", "Engine", "EngineOptions", "StepResult", "Why"]

#: What somebody asks for, and may be refused. All other events tell what has happened.
_REQUESTS = (JobSubmitted, StopRequested, ShareChanged, NodeHealthSet)


class Engine:
    """`new_id(time_us)` gives a fresh id each time. `state` is to be read only."""

    def __init__(
        self,
        *,
        queues: Sequence[QueueSpec],
        nodes: Sequence[Node] = (),
        new_id: Callable[[int], str],
        options: EngineOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.state = ClusterState(queues, nodes)
        self.options = options
        self.last_seq = 0
        #: Of the newest event that tells of more than a step report: the books are as they were then.
        self.books_seq = 0
        self._now_us = 0
        self._is_first_step = True
        self._timers: Timers[TimerKey] = Timers()
        self._progress = ProgressFeed(self._timers, options)
        self._jobs = Lifecycle(self.state, self._timers, options, new_id, self._progress)
        #: Nodes given at construction, to be announced in the first step.
        self._unannounced = list(nodes)
        #: Waiting jobs of which a dependency ended badly before a restart; settled in the first step.
        self._unsettled: list[tuple[Job, dict[str, JobState | None]]] = []

    @property
    def last_job_number(self) -> int:
        return self._jobs.last_job_number

    @property
    def late_events(self) -> dict[str, int]:
        """News about attempts and tasks that were over already, by kind of event, since this engine began."""
        return dict(self._jobs.late_events)

    # ---- after a restart

    def recover(self, recovered: Recovered) -> None:
        """Rebuild the books from what the store holds. Call once, before the first step.

        Attempts go on holding what they held; what became of their tasks is told by the backend's adoption events.
        The first step asks again for the stops of attempts that were being stopped.
        """
        self.last_seq = self.books_seq = recovered.last_seq
        self._jobs.last_job_number = recovered.last_job_number
        for setting in recovered.health_settings:
            self.state.set_health(setting)
            self._timers.set((GIVE_UP, setting.node), 0)
        alive = [job for job in sorted(recovered.jobs, key=lambda job: job.number) if not job.is_ended]
        for job in alive:
            self.state.keep_queue(job.spec.queue)
            self.state.add(job)
        for job in alive:
            if job.state in HOLDING_STATES:
                self._recover_attempt(job)
            else:
                self._recover_waiting(job, recovered)

    def _recover_attempt(self, job: Job) -> None:
        attempt = job.attempt
        if attempt is None or attempt.ended_us is not None:
            raise GpuclusterError(
                f"the store is damaged: job #{job.number} is {job.state.value} without an active attempt"
            )
        self.state.take(job, attempt)
        self._jobs.unsure.update(
            (attempt.id, task.rank) for task in attempt.tasks if task.state is TaskState.STARTING
        )
        if job.state is JobState.STOPPING:
            self._timers.set((STOP, job.id), 0)
        elif job.state is JobState.RUNNING:
            self._jobs.set_time_limit(job)

    def _recover_waiting(self, job: Job, recovered: Recovered) -> None:
        states: dict[str, JobState | None] = {}
        for dependency in job.spec.after:
            if dependency in self.state.jobs:
                states[dependency] = None
            else:
                states[dependency] = JobState(recovered.ended_states.get(dependency, JobState.FAILED))
        if all(state in (None, JobState.SUCCEEDED) for state in states.values()):
            self._jobs.settle_dependencies(job, states)
        else:
            self._unsettled.append((job, states))

    # ---- the step

    def step(self, now_us: int, events: Sequence[EngineEvent]) -> StepResult:
        """Handle these events at this time (microseconds since the epoch). A clock that was set back stands still here.

        Requests that cannot be met are in `refused` and changed nothing. Raises only on a fault of the program
        (InvalidTransition): then the engine is to be thrown away and rebuilt from the store.
        """
        now_us = self._now_us = max(now_us, self._now_us)
        record = self._jobs.record = StepRecord(now_us, self.last_seq)
        self._begin(record)
        self.state.reasons.clear()
        needs_cycle, self._is_first_step = self._is_first_step, False
        for event in events:
            try:
                needs_cycle |= self._handle(event)
            except GpuclusterError as error:
                if not isinstance(event, _REQUESTS) or _is_fault(error):
                    raise
                record.refuse(event, error)
        needs_cycle |= self._what_is_due(now_us)
        if needs_cycle or record.ended_jobs:
            self._cycle(now_us)
        self._publish_queues(record)
        self.last_seq = record.last_seq
        if record.has_moved:
            self.books_seq = record.last_seq
        return record.result(self._timers.next_us())

    def _begin(self, record: StepRecord) -> None:
        for node in self._unannounced:
            setting = self.state.settings.get(node.name)
            record.publish("node.health", node_event(self.state.nodes[node.name], None, setting))
        for job, states in self._unsettled:
            self._jobs.settle_dependencies(job, states)
        self._unannounced, self._unsettled = [], []

    def _handle(self, event: EngineEvent) -> bool:
        """True when the policy has to look again."""
        match event:
            case JobSubmitted():
                self._jobs.submit(event)
            case TaskStarted():
                self._jobs.task_started(event)
                return False
            case TaskStartFailed():
                self._jobs.task_start_failed(event)
            case TaskEnded():
                self._jobs.task_ended(event)
            case TaskLost():
                self._jobs.task_lost(event)
            case StepReported():
                self._step_reported(event)
                return False
            case StopRequested():
                self._jobs.stop(event)
            case NodeChanged():
                return self._node_changed(event.node)
            case NodeHealthSet():
                self._node_health_set(event)
            case ShareChanged():
                self._jobs.share(event)
                return False
            case EndedJobShared():
                self._jobs.shared(event.job, event.was)
                return False
            case TimerFired():
                return False
            case _:
                raise GpuclusterError(f"the engine does not know events of kind {type(event).__name__}")
        return True

    def _step_reported(self, event: StepReported) -> None:
        job = self.state.job_of_attempt(event.attempt_id)
        if job is None or job.attempt is None:
            self._jobs.late_events["StepReported"] += 1
            return
        self._progress.report(job, job.attempt, event.progress, self._jobs.record)

    def _node_changed(self, node: Node) -> bool:
        before = self.state.nodes.get(node.name)
        self.state.set_node(node)
        after = self.state.nodes[node.name]
        if after == before:
            return False
        self._jobs.record.publish(
            "node.health", node_event(after, before, self.state.settings.get(node.name))
        )
        return True

    def _node_health_set(self, event: NodeHealthSet) -> None:
        """Raises NotFound for a node that has not reported."""
        before = self.state.nodes.get(event.node)
        if before is None:
            raise NotFound(f"there is no node {event.node!r}", hint="`gpucluster nodes` lists them.")
        setting = HealthSetting(
            node=event.node,
            health=event.health,
            actor=event.actor,
            actor_name=event.actor_name,
            reason=event.reason,
            time_us=self._now_us,
        )
        self.state.set_health(setting)
        record = self._jobs.record
        record.health_set(setting)
        record.publish("node.health", node_event(self.state.nodes[event.node], before, setting))
        self._give_up(event.node)

    def _give_up(self, node: str) -> None:
        """Have the tasks of a node that an administrator gave up ended; asked again until none of them is left."""
        if self.state.given_up(node) is None or not self.state.has_tasks(node):
            return
        self._jobs.record.instruct([GiveUpNode(node)])
        self._timers.set((GIVE_UP, node), self._now_us + round(self.options.stop_again_s * 1e6))

    def _what_is_due(self, now_us: int) -> bool:
        any_ready = False
        for kind, job_id in self._timers.pop_due(now_us):
            if kind == GIVE_UP:
                self._give_up(job_id)  # here it is the node's name
            elif kind == LIMIT:
                self._jobs.time_is_up(job_id)
            elif kind == STOP:
                self._jobs.stop_again(job_id)
            elif kind == BACK_OFF:
                self._jobs.back_off_is_over(job_id)
                any_ready = True
            elif kind == PROGRESS:
                self._progress.flush(self.state.jobs[job_id], self._jobs.record)
        return any_ready

    def _cycle(self, now_us: int) -> None:
        for decision in decide(self.state.snapshot(), now_us):
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Start):
            self._jobs.start(decision)
        elif isinstance(decision, Stop):
            self._jobs.stop_by_policy(decision)
        else:
            raise GpuclusterError(f"the engine does not know decisions of kind {type(decision).__name__}")

    def _publish_queues(self, record: StepRecord) -> None:
        touched = {queue.name for name in record.touched_queues for queue in self.state.tree[name].path()}
        for name in self.state.tree.queues:
            if name in touched:
                queue = self.state.tree[name]
                waiting, running = self.state.waiting.get(name, 0), self.state.holding.get(name, 0)
                record.publish("queue.usage", queue_event(queue, waiting, running), queue=name)

    # ---- questions; none of them changes anything

    def check_admission(self, spec: JobSpec, owner: Principal) -> None:
        """Raises InvalidRequest (NeverAsAsked, NotSupported) or Forbidden when this submission cannot be taken."""
        inquiries.check_admission(self.state, spec, owner)

    def why(self, job_id: str, now_us: int) -> Why:
        """Why the job is where it is. Raises NotFound for a job that is unknown or has ended."""
        return inquiries.why(self.state, self.state.job(job_id), now_us)

    def position(self, job_id: str) -> int | None:
        """Place in its queue, 1 = next; None unless it waits for nothing but its turn and resources."""
        return inquiries.position(self.state, job_id)

    def dry_run(self, spec: JobSpec, owner: Principal, now_us: int) -> DryRunPlan:
        """What a submission would lead to now. Raises as `check_admission` does."""
        return inquiries.dry_run(self.state, spec, owner, now_us, self.last_job_number + 1)


def _is_fault(error: GpuclusterError) -> bool:
    return error.code in ("invalid_transition", "double_hold", "error")
