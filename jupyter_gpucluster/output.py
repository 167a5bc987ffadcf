"""Where a job's outputs go in the process that waits for it: the cell of a kernel, or the terminal of plain IPython.

A front end draws each message anew, and a Jupyter server drops what a kernel sends too fast. So outputs are collected for
a moment (steps.py), and a job that floods them is shown at the pace that a page can take.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from IPython import display as _display
from IPython.core.interactiveshell import InteractiveShell

from . import describe
from .card import Card
from .cell import CellOutput
from .cell import now_us as now_us
from .drawing import CellOp
from .replay import Stream
from .steps import Steps

# IPython's functions, which have no types of their own.
publish_display_data: Any = _display.publish_display_data
clear_output: Any = _display.clear_output

#: Outputs are shown at most this often; the first of them at once. A page draws all text of an output anew for each piece of
#: it, so the more was shown, the longer is the pause.
FLUSH_INTERVAL_S = 0.1
FLUSH_INTERVAL_S_PER_BYTE = 1 / (1 << 20)
LONGEST_FLUSH_INTERVAL_S = 0.5
#: So much is not collected any further.
FLUSH_BYTES = 64 << 10


def is_kernel(shell: InteractiveShell) -> bool:
    """Whether outputs go to a front end that understands displays, rather than to a terminal."""
    return hasattr(shell, "kernel")


class Allowance:
    """How fast a kernel may send: a Jupyter server drops outputs beyond 1 MB/s of text or 1,000 messages/s, over 3 s."""

    BURST_MESSAGES, MESSAGES_PER_S = 1200, 500
    BURST_BYTES, BYTES_PER_S = 1_200_000, 500_000
    #: Of each message, beside its text.
    ENVELOPE_BYTES = 1000

    def __init__(self) -> None:
        self._messages: float = self.BURST_MESSAGES
        self._bytes: float = self.BURST_BYTES
        self._at = time.monotonic()

    def take(self, text_bytes: int, now: float) -> float:
        """Take a message out of the allowance; the seconds to wait before it may be sent."""
        passed_s, self._at = now - self._at, now
        self._messages = min(self._messages + passed_s * self.MESSAGES_PER_S, self.BURST_MESSAGES) - 1
        self._bytes = min(self._bytes + passed_s * self.BYTES_PER_S, self.BURST_BYTES)
        self._bytes -= text_bytes + self.ENVELOPE_BYTES if text_bytes else 0
        return max(-self._messages / self.MESSAGES_PER_S, -self._bytes / self.BYTES_PER_S, 0.0)


class ShellOutput(CellOutput):
    """Draws into the running cell."""

    def __init__(
        self,
        shell: InteractiveShell,
        card: Card | None,
        card_id: str,
        *,
        show_result: bool = True,
        inert: bool = False,
    ) -> None:
        super().__init__(card, card_id, show_result=show_result, inert=inert)
        self._shell = shell
        self._rich = is_kernel(shell)
        self._steps = Steps()
        self._allowance = Allowance()
        self._flushed_at = 0.0
        self._shown_bytes = 0
        self.card_shown = False
        self._printed_state: object = None
        self._printed_lines: set[str] = set()
        #: A result was drawn with the worker's own rendering, so `Out` still lacks its value.
        self.drew_result = False

    # ---- the card

    def draw_card(self, *, final: bool = False) -> None:
        if self.card is None:
            return
        if not self._rich:
            self._print_card(final)
            self.flush()
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

    # ---- pace

    def _add(self, op: CellOp) -> None:
        self._steps.add(op)
        if self._steps.size >= FLUSH_BYTES:
            self._steps.compact()
        if self._steps.size >= FLUSH_BYTES:
            self.flush()

    @property
    def due_in_s(self) -> float | None:
        if not self._steps:
            return None
        if not self._rich:
            return 0.0  # a terminal takes what comes
        interval_s = FLUSH_INTERVAL_S + self._shown_bytes * FLUSH_INTERVAL_S_PER_BYTE
        due_at = self._flushed_at + min(interval_s, LONGEST_FLUSH_INTERVAL_S)
        return max(due_at - time.monotonic(), 0.0)

    def flush_if_due(self) -> None:
        if self.due_in_s == 0.0:
            self.flush()

    def flush(self) -> None:
        stream: Stream | None = None
        for op in self._steps.take():
            if stream is not None and stream != op.name:
                # stdout and stderr are buffered apart: without this they would change places with what comes next.
                self._file(stream).flush()
            stream = op.name
            text_bytes = len(op.text.encode("utf-8", "replace"))
            self._shown_bytes = text_bytes + (self._shown_bytes if op.op == "stream" else 0)
            self._wait_for_allowance(text_bytes)
            self._show(op)
        if stream is not None:
            self._file(stream).flush()
        self._flushed_at = time.monotonic()

    def _wait_for_allowance(self, text_bytes: int) -> None:
        if self._rich and (pause_s := self._allowance.take(text_bytes, time.monotonic())):
            time.sleep(pause_s)

    # ---- showing

    def _show(self, op: CellOp) -> None:
        if op.op == "stream":
            self._file(op.name).write(op.text)
        elif op.op == "result":
            self._show_result(op)
        elif op.op == "clear":
            self._clear_now()
        else:
            publish_display_data(
                data=op.data,
                metadata=op.metadata,
                transient={"display_id": op.display_id} if op.display_id else {},
                update=op.op == "update",
            )

    @staticmethod
    def _file(stream: Stream | None) -> Any:
        return sys.stdout if stream == "stdout" else sys.stderr

    def _clear_now(self) -> None:
        clear_output(wait=self._rich and self.card is not None)
        if self._rich and self.card_shown:
            self.card_shown = False
            self.draw_card()

    def _show_result(self, op: CellOp) -> None:
        captured = sys.displayhook is not self._shell.displayhook
        if captured:  # by %%capture, which wants a display
            publish_display_data(data=op.data, metadata=op.metadata)
            return
        hook: Any = self._shell.displayhook
        hook.start_displayhook()
        hook.write_output_prompt()
        hook.write_format_data(op.data, op.metadata)
        hook.log_output(op.data)
        hook.finish_displayhook()
        self.drew_result = True
