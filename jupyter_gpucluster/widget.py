"""`job.widget()`: state, progress, the end of the log and a cancel button, out of ipywidgets, for front ends that do not
have our extension and for panels of one's own. A thread keeps it up to date until the job ends or the widget is closed.
"""

from __future__ import annotations

import html
import threading
import time
from typing import TYPE_CHECKING, Any

import ipywidgets

from gpucluster.api.errors import GpuclusterError
from gpucluster.api.schemas import JobView, StreamItem

from . import describe
from .output import now_us
from .replay import Replay, TextSink
from .seams import seam

if TYPE_CHECKING:
    from .job import Job

LOG_LINES = 12
#: The widget is redrawn at most this often.
REDRAW_S = 0.25
_BAR_STYLES = {"succeeded": "success", "failed": "danger", "cancelled": "warning", "stopping": "warning"}


class JobWidget(ipywidgets.VBox):  # type: ignore[misc]
    """A view of one job. `stop()` ends its updates; closing the widget does too."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._headline = ipywidgets.HTML()
        self._bar = ipywidgets.FloatProgress(min=0.0, max=100.0, layout=ipywidgets.Layout(width="100%"))
        self._log = ipywidgets.HTML()
        self._button = ipywidgets.Button(
            description="Cancel", icon="stop", tooltip=f"Cancel job {job.number}"
        )
        self._button.on_click(self._cancel)
        self._pace = describe.Pace()
        self._sink = TextSink()
        self._replay = Replay(self._sink, prefix="", where=f"%logs {job.number}", keep_last_error=False)
        self._follower = job._client().follow(job.id)
        self._drawn_at = 0.0
        super().__init__([self._headline, self._bar, self._log, self._button])
        self._draw(job.view(), force=True)
        self._thread = threading.Thread(target=self._run, name=f"gpucluster-widget-{job.number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the updates; the widget keeps what it shows."""
        self._follower.close()

    def close(self) -> None:
        self.stop()
        super().close()

    def _run(self) -> None:
        try:
            for item in self._follower:
                self._take(item)
        except GpuclusterError as error:
            self._button.disabled = True
            self._log.value = f"<pre>{html.escape(error.reason)}</pre>"

    def _take(self, item: StreamItem) -> None:
        ended = item.type == "end"
        if item.type in ("record", "gone"):
            self._replay.record(item)
            self._sink.parts = [_last_lines("".join(self._sink.parts))]
        elif item.type == "attempt" and (text := seam(self._job._client(), self._job.id, item)):
            self._replay.seam(text)
        if ended:
            self._replay.finish()
        self._draw(item.job or self._view, force=ended or item.job is not None)

    def _draw(self, view: JobView, *, force: bool) -> None:
        self._view = view
        now = time.monotonic()
        if not force and now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        self._pace.add(view.progress)
        self._headline.value = f"<b>{html.escape(describe.job_line(view, now_us(), self._pace))}</b>"
        percent = describe.percent(view.progress)
        self._bar.value = 100.0 if view.state == "succeeded" else percent or 0.0
        self._bar.bar_style = _BAR_STYLES.get(view.state, "info")
        self._bar.layout.display = None if percent is not None else "none"
        self._log.value = f"<pre style='margin:0'>{html.escape(_last_lines(self._sink.value))}</pre>"
        self._button.disabled = (
            view.state in describe.ENDED or view.state == "stopping" or not view.can_control
        )

    def _cancel(self, _button: Any) -> None:
        self._button.disabled = True
        try:
            self._job.cancel()
        except GpuclusterError as error:
            self._log.value = f"<pre>{html.escape(error.reason)}</pre>"


def _last_lines(text: str) -> str:
    """The end of a log as a terminal shows it: a carriage return takes the line back to its beginning."""
    lines = text.split("\n")[-LOG_LINES - 1 :]
    return (
        "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines[:-1])
        + "\n"
        + lines[-1].rpartition("\r")[2]
    )


def job_widget(job: Job) -> JobWidget:
    return JobWidget(job)
