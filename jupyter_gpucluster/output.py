"""Where a job's outputs go in the process that waits for it: the cell of a kernel, or the terminal of plain IPython.

`CellOutput` owns what the cell shows: first the card, then the job's own outputs in their order. A `clear_output` of the
job clears its outputs and not the card, so the card is put back first.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from IPython import display as _display
from IPython.core.interactiveshell import InteractiveShell

from . import describe
from .card import Card
from .replay import Mimes, Stream

# IPython's functions, which have no types of their own.
#: What is shown of a stranger's displays: what a page draws without running anything.
INERT_MIMES = frozenset({"text/plain", "text/latex", "image/png", "image/jpeg", "image/gif", "image/webp"})

publish_display_data: Any = _display.publish_display_data
clear_output: Any = _display.clear_output


def now_us() -> int:
    return time.time_ns() // 1000


def is_kernel(shell: InteractiveShell) -> bool:
    """Whether outputs go to a front end that understands displays, rather than to a terminal."""
    return hasattr(shell, "kernel")


class CellOutput:
    """A Sink that draws into the running cell. `card` None = outputs only (`%logs`).

    `show_result`: draw the value of the cell's last expression; False leaves that to whoever returns it.
    `inert`: the job is not the user's own, so nothing of its displays may run in his page: HTML, scripts and SVG are left out.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        card: Card | None,
        card_id: str,
        *,
        show_result: bool = True,
        inert: bool = False,
    ) -> None:
        self._shell = shell
        self.card = card
        self.card_id = card_id
        self.shows_result = show_result
        self._inert = inert
        #: Displays of which something was left out, because the job is a stranger's.
        self.cut_displays = 0
        self._rich = is_kernel(shell)
        self._last_stream: Stream | None = None
        self._clear_pending = False
        self.card_shown = False
        self._printed_state: object = None
        self._printed_lines: set[str] = set()
        #: A result was drawn with the worker's own rendering, so `Out` still lacks its value.
        self.drew_result = False

    # ---- the card

    def draw_card(self, *, final: bool = False) -> None:
        """Show the card, or its newest state in place of what it showed before. `final`: nothing will be added to it."""
        if self.card is None:
            return
        if not self._rich:
            self._print_card(final)
            return
        bundle = self.card.mimebundle(now_us())
        publish_display_data(
            data=bundle, metadata={}, transient={"display_id": self.card_id}, update=self.card_shown
        )
        self.card_shown = True

    def _print_card(self, final: bool) -> None:
        """A terminal cannot replace what it printed: a line for each new state and reason, none for progress; how the job
        ended is told once, with the summary below it.
        """
        card = self.card
        assert card is not None
        if card.job is not None and card.job.state in describe.ENDED and not final:
            return
        first, *rest = card.text(now_us()).splitlines()
        state = first if card.job is None else (card.job.state, card.job.reason, card.job.attempts_made)
        lines = [first] if state != self._printed_state else []
        lines += [line for line in rest if line not in self._printed_lines]
        self._printed_state = state
        self._printed_lines.update(rest)
        if lines:
            self.text("stderr", "\n".join(lines) + "\n")

    # ---- the sink

    def _before_output(self, stream: Stream | None = None) -> None:
        if self._clear_pending:
            self._clear_pending = False
            self._clear_now()
        if stream != self._last_stream:
            # stdout and stderr are buffered apart: without this they would change places with what comes next.
            if self._last_stream is not None:
                self._file(self._last_stream).flush()
            self._last_stream = stream

    def _clear_now(self) -> None:
        clear_output(wait=self._rich and self.card is not None)
        if self._rich and self.card_shown:
            self.card_shown = False
            self.draw_card()

    @staticmethod
    def _file(stream: Stream) -> Any:
        return sys.stdout if stream == "stdout" else sys.stderr

    def text(self, stream: Stream, text: str) -> None:
        if not text:
            return
        self._before_output(stream)
        self._file(stream).write(text)

    def _allowed(self, data: Mimes, metadata: Mimes) -> tuple[Mimes, Mimes]:
        if not self._inert or INERT_MIMES.issuperset(data):
            return data, metadata
        self.cut_displays += 1
        kept = {mime: content for mime, content in data.items() if mime in INERT_MIMES}
        return kept, {mime: said for mime, said in metadata.items() if mime in kept}

    def display(self, data: Mimes, metadata: Mimes, display_id: str | None) -> None:
        data, metadata = self._allowed(data, metadata)
        self._before_output()
        transient = {"display_id": display_id} if display_id else {}
        publish_display_data(data=data, metadata=metadata, transient=transient)

    def update(self, data: Mimes, metadata: Mimes, display_id: str) -> None:
        data, metadata = self._allowed(data, metadata)
        self._before_output()
        publish_display_data(data=data, metadata=metadata, transient={"display_id": display_id}, update=True)

    def result(self, data: Mimes, metadata: Mimes) -> None:
        """Show the value of the last expression as Out[n], in the worker's rendering."""
        if not self.shows_result:
            return
        data, metadata = self._allowed(data, metadata)
        self._before_output()
        captured = sys.displayhook is not self._shell.displayhook
        if captured:  # by %%capture, which wants a display
            publish_display_data(data=data, metadata=metadata)
            return
        hook: Any = self._shell.displayhook
        hook.start_displayhook()
        hook.write_output_prompt()
        hook.write_format_data(data, metadata)
        hook.log_output(data)
        hook.finish_displayhook()
        self.drew_result = True

    def clear(self, wait: bool) -> None:
        if wait:
            self._clear_pending = True
        else:
            self._clear_now()

    def flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
