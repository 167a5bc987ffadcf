"""What the command line shows, as pure functions from views to rich renderables. The topology is in cli_topology.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .api.schemas import DryRun, HistoryView, JobView, NodeView, QueueView, StatusView, WhyView
from .api.words import duration, happening
from .cli_text import (
    MICROSECONDS,
    Column,
    Glyphs,
    facts,
    fitted,
    listed,
    local_time,
    number_text,
    plural,
    size_text,
    table,
)
from .model.jobs import ENDED_STATES, HOLDING_STATES, JobState, Progress
from .model.resources import CPU, GPU, MEMORY, WHOLE_CPU, WHOLE_GPU

SIMULATED = "simulated (no hardware behind them)"
STATE_STYLES = {
    JobState.PENDING.value: "yellow",
    JobState.STARTING.value: "cyan",
    JobState.RUNNING.value: "green",
    JobState.SUSPENDED.value: "magenta",
    JobState.STOPPING.value: "cyan",
    JobState.SUCCEEDED.value: "dim",
    JobState.FAILED.value: "bold red",
    JobState.CANCELLED.value: "dim",
}
HEALTH_STYLES = {"ready": "green", "cordoned": "yellow", "lost": "bold red"}
#: Terminals from this width on get longer bars.
WIDE = 100


def gpus(amounts: dict[str, int]) -> float:
    return amounts.get(GPU, 0) / WHOLE_GPU


# ---- status


def status(view: StatusView, now_us: int, glyphs: Glyphs) -> RenderableType:
    pairs: list[tuple[str, str | Text]] = [
        ("Cluster", view.cluster),
        (
            "Scheduler",
            f"version {view.version}, pid {view.pid}, up {duration((now_us - view.started_us) / MICROSECONDS)} "
            f"(since {local_time(view.started_us, now_us)})",
        ),
        ("Address", view.address),
        ("Data", view.data_dir),
        ("GPUs", _gpus_in_use(view)),
        ("Jobs", _jobs_by_state(view.jobs)),
    ]
    pairs += [("Note", Text(note, style="yellow")) for note in view.notes]
    return facts(pairs)


def _gpus_in_use(view: StatusView) -> Text:
    text = Text(f"{view.gpus_used} of {view.gpus} in use on {plural(view.nodes, 'node')}")
    if view.gpus_healthy < view.gpus:
        text.append(f", {view.gpus - view.gpus_healthy} not usable", "bold red")
    if view.simulated:
        text.append(f"; {SIMULATED}", "yellow")
    return text


def _jobs_by_state(jobs: dict[str, int]) -> str:
    """Live states first, in the order of a job's life."""
    counts = [f"{jobs[state.value]} {state.value}" for state in JobState if jobs.get(state.value)]
    return ", ".join(counts) or "none"


# ---- queues


def queues(
    views: Sequence[QueueView], default_queue: str | None, width: int, glyphs: Glyphs
) -> RenderableType:
    """The tree of queues, in GPUs."""
    ordered = _tree_order(views)
    names = [_queue_name(view, depth, default_queue) for view, depth in ordered]
    rows = [view for view, _ in ordered]
    bars = Column("", _bars(rows, 16 if width >= WIDE else 8, glyphs), keep=5)
    free = Column("FREE", [_free(view) for view in rows], keep=8, right=True)
    columns = [
        Column("QUEUE", names, stretch=True),
        Column("GUARANTEED", [number_text(gpus(view.guaranteed)) for view in rows], right=True),
        Column("USED", [number_text(gpus(view.used)) for view in rows], right=True),
        Column("BORROWED", [_borrowed(view, glyphs) for view in rows], right=True),
        Column("MAX", [_maximum(view, glyphs) for view in rows], right=True),
        free,
        Column("YOURS", [number_text(gpus(view.mine)) for view in rows], keep=4, right=True),
        Column("RUNNING", [str(view.running) for view in rows], right=True),
        Column("WAITING", [str(view.waiting) for view in rows], right=True),
        bars,
    ]
    legend = ["In GPUs.", *(["* default queue."] if default_queue else [])]
    shown = fitted(columns, width)
    if bars in shown:
        legend.append(
            f"{glyphs.full} used  {glyphs.over} borrowed  {glyphs.promised} guaranteed, free  {glyphs.lendable} up to max"
        )
    parts: list[RenderableType] = [table(columns, width), Text(" ".join(legend), "dim")]
    if free in shown:
        parts.append(Text("FREE: idle, for good + until another queue claims them back.", "dim"))
    descriptions = [(view.name, Text(view.description, "dim")) for view in rows if view.description]
    if descriptions:
        parts += [Text(), facts(descriptions)]
    return Group(*parts)


def _tree_order(views: Sequence[QueueView]) -> list[tuple[QueueView, int]]:
    """Parents before their children, with depth; a queue whose parent may not be seen stands at the top."""
    names = {view.name for view in views}
    children: dict[str | None, list[QueueView]] = {}
    for view in views:
        children.setdefault(view.parent if view.parent in names else None, []).append(view)
    ordered: list[tuple[QueueView, int]] = []

    def walk(parent: str | None, depth: int) -> None:
        for view in children.get(parent, []):
            ordered.append((view, depth))
            walk(view.name, depth + 1)

    walk(None, 0)
    return ordered


def _queue_name(view: QueueView, depth: int, default_queue: str | None) -> Text:
    text = Text("  " * depth + view.name, style="" if view.is_leaf else "bold")
    if view.name == default_queue:
        text.append(" *", "green")
    if view.is_leaf and not view.may_submit:
        text.append(" (closed)", "dim")
    return text


def _borrowed(view: QueueView, glyphs: Glyphs) -> Text:
    amount = gpus(view.borrowed)
    return Text(number_text(amount), style="yellow" if amount else "")


def _maximum(view: QueueView, glyphs: Glyphs) -> str:
    return number_text(gpus(view.max)) if GPU in view.max else glyphs.dash


def _free(view: QueueView) -> str:
    """Idle GPUs that the queue could take now: nobody can claim these back, and those only borrowed."""
    for_good, reclaimable = gpus(view.free_for_good), gpus(view.free_until_reclaimed)
    return f"{number_text(for_good)}+{number_text(reclaimable)}" if reclaimable else number_text(for_good)


def _bars(views: Sequence[QueueView], length: int, glyphs: Glyphs) -> list[Text]:
    """One scale for all queues, so that they can be compared."""
    scale = max([1.0, *(max(gpus(v.guaranteed), gpus(v.used), gpus(v.max)) for v in views)])
    return [_bar(view, length / scale, glyphs) for view in views]


def _bar(view: QueueView, per_gpu: float, glyphs: Glyphs) -> Text:
    """`per_gpu`: characters for one GPU."""

    def cells(amount: float) -> int:
        return max(round(amount * per_gpu), 1 if amount else 0)

    used, borrowed, guaranteed = gpus(view.used), gpus(view.borrowed), gpus(view.guaranteed)
    own = cells(used - borrowed)
    text = Text.assemble((glyphs.full * own, "green"))
    text.append(glyphs.over * max(cells(used) - own, 1 if borrowed else 0), "yellow")
    text.append(glyphs.promised * max(cells(guaranteed) - len(text), 0), "dim")
    text.append(glyphs.lendable * max(cells(gpus(view.max)) - len(text), 0), "dim")
    return text


# ---- nodes


def nodes(views: Sequence[NodeView], width: int, glyphs: Glyphs) -> RenderableType:
    shown = table(
        [
            Column("NODE", [view.name for view in views]),
            Column("HEALTH", [Text(view.health, HEALTH_STYLES.get(view.health, "")) for view in views]),
            Column("GPUS", [_part(view, GPU, WHOLE_GPU) for view in views], right=True),
            Column("TYPE", [_types(view) for view in views], stretch=True),
            Column("CPUS", [_part(view, CPU, WHOLE_CPU) for view in views], keep=7, right=True),
            Column("MEMORY GIB", [_part(view, MEMORY, 1 << 30) for view in views], keep=6, right=True),
            Column("RACK", [view.rack for view in views], keep=5),
        ],
        width,
    )
    return Group(shown, *_node_notes(views))


def _part(view: NodeView, name: str, unit: int) -> str:
    return f"{view.used.get(name, 0) / unit:.6g}/{view.capacity.get(name, 0) / unit:.6g}"


def _types(view: NodeView) -> str:
    counts: dict[str, int] = {}
    for gpu in view.gpus:
        counts[gpu.type] = counts.get(gpu.type, 0) + 1
    types = ", ".join(name if len(counts) == 1 else f"{count} {name}" for name, count in counts.items())
    return f"{types} (simulated)" if view.simulated and types else types


def _node_notes(views: Sequence[NodeView]) -> list[Text]:
    found = [Text(f"{view.name}: {note}", "yellow") for view in views for note in view.notes]
    for view in views:
        for gpu in view.gpus:
            if gpu.health != "ok":
                found.append(
                    Text(
                        f"{view.name}: GPU {gpu.index} is {gpu.health}: {gpu.note or 'no reason given'}",
                        "yellow",
                    )
                )
    return found


# ---- jobs


def jobs(views: Sequence[JobView], now_us: int, width: int, more: int | None = None) -> RenderableType:
    """`more`: there are older ones, and so many would show some of them."""
    if not views:
        return Text("No jobs.", "dim")
    shown = table(
        [
            Column("JOB", [str(view.number) for view in views], right=True),
            Column("NAME", [view.name for view in views], stretch=True),
            Column("QUEUE", [view.queue for view in views], keep=8),
            Column("STATE", [Text(view.state, STATE_STYLES.get(view.state, "")) for view in views]),
            Column("GPUS", [number_text(view.gpus) for view in views], right=True),
            Column("TIME", [_job_time(view, now_us) for view in views], keep=9, right=True),
            Column("PROGRESS", [_detail(view) for view in views], keep=7, stretch=True),
            Column("OWNER", [view.owner_name for view in views], keep=4),
            Column("SUBMITTED", [local_time(view.submitted_us, now_us) for view in views], keep=3),
        ],
        width,
    )
    return Group(shown, Text(f"Older ones are left out; -n {more} shows more.", "dim")) if more else shown


def _job_time(view: JobView, now_us: int) -> str:
    """How long it ran, or has been running; for a pending one, how long it has been waiting."""
    start = view.started_us or view.submitted_us
    return duration(((view.ended_us or now_us) - start) / MICROSECONDS)


def _detail(view: JobView) -> str:
    """Why it waits or ended; while it runs, how far it is."""
    if view.state == JobState.PENDING.value:
        text = view.waits
    elif is_ended(view) and view.reason:
        text = view.reason
    else:
        text = progress_text(view.progress, short=True)
    return text.splitlines()[0] if text else ""


def progress_text(progress: Progress | None, short: bool = False) -> str:
    """Such as "12/100 loss 0.31"; `short`: the first metric alone."""
    if progress is None:
        return ""
    steps = f"{progress.step}/{progress.total}" if progress.total else f"step {progress.step}"
    metrics = [f"{name} {value:.4g}" for name, value in progress.metrics.items()]
    return " ".join([steps, *(metrics[:1] if short else metrics)])


# ---- one job


def why(view: WhyView, job: JobView, history: Sequence[HistoryView], now_us: int) -> RenderableType:
    head = Text.assemble(
        (f"Job {job.number} {job.name}: ", "bold"), (job.state, STATE_STYLES.get(job.state, ""))
    )
    lines: list[RenderableType] = [head, Text(view.sentence)]
    if view.position:
        lines.append(Text(f"Place in queue {job.queue}: {view.position}."))
    if history:
        lines += [Text(), _history(history, now_us)]
    return Group(*lines)


def _history(entries: Sequence[HistoryView], now_us: int) -> RenderableType:
    attempts = max((entry.attempt or 0 for entry in entries), default=0)
    pairs: list[tuple[str, str | Text]] = []
    for entry in entries:
        text = Text.assemble((f"{entry.to_state:9}", STATE_STYLES.get(entry.to_state, "")))
        told = happening(entry)
        if entry.attempt and entry.to_state == JobState.STARTING.value and attempts > 1:
            told = f"attempt {entry.attempt} {told}"
        pairs.append((local_time(entry.time_us, now_us), text.append(f"  {told}") if told else text))
    return facts(pairs)


def placement(view: JobView) -> str:
    """Where the job runs, e.g. "node-0 GPUs 0,1 and node-1 GPU 4"; "" when nowhere."""
    if view.attempt is None or view.state not in {state.value for state in HOLDING_STATES}:
        return ""
    return placement_text([(task.node, task.gpu_indices) for task in view.attempt.tasks])


def placement_text(tasks: Sequence[tuple[str, Sequence[int]]]) -> str:
    by_node: dict[str, list[int]] = {}
    for node, indices in tasks:
        by_node.setdefault(node, []).extend(indices)
    parts = []
    for node, indices in by_node.items():
        numbers = ",".join(str(index) for index in sorted(indices))
        parts.append(f"{node} GPU{'s' if len(indices) > 1 else ''} {numbers}" if indices else node)
    return "; ".join(parts)


def dry_run(view: DryRun) -> RenderableType:
    pairs: list[tuple[str, str | Text]] = [("Queue", view.queue)]
    pairs += [
        ("Tasks" if len(view.roles) == 1 else f"Tasks {role['name']}", _role_text(role))
        for role in view.roles
    ]
    if view.placement:
        pairs.append(
            ("Would run on", placement_text([(task.node, task.gpu_indices) for task in view.placement]))
        )
    if view.uploads_bytes:
        pairs.append(("To upload", size_text(view.uploads_bytes)))
    return Group(facts(pairs), Text(view.sentence), Text("Nothing was submitted.", "dim"))


def _role_text(role: dict[str, Any]) -> str:
    """One task role of a dry run, in the units that people use (the wire has those of the scheduler)."""
    types = " or ".join(role.get("gpu_types") or ())
    parts = [
        plural(role.get("gpus", 0) / WHOLE_GPU, f"{types} GPU".strip()),
        plural(role.get("cpus", 0) / WHOLE_CPU, "CPU core"),
        f"{size_text(role.get('memory', 0))} of memory",
    ]
    count = role.get("count", 1)
    return f"{'' if count == 1 else f'{count}, each with '}{listed(parts)}"


def is_ended(view: JobView) -> bool:
    return view.state in {state.value for state in ENDED_STATES}
