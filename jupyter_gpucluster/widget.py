"""`job.widget()`: what the card shows, with the end of the log and a cancel button, out of ipywidgets; for front ends that do
not have our extension and for panels of one's own. A thread keeps it up to date until the job ends or the widget is closed.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import ipywidgets

from gpucluster.api.errors import GpuclusterError
from gpucluster.api.schemas import JobView, StreamItem

from . import connection, describe
from .card import Card
from .cell import CellOutput, now_us
from .draw import Drawer
from .drawing import CellOp
from .errors import one_line
from .follow import Reader, StreamClosed
from .replay import ALL
from .templates import render, style
from .track import Track

if TYPE_CHECKING:
    from .job import Job

LOG_LINES = 12
#: The log's end is redrawn at most this often.
LOG_INTERVAL_S = 0.25
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ENDING = frozenset({*describe.ENDED, "stopping"})


class JobWidget(ipywidgets.VBox):  # type: ignore[misc]
    """A view of one job. `stop()` ends its updates; closing the widget does too."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.RLock()
        view = job.view()
        client = job._client()
        self._track = Track(_earlier_reports(job, view))
        self._card = Card(simulated=connection.is_simulated(client))
        self._card.update(view)
        self._headline = ipywidgets.HTML()
        self._log = ipywidgets.HTML()
        self._cancel = _button("Cancel", "stop", "", self._ask)
        self._really = _button(f"Cancel job {job.number}", "stop", "danger", self._cancel_it)
        self._keep = _button("Let it run", "", "", self._ask_no_more)
        self._asks = self._asked = False
        self._follower = client.follow(job.id)
        output = _WidgetOutput(self._card, self._draw_card, self._draw_log)
        self._drawer = Drawer(client, view, output, limits=ALL, keep_last_error=False)
        super().__init__(
            [
                ipywidgets.HTML(f"<style>{style()}</style>", layout=ipywidgets.Layout(height="0")),
                self._headline,
                self._log,
                ipywidgets.HBox([self._cancel, self._really, self._keep]),
            ]
        )
        self._draw_card()
        self._draw_log("")
        self._thread = threading.Thread(target=self._run, name=f"gpucluster-widget-{job.number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the updates; the widget keeps what it shows."""
        self._follower.close()

    def close(self) -> None:
        self.stop()
        super().close()

    # ---- following

    def _run(self) -> None:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            with Reader(self._follower, inbox) as reader:
                while not self._drawer.ended and self._turn(inbox, reader):
                    self._drawer.tick()
            if self._drawer.ended:
                view = self._drawer.finish()
                self._track = Track(_earlier_reports(self._job, view))  # those between two looks too
                self._drawer.output.draw_card(final=True)
        except GpuclusterError as error:
            self._drawer.say(one_line(error))

    def _turn(self, inbox: queue.SimpleQueue[Any], reader: Reader) -> bool:
        """Whether to go on."""
        try:
            item = inbox.get(timeout=self._drawer.due_in_s())
        except queue.Empty:
            self._drawer.note_contact(reader.connected)
            return True
        if isinstance(item, StreamItem):
            self._drawer.take(item)
            reader.drawn()
        elif isinstance(item, StreamClosed):
            if item.error is not None:
                raise item.error
            return False
        return True

    # ---- showing

    def _draw_card(self) -> None:
        with self._lock:
            view = self._card.job
            assert view is not None
            self._track.add(view.progress)
            self._headline.value = self._card.html(
                now_us(), sparklines=self._track.sparklines(), with_style=False
            )
            self._draw_buttons(view)

    def _draw_log(self, text: str) -> None:
        number = self._job.number
        where = (
            f"All of it: %logs {number} --all; in JupyterLab also Open log, in the sidebar's list of jobs."
        )
        with self._lock:
            self._log.value = render("log.html.j2", number=number, text=text, where=where)

    def _draw_buttons(self, view: JobView) -> None:
        may = view.can_control and view.state not in _ENDING and not self._asked
        asks = self._asks and may
        self._cancel.disabled = not may
        self._cancel.description = (
            "Cancelling …" if self._asked and view.state not in describe.ENDED else "Cancel"
        )
        self._cancel.tooltip = _why_not(view) or f"Cancel job {view.number}"
        for button, shown in ((self._cancel, not asks), (self._really, asks), (self._keep, asks)):
            button.layout.display = None if shown else "none"

    # ---- cancelling

    def _ask(self, _button: Any) -> None:
        self._asks = True
        self._draw_card()

    def _ask_no_more(self, _button: Any) -> None:
        self._asks = False
        self._draw_card()

    def _cancel_it(self, _button: Any) -> None:
        self._asks, self._asked = False, True
        self._draw_card()
        try:
            self._job.cancel()
        except GpuclusterError as error:
            self._asked = False
            self._drawer.say(one_line(error))


class _WidgetOutput(CellOutput):
    """The end of what a job writes, displays by their text; the widget shows it."""

    def __init__(self, card: Card, on_card: Any, on_log: Any) -> None:
        super().__init__(card, "")
        self._on_card = on_card
        self._on_log = on_log
        self._text = ""
        self._changed = False
        self._shown_at = 0.0

    def draw_card(self, *, final: bool = False) -> None:
        self._on_card()

    def _add(self, op: CellOp) -> None:
        shown = op.text if op.op == "stream" else f"{op.data.get('text/plain', '')}\n" if op.data else ""
        if op.op != "update" and shown:
            self._text = last_lines(self._text + shown)
            self._changed = True

    @property
    def due_in_s(self) -> float | None:
        if not self._changed:
            return None
        return max(self._shown_at + LOG_INTERVAL_S - time.monotonic(), 0.0)

    def flush_if_due(self) -> None:
        if self.due_in_s == 0.0:
            self.flush()

    def flush(self) -> None:
        if self._changed:
            self._changed, self._shown_at = False, time.monotonic()
            self._on_log(self._text)


def _button(text: str, icon: str, style: str, act: Any) -> ipywidgets.Button:
    made = ipywidgets.Button(description=text, icon=icon, button_style=style)
    made.on_click(act)
    return made


def _why_not(view: JobView) -> str:
    """Why the job cannot be cancelled; "" when it can."""
    if view.state in _ENDING:
        return f"job {view.number} is {view.state} already" if view.state == "stopping" else "it has ended"
    return "" if view.can_control else f"only {view.owner_name} and administrators may cancel it"


def _earlier_reports(job: Job, view: JobView) -> list[Any]:
    """The step reports before now; without them a picture is only shorter."""
    if view.progress is None:
        return []
    try:
        return job._client().steps(job.id).steps
    except GpuclusterError:
        return []


def last_lines(text: str) -> str:
    """The end of a log as a terminal shows it, without colours: a carriage return takes the line back to its beginning."""
    *lines, last = _COLOURS.sub("", text).split("\n")[-LOG_LINES - 1 :]
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return "\n".join([*shown, last if last.endswith("\r") else last.rpartition("\r")[2]])


def job_widget(job: Job) -> JobWidget:
    return JobWidget(job)
