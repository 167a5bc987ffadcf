"""What a cell shows of a job, whoever draws it: first the card, then the job's outputs in their order.

One set of rules for the kernel that runs the cell (`output.py`) and for the Jupyter server that draws it anew for a page
(`server_extension/redraw.py`), so that both end with the same outputs.
"""

from __future__ import annotations

import time

from gpucluster.api.schemas import JobView

from .card import Card
from .drawing import CellOp
from .replay import Mimes, Stream

#: What is shown of a stranger's displays: what a page draws without running anything.
INERT_MIMES = frozenset({"text/plain", "text/latex", "image/png", "image/jpeg", "image/gif", "image/webp"})


def now_us() -> int:
    return time.time_ns() // 1000


class CellOutput:
    """A Sink (replay.py) that turns a job's outputs into steps of drawing. `card` None = outputs only (`%logs`).

    `card_id`: makes display ids of the job unique in the notebook. `show_result`: draw the value of the cell's last
    expression; False leaves that to whoever returns it. `inert`: the job is not the user's own, so nothing of its displays may
    run in his page: HTML, scripts and SVG are left out.

    A `clear_output` of the job clears its outputs and not the card.
    """

    def __init__(
        self, card: Card | None, card_id: str, *, show_result: bool = True, inert: bool = False
    ) -> None:
        self.card = card
        self.card_id = card_id
        self.shows_result = show_result
        self._inert = inert
        #: Displays of which something was left out, because the job is a stranger's.
        self.cut_displays = 0
        self._clear_pending = False

    # ---- what a drawer does

    def _add(self, op: CellOp) -> None:
        """The next step of drawing."""
        raise NotImplementedError

    def draw_card(self, *, final: bool = False) -> None:
        """Show the card, or its newest state in place of what it showed before. `final`: its job will not go on."""
        raise NotImplementedError

    def flush(self) -> None:
        """Show all that waits."""

    def flush_if_due(self) -> None:
        """Show what waits, unless something was shown a moment ago."""

    @property
    def due_in_s(self) -> float | None:
        """Seconds until something is to be flushed; None while nothing waits."""
        return None

    # ---- the sink

    def _begin(self) -> None:
        """Something new is to be shown: a clear that waited for it is due."""
        if self._clear_pending:
            self._clear_pending = False
            self._add(CellOp(op="clear"))

    def text(self, stream: Stream, text: str) -> None:
        if text:
            self._begin()
            self._add(CellOp(op="stream", name=stream, text=text))

    def display(self, data: Mimes, metadata: Mimes, display_id: str | None) -> None:
        data, metadata = self._allowed(data, metadata)
        self._begin()
        self._add(CellOp(op="display", data=data, metadata=metadata, display_id=display_id))

    def update(self, data: Mimes, metadata: Mimes, display_id: str) -> None:
        data, metadata = self._allowed(data, metadata)
        self._begin()
        self._add(CellOp(op="update", data=data, metadata=metadata, display_id=display_id))

    def result(self, data: Mimes, metadata: Mimes) -> None:
        """Show the value of the last expression as Out[n], in the worker's rendering."""
        if not self.shows_result:
            return
        data, metadata = self._allowed(data, metadata)
        self._begin()
        self._add(CellOp(op="result", data=data, metadata=metadata))

    def clear(self, wait: bool) -> None:
        if wait:
            self._clear_pending = True
        else:
            self._clear_pending = False
            self._add(CellOp(op="clear"))

    # ---- jobs of others

    def _allowed(self, data: Mimes, metadata: Mimes) -> tuple[Mimes, Mimes]:
        if not self._inert or INERT_MIMES.issuperset(data):
            return data, metadata
        self.cut_displays += 1
        kept = {mime: content for mime, content in data.items() if mime in INERT_MIMES}
        return kept, {mime: said for mime, said in metadata.items() if mime in kept}

    def tell_cut_displays(self, job: JobView) -> None:
        """Say that displays were cut, if any were, and how to see them whole."""
        if self.cut_displays:
            self.text(
                "stderr",
                f"[displays of {job.owner_name} are shown without HTML and scripts; %attach {job.number} --trust "
                "shows them whole]\n",
            )
