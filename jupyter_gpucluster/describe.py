"""Words and figures for people: durations, sizes, where a job runs, how it stands, how fast it goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from gpucluster.api.schemas import JobView, Progress
from gpucluster.api.words import duration as duration

ENDED = frozenset({"succeeded", "failed", "cancelled"})

ICONS = {
    "sending": "⇪",
    "pending": "◌",
    "starting": "◔",
    "running": "●",
    "suspended": "⏸",
    "stopping": "◍",
    "succeeded": "✔",
    "failed": "✘",
    "cancelled": "⊘",
}


def size(count: int) -> str:
    """Bytes in powers of 1024: "512 B", "1.5 MiB"."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def figure(value: float) -> str:
    """A metric in few characters."""
    return f"{value:.4g}"


def _rate_figure(rate: float) -> str:
    """A rate: more than three digits would only flicker."""
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:.0f}"


def gpus(count: float) -> str:
    return "no GPU" if not count else f"{count:g} GPU{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def nodes(view: JobView) -> list[str]:
    """Names of the nodes of the present attempt, each once, by rank."""
    return list(dict.fromkeys(task.node for task in view.attempt.tasks)) if view.attempt else []


def numbers(values: Iterable[int]) -> str:
    """For example "0, 2, 4–7": three or more in a row are drawn together."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)


def where(view: JobView) -> str:
    """For example "on node-0 (GPU 2, 3)", "on 4 nodes (node-0, node-1, …)"; "" before it has a place."""
    names = nodes(view)
    if not names or view.attempt is None:
        return ""
    if len(names) > 1:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        return f"on {len(names)} nodes ({shown})"
    indices = numbers(index for task in view.attempt.tasks for index in task.gpu_indices)
    return f"on {names[0]} (GPU {indices})" if indices else f"on {names[0]}"


def runtime_s(view: JobView, now_us: int) -> float | None:
    """Seconds since the job's first start, or that it took; None before."""
    if view.started_us is None:
        return None
    return max((view.ended_us or now_us) - view.started_us, 0) / 1e6


#: A job that reports no progress says how long it has been running from here on, seconds.
ELAPSED_FROM_S = 5.0


def elapsed(view: JobView, now_us: int) -> str:
    """For example "1 min 05 s so far" of a running job that reports no progress; else ""."""
    took = runtime_s(view, now_us)
    if view.state != "running" or view.progress is not None or took is None or took < ELAPSED_FROM_S:
        return ""
    return f"{duration(took)} so far"


def first_feedback(view: JobView) -> str:
    """The time from submit to the first step report: "first step after 3.2 s"; "" before."""
    if view.first_feedback_us is None:
        return ""
    return f"first step after {duration((view.first_feedback_us - view.submitted_us) / 1e6)}"


def waiting(view: JobView) -> str:
    """Why a pending job waits, with its place: "2nd in queue vision: all 8 GPUs …". A reason that begins with it will do."""
    place = f"{ordinal(view.position)} in queue {view.queue}" if view.position else f"in queue {view.queue}"
    reason = view.waits or view.reason
    if reason and reason.startswith(f"Number {view.position} in queue {view.queue}"):
        return reason
    return f"{place}: {reason}" if reason else place


#: The pace is that of the newest reports, of so much time; the same in labextension/src/model/track.ts.
PACE_WINDOW_US = 30_000_000
#: Of reports that are closer than this the newest alone counts towards the pace.
PACE_GRAIN_US = 500_000


class Pace:
    """Steps per second and time left, from the step reports of the last half minute."""

    def __init__(self) -> None:
        self._reports: deque[Progress] = deque()

    def add(self, progress: Progress | None) -> None:
        """Take the newest report in; the same one again changes nothing, a step back starts anew."""
        if progress is None:
            return
        reports = self._reports
        last = reports[-1] if reports else None
        if last is not None and (progress.time_us, progress.step) == (last.time_us, last.step):
            return
        if last is not None and (progress.step < last.step or progress.time_us < last.time_us):
            reports.clear()
        # Neighbours are a grain apart, the newest alone excepted: so a window holds a bounded number.
        if len(reports) >= 2 and reports[-1].time_us - reports[-2].time_us < PACE_GRAIN_US:
            reports.pop()
        reports.append(progress)
        # One from before the window stays when it is all that the newest can be compared with.
        while len(reports) > 2 and progress.time_us - reports[0].time_us > PACE_WINDOW_US:
            reports.popleft()

    @property
    def steps_per_s(self) -> float | None:
        if len(self._reports) < 2:
            return None
        first, last = self._reports[0], self._reports[-1]
        seconds = (last.time_us - first.time_us) / 1e6
        return (last.step - first.step) / seconds if seconds > 0 and last.step > first.step else None

    @property
    def left_s(self) -> float | None:
        """Seconds to the last step at the present pace."""
        rate = self.steps_per_s
        if not rate or not self._reports or not self._reports[-1].total:
            return None
        last = self._reports[-1]
        return max((last.total or 0) - last.step, 0) / rate


def pace_text(pace: Pace) -> str:
    """For example "12.5 steps/s, 6.0 s left"; "" while unknown."""
    rate, left = pace.steps_per_s, pace.left_s
    if rate is None:
        return ""
    speed = f"{_rate_figure(rate)} steps/s" if rate >= 1 else f"{duration(1 / rate)} a step"
    return f"{speed}, {duration(left)} left" if left else speed


def metrics(progress: Progress | None, without: Collection[str] = ()) -> list[str]:
    if progress is None:
        return []
    return [f"{name} {figure(value)}" for name, value in progress.metrics.items() if name not in without]


def steps(progress: Progress | None) -> str:
    """For example "step 30/100"."""
    if progress is None:
        return ""
    label = progress.description or "step"
    return f"{label} {progress.step}/{progress.total}" if progress.total else f"{label} {progress.step}"


def percent(progress: Progress | None) -> float | None:
    if progress is None or not progress.total or progress.total <= 0:
        return None
    return min(max(100 * progress.step / progress.total, 0.0), 100.0)


def reason(view: JobView) -> str:
    """Why the job is in its state; "" when that says no more than the state does."""
    return "" if view.state == "succeeded" or view.reason in (None, view.state) else view.reason or ""


def joined(parts: Iterable[str], separator: str = " · ") -> str:
    return separator.join(part for part in parts if part)


def standing(view: JobView, now_us: int, pace: Pace | None = None) -> str:
    """Where the job stands, without its name: state, place, progress, or how it ended."""
    if view.state in ENDED:
        took = runtime_s(view, now_us)
        ended = f"{view.state} after {duration(took)}" if took is not None else view.state
        return joined([ended, where(view), reason(view)])
    if view.state == "pending":
        return f"pending, {waiting(view)}"
    progress = view.progress
    return joined(
        [
            f"{view.state} {where(view)}".strip(),
            view.reason or "" if view.state in ("stopping", "suspended") else "",
            elapsed(view, now_us),
            steps(progress),
            *metrics(progress),
            pace_text(pace) if pace and view.state == "running" else "",
        ]
    )


def job_line(view: JobView, now_us: int, pace: Pace | None = None) -> str:
    """The job in one line of text."""
    icon = ICONS.get(view.state, "·")
    attempt = f"attempt {view.attempt.number}" if view.attempt and view.attempt.number > 1 else ""
    return joined([f"{icon} job {view.number} {view.name}", attempt, standing(view, now_us, pace)])
