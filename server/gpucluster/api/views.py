"""What callers are shown: the engine's records turned into schemas, as far as the caller may see (visibility.py).

Built from the in-memory state at one moment and never kept: `seq` names the newest event that a view contains.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..engine.protocols import HistoryEntry
from ..engine.transitions import Trigger
from ..model.events import PublishedEvent
from ..model.jobs import (
    HOLDING_STATES,
    TASK_ENDED,
    Attempt,
    Job,
    JobState,
    Progress,
    Share,
    Task,
    TaskExit,
    TaskPlacement,
)
from ..model.principals import Principal
from ..model.queues import ROOT
from ..model.resources import CPU, GPU, MEMORY, Resources, sum_resources
from ..model.topology import Gpu, GpuHealth, HealthSetting, Node, NodeHealth
from ..policy.free import FreeGpus, free_gpus, idle_gpus
from ..policy.words import ENDED_WORDS
from .schemas import (
    AttemptView,
    EventView,
    GpuView,
    HistoryView,
    JobView,
    LiveStatus,
    NodeView,
    QueueView,
    ResultView,
    TaskView,
    TopologyView,
    WhyView,
)
from .usage import UsageWatch
from .visibility import Rights, Visibility

if TYPE_CHECKING:
    from ..engine.core import Engine
    from ..policy.explain import Why
    from ..policy.tree import Queue

#: What a list of jobs has of one: so many tasks of its attempt, so many characters of a reason.
LISTED_TASKS = 16
LISTED_REASON = 300
_TYPED = f"{GPU}/"
_NOTHING = Resources()
_TRIGGERS = frozenset(trigger.value for trigger in Trigger)
#: In place of a sentence that quotes what the job said: (is being stopped, waits for its next try).
_HIDDEN_WHY = ("The job is being stopped.", "Its last attempt did not succeed; it is tried again soon.")

#: What of an event's data everybody who sees the job may know; the rest is for those who may read it.
_OPEN_EVENT_FIELDS = frozenset(
    {
        "number",
        "name",
        "state",
        "from",
        "queue",
        "owner_name",
        "share",
        "gpus",
        "tasks",
        "attempt",
        "placement",
        "freed",
    }
)
#: Events that tell what a job printed or reports.
_READERS_ONLY_KINDS = frozenset({"job.progress"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """What takes a walk over all queues or GPUs, of `engine` as its books were at `books_seq`."""

    engine: Engine
    books_seq: int
    free: dict[str, FreeGpus]  # by queue
    simulated: bool
    gpus: int
    gpus_healthy: int
    gpus_used: int


def _figures(engine: Engine) -> _Figures:
    gpus = [gpu for node in engine.state.nodes.values() for gpu in node.gpus]
    return _Figures(
        engine=engine,
        books_seq=engine.books_seq,
        free=free_gpus(engine.state.tree, idle_gpus(engine.state.space)),
        simulated=any(gpu.simulated for gpu in gpus),
        gpus=len(gpus),
        gpus_healthy=sum(gpu.health is GpuHealth.OK for gpu in gpus),
        gpus_used=sum(len(books.held) for books in engine.state.space),
    )


class Views:
    """`engine`: the present one (a failed commit replaces it). `last_seq`: of the newest event that was given out."""

    def __init__(
        self,
        *,
        engine: Callable[[], Engine],
        now_us: Callable[[], int],
        last_seq: Callable[[], int],
        visibility: Visibility,
        usage: UsageWatch,
        task_notes: Callable[[], Mapping[tuple[str, int], str]],
        cluster: str,
        levels: Sequence[str],
    ) -> None:
        self._engine = engine
        self._now_us = now_us
        self._last_seq = last_seq
        self._visibility = visibility
        self._usage = usage
        self._task_notes = task_notes
        self._cluster = cluster
        self._levels = list(levels)
        self._known_figures: _Figures | None = None

    # ---- jobs

    def listed(self, job: Job, caller: Principal, *, explain: bool = True) -> JobView:
        """As one of many: see JobList. Without `explain` it does not say why it waits, nor its place."""
        view = self.job(job, caller, LISTED_TASKS, explain=explain)
        view.reason = _shortened(view.reason)
        if view.attempt is not None:
            view.attempt.reason = _shortened(view.attempt.reason)
            for task in view.attempt.tasks:
                task.reason = _shortened(task.reason)
        return view

    def job(
        self, job: Job, caller: Principal, most_tasks: int | None = None, *, explain: bool = True
    ) -> JobView:
        """`most_tasks`: so many of the attempt's at most, None = all."""
        rights = self._visibility.rights_on(caller, job)
        request = job.spec.request()
        waits = self._waits(job) if explain else None
        return JobView(
            id=job.id,
            number=job.number,
            name=job.spec.name,
            owner=job.owner.id,
            owner_name=job.owner.name,
            mine=job.owner.id == caller.id,
            queue=job.spec.queue,
            state=job.state.value,
            reason=job.reason if rights.read else None,
            waits=waits.sentence if waits else None,
            position=waits.position if waits else None,
            tier=job.spec.tier,
            priority=job.spec.priority,
            gpus=request[GPU] / 1000,
            gpu_types=_gpu_types(job),
            tasks=job.spec.task_count,
            cpus=request[CPU] / 1000,
            memory_bytes=request[MEMORY],
            time_limit_s=job.spec.time_limit_s,
            submitted_us=job.submitted_us,
            started_us=job.first_started_us,
            ended_us=job.ended_us,
            first_feedback_us=job.first_feedback_us,
            attempts_made=job.attempts_made,
            attempt=self._attempt(job.attempt, rights, most_tasks) if job.attempt else None,
            progress=wire_progress(job.progress) if job.progress and rights.read else None,
            share=job.spec.share.value,
            notebook_path=job.program.notebook_path if rights.read else None,
            cell_id=job.program.cell_id if rights.read else None,
            execution_count=job.program.execution_count if rights.read else None,
            fills_cell=job.program.fills_cell and rights.read,
            can_control=rights.control,
            can_read=rights.read,
            seq=self._last_seq(),
        )

    def _waits(self, job: Job) -> Why | None:
        """Why the job waits, for one that does."""
        engine = self._engine()
        if job.state is not JobState.PENDING or job.id not in engine.state.jobs:
            return None
        return engine.why(job.id, self._now_us())

    def why(self, job: Job, rights: Rights) -> WhyView:
        """Why the job is where it is; of one that has ended, how it did. Reasons of its own are for readers."""
        engine = self._engine()
        if job.id not in engine.state.jobs:
            return why_ended(job, rights)
        why = engine.why(job.id, self._now_us())
        hidden = why.verdict in ("stopping",) or why.code == "back_off"
        sentence = why.sentence if rights.read or not hidden else _HIDDEN_WHY[why.code == "back_off"]
        sentence = " ".join([sentence, *self._notes_of(job)])
        return WhyView(
            job_id=job.id,
            verdict=why.verdict,
            code=why.code,
            sentence=sentence,
            facts=wire_numbers(why.facts),
            position=why.position,
        )

    def _notes_of(self, job: Job) -> list[str]:
        """What there is to know about the tasks that it runs."""
        return [
            _as_sentence(f"Rank {rank}: {note}")
            for (attempt_id, rank), note in self._task_notes().items()
            if job.attempt is not None and attempt_id == job.attempt.id
        ]

    def _attempt(self, attempt: Attempt, rights: Rights, most_tasks: int | None) -> AttemptView:
        shown = attempt.tasks[:most_tasks]
        notes = self._task_notes() if attempt.ended_us is None else {}
        return AttemptView(
            id=attempt.id,
            number=attempt.number,
            state=attempt.state.value,
            created_us=attempt.created_us,
            started_us=attempt.started_us,
            ended_us=attempt.ended_us,
            outcome=attempt.outcome,
            reason=attempt.reason if rights.read else None,
            tasks=[self._task(attempt.id, task, rights, notes) for task in shown],
            tasks_left_out=len(attempt.tasks) - len(shown),
        )

    def _task(
        self, attempt_id: str, task: Task, rights: Rights, notes: Mapping[tuple[str, int], str]
    ) -> TaskView:
        ended = task.exit if rights.read else None
        usage = self._usage.task(attempt_id, task.rank) if task.state not in TASK_ENDED else None
        return TaskView(
            **self._place(task.placement),
            state=task.state.value,
            exit_code=ended.code if ended else None,
            reason=ended.reason if ended else None,
            cpu_percent=usage.cpu_milli / 10 if usage and usage.cpu_milli is not None else None,
            memory_bytes=usage.rss_bytes if usage else None,
            note=notes.get((attempt_id, task.rank)),
            ended_us=ended.ended_us or None if ended else None,
            stop_cause=ended.stop_cause if ended else None,
        )

    def _place(self, placement: TaskPlacement) -> dict[str, Any]:
        node = self._engine().state.nodes.get(placement.node)
        index = {gpu.uuid: gpu.index for gpu in node.gpus} if node else {}
        return {
            "role": placement.role,
            "rank": placement.rank,
            "node": placement.node,
            "gpus": list(placement.gpus),
            "gpu_indices": [index[uuid] for uuid in placement.gpus if uuid in index],
        }

    def planned(self, placements: Iterable[TaskPlacement]) -> list[TaskView]:
        """Places that a job would get."""
        return [TaskView(**self._place(placement), state="planned") for placement in placements]

    # ---- the cluster

    def queues(self, caller: Principal) -> list[QueueView]:
        """All queues: who uses how much is for everybody to see, jobs of strangers are not."""
        state = self._engine().state
        owner = state.owners.get(caller.id)
        mine = owner.used if owner is not None else {}
        free = self._figures().free
        return [
            self._queue(queue, mine.get(queue.name, _NOTHING), free[queue.name], caller)
            for queue in state.tree.queues.values()
        ]

    def _figures(self) -> _Figures:
        """Worked out once for all callers: the books change with an event, and with another engine."""
        engine = self._engine()
        known = self._known_figures
        if known is None or known.engine is not engine or known.books_seq != engine.books_seq:
            known = self._known_figures = _figures(engine)
        return known

    def status(self, caller: Principal, notes: Sequence[str]) -> LiveStatus:
        """`notes`: what whoever runs the cluster should know."""
        state = self._engine().state
        figures = self._figures()
        mine = state.owners.get(caller.id)
        return LiveStatus(
            cluster=self._cluster,
            simulated=figures.simulated,
            principal=caller.id,
            principal_name=caller.name,
            is_admin=caller.is_admin,
            levels=self._levels[::-1],
            nodes=len(state.nodes),
            gpus=figures.gpus,
            gpus_healthy=figures.gpus_healthy,
            gpus_used=figures.gpus_used,
            running=state.holding.get(ROOT, 0),
            waiting=state.waiting.get(ROOT, 0),
            my_running=mine.holding if mine else 0,
            my_waiting=mine.waiting if mine else 0,
            notes=list(notes),
        )

    def _queue(self, queue: Queue, mine: Resources, free: FreeGpus, caller: Principal) -> QueueView:
        state = self._engine().state
        return QueueView(
            name=queue.name,
            parent=queue.parent.name if queue.parent else None,
            is_leaf=queue.is_leaf,
            guaranteed=dict(queue.guarantee or {}),
            max=dict(queue.maximum),
            used=dict(queue.used),
            borrowed=state.tree.borrowed(queue.name).to_dict(),
            mine=mine.to_dict(),
            waiting=state.waiting.get(queue.name, 0),
            running=state.holding.get(queue.name, 0),
            weight=queue.spec.weight,
            ordering=queue.spec.ordering.value,
            may_submit=queue.is_leaf and self._visibility.may_submit(caller, queue.name),
            description=queue.spec.description,
            free_for_good=free.for_good,
            free_until_reclaimed=free.until_reclaimed,
            lent_out=free.lent_out,
        )

    def nodes(self, caller: Principal) -> list[NodeView]:
        return [self.node(node, caller) for node in self._engine().state.nodes.values()]

    def node(self, node: Node, caller: Principal) -> NodeView:
        state = self._engine().state
        setting = state.settings.get(node.name)
        if setting is not None and setting.health is NodeHealth.READY:
            setting = None
        return NodeView(
            name=node.name,
            rack=node.rack,
            health=node.health.value,
            simulated=node.simulated,
            capacity=node.capacity().to_dict(),
            used=state.space[node.name].used().to_dict(),
            gpus=[self._gpu(node, gpu, caller) for gpu in node.gpus],
            notes=[_setting_text(setting)] if setting else [],
            set_by=setting.actor_name if setting else None,
            set_reason=setting.reason if setting else None,
            set_us=setting.time_us if setting else None,
        )

    def _gpu(self, node: Node, gpu: Gpu, caller: Principal) -> GpuView:
        holder = self._engine().state.holder_of(node.name, gpu.uuid)
        rights = self._visibility.rights_on(caller, holder) if holder else None
        known = holder if rights and rights.see else None
        usage = self._usage.gpu(gpu.uuid)
        return GpuView(
            uuid=gpu.uuid,
            index=gpu.index,
            type=gpu.type,
            memory_bytes=gpu.memory_bytes,
            socket=gpu.socket,
            switch=gpu.switch,
            nvlink_island=gpu.nvlink_island,
            health=gpu.health.value,
            note=gpu.note,
            simulated=gpu.simulated,
            job_number=known.number if known else None,
            job_name=known.spec.name if known else None,
            job_id=known.id if known else None,
            occupied=holder is not None or gpu.health is GpuHealth.FOREIGN,
            mine=holder is not None and holder.owner.id == caller.id,
            utilization_percent=usage.utilization_percent if usage else None,
            memory_used_bytes=usage.memory_used_bytes if usage else None,
        )

    def topology(self, caller: Principal) -> TopologyView:
        return TopologyView(
            cluster=self._cluster, levels=self._levels, nodes=self.nodes(caller), seq=self._last_seq()
        )

    # ---- events

    def event(self, event: PublishedEvent, caller: Principal) -> EventView | None:
        """The event as the caller may see it; None = not at all."""
        data = event.data
        if event.job_id is not None:
            rights = self._event_rights(event, caller)
            if not rights.see or (not rights.read and event.kind in _READERS_ONLY_KINDS):
                return None
            if not rights.read:
                data = {key: value for key, value in data.items() if key in _OPEN_EVENT_FIELDS}
        return EventView(
            seq=event.seq,
            kind=event.kind,
            time_us=event.time_us,
            version=event.version,
            data=wire_numbers(data),
        )

    def _event_rights(self, event: PublishedEvent, caller: Principal) -> Rights:
        """By the job's sharing of now, where it is still known: taking a share back counts for old events as well."""
        job = self._engine().state.jobs.get(event.job_id or "")
        if job is not None:
            return self._visibility.rights_on(caller, job)
        return self._visibility.rights(caller, event.owner or "", event.queue or "", Share.OWNER)


def why_ended(job: Job, rights: Rights) -> WhyView:
    """How a job ended that has. A cancellation without a reason of its own is told once."""
    has_reason = job.reason and job.reason != job.state.value and rights.read
    sentence = f"The job has {ENDED_WORDS[job.state]}{f': {job.reason}' if has_reason else ''}"
    return WhyView(job_id=job.id, verdict="ended", code=job.state.value, sentence=_as_sentence(sentence))


def history(entries: Iterable[HistoryEntry], rights: Rights) -> list[HistoryView]:
    """All transitions; causes and details, which may quote what the job said, for readers only."""
    return [
        HistoryView(
            time_us=entry.time_us,
            from_state=entry.from_state,
            to_state=entry.to_state,
            cause=entry.cause if rights.read or entry.cause in _TRIGGERS else "",
            actor=entry.actor,
            attempt=entry.attempt,
            detail=entry.detail if rights.read else None,
        )
        for entry in entries
    ]


def _setting_text(setting: HealthSetting) -> str:
    since = datetime.datetime.fromtimestamp(setting.time_us / 1e6, datetime.timezone.utc)
    reason = f": {setting.reason}" if setting.reason else ""
    return f"set {setting.health.value} by {setting.actor_name} on {since:%Y-%m-%d at %H:%M} UTC{reason}"


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= LISTED_REASON else f"{text[: LISTED_REASON - 1]}…"


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def result(job: Job, rank: int) -> ResultView:
    """How the task of that rank ended in the job's last attempt, and what came of it."""
    task = job.attempt.tasks[rank] if job.attempt and rank < len(job.attempt.tasks) else None
    ended: TaskExit | None = task.exit if task else None
    return ResultView(
        job_id=job.id,
        rank=rank,
        state=job.state.value,
        result=ended.result if ended else None,
        exit_code=ended.code if ended else None,
        reason=(ended.reason if ended else None) or job.reason,
        error_name=ended.error_name if ended else None,
        error_value=ended.error_value if ended else None,
    )


def wire_progress(progress: Progress) -> Progress:
    """JSON has no NaN and no infinity, and a diverging loss must still be told: they travel as "nan", "inf", "-inf"."""
    if all(map(math.isfinite, progress.metrics.values())):
        return progress
    return msgspec.structs.replace(progress, metrics=wire_numbers(progress.metrics))


def wire_numbers(data: dict[str, Any]) -> dict[str, Any]:
    """As wire_progress, for any nesting of dicts."""
    return {
        key: wire_numbers(value)
        if isinstance(value, dict)
        else str(value)
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for key, value in data.items()
    }


def _gpu_types(job: Job) -> list[str]:
    """The types that the job has got, or would take, in order of preference."""
    if job.attempt is not None and job.state in HOLDING_STATES:
        held = sum_resources(placement.resources for placement in job.attempt.placements)
        return sorted(name.removeprefix(_TYPED) for name in held if name.startswith(_TYPED))
    return list(dict.fromkeys(gpu_type for role in job.spec.roles for gpu_type in role.gpu_types))
