"""How a job's stream becomes what a cell shows: records, the seams between attempts, the card, and how the job ended.

The waiting cell (`run.py`) and a cell that is drawn anew for a page (`server_extension/redraw.py`) are drawn by this one
alone. It is told items in their order and when time has passed; it waits for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpucluster.api.schemas import JobView, ResultManifest, StreamItem

from . import describe
from .binding import Bound, summary_line
from .card import Card
from .cell import CellOutput
from .errors import JobError, Untrusted, one_line
from .happenings import limits_text
from .outcome import failure, worth_telling
from .replay import Limits, Replay
from .seams import seam

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

#: The card is drawn anew at most this often for progress; for a new state at once.
CARD_INTERVAL_S = 0.25
#: The card of a job that reports no progress is drawn anew this often for the time that it has been running.
ELAPSED_INTERVAL_S = 10.0
#: A connection that is away for longer is told in the card.
AWAY_S = 2.0
AWAY = "The scheduler does not answer; trying again. The job is not affected."


def gang_hints(job: JobView, rank: int) -> list[str]:
    """That a gang has more ranks than the one that is shown."""
    if job.tasks == 1:
        return []
    other = 1 if rank == 0 else 0
    return [f"rank {rank} of {job.tasks} is shown; %logs {job.number} --rank {other} shows others"]


class Drawer:
    """Draws one job into `output`, from its first item to its end. The card's `job` is set before.

    `keep_last_error`: leave the error that the job ended with to `failure`, instead of printing it.
    """

    def __init__(
        self,
        client: ApiClient,
        job: JobView,
        output: CellOutput,
        *,
        rank: int = 0,
        limits: Limits,
        keep_last_error: bool = True,
    ) -> None:
        assert output.card is not None
        self.card: Card = output.card
        self.output = output
        self.job = job
        #: The stream has told the job's end.
        self.ended = False
        self._client = client
        self._rank = rank
        self._replay = Replay(
            output,
            prefix=output.card_id,
            where=f"%logs {job.number} --all, or Open log on the card",
            limits=limits,
            keep_last_error=keep_last_error,
            on_status=self._note_limits if self.card.sent.asks_limits else None,
        )
        self._card_due: float | None = None
        self._drawn_at = time.monotonic()
        self._away_since: float | None = None

    def warn(self) -> None:
        """Below the card: what the user should know of his submission."""
        self.output.text("stderr", "".join(f"warning: {warning}\n" for warning in self.card.warnings))

    # ---- what comes

    def take(self, item: StreamItem) -> None:
        if item.type in ("record", "gone"):
            self._replay.record(item)
        elif item.type == "job" and item.job is not None:
            self._take_view(item.job)
        elif item.type == "attempt":
            text = seam(self._client, self.job.id, item)
            if text:
                self._replay.seam(text)
        elif item.type == "end":
            if item.job is not None:
                self._take_view(item.job)
            self.ended = True

    def _take_view(self, view: JobView) -> None:
        before, self.job = self.job, view
        self.card.update(view)
        if (before.state, before.reason) != (view.state, view.reason):
            self.draw_card()
        elif self._card_due is None:
            self._card_due = max(self._drawn_at + CARD_INTERVAL_S, time.monotonic())

    def _note_limits(self, said: Mapping[str, Any]) -> None:
        """Say in the card how the limits that were asked for are kept."""
        if said.get("event") == "up":
            self.card.limits = limits_text(self.job, said.get("limit_means") or {})

    # ---- the passing of time

    def draw_card(self) -> None:
        self._card_due = None
        self._drawn_at = time.monotonic()
        self.output.draw_card()

    def note_contact(self, connected: bool) -> None:
        """Nothing came for a while: say in the card when the scheduler is away."""
        now = time.monotonic()
        if connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = now
        is_away = self._away_since is not None and now - self._away_since > AWAY_S
        self.say(AWAY if is_away else None)

    def say(self, contact: str | None) -> None:
        """Say in the card how it stands with the scheduler."""
        if self.card.contact != contact:
            self.card.contact = contact
            self.draw_card()

    def tick(self) -> None:
        """Draw what is due."""
        now = time.monotonic()
        counts = self.job.state == "running" and self.job.progress is None
        stale = counts and now - self._drawn_at >= ELAPSED_INTERVAL_S
        if stale or (self._card_due is not None and now >= self._card_due):
            self.draw_card()
        self.output.flush_if_due()

    def due_in_s(self, at_most_s: float = 1.0) -> float:
        """Seconds until the next tick is wanted."""
        card_s = at_most_s if self._card_due is None else self._card_due - time.monotonic()
        output_s = self.output.due_in_s
        return max(min(card_s, at_most_s if output_s is None else output_s, at_most_s), 0.0)

    # ---- the end

    def finish(self) -> JobView:
        """No record follows: draw the end of what was long. Returns the job as it ended."""
        self._replay.finish()
        if self.job.state not in describe.ENDED:
            self._take_view(self._client.job(self.job.id))
        self.output.tell_cut_displays(self.job)
        self.output.flush()
        return self.job

    def failure(self) -> JobError:
        """The error of a job that did not succeed."""
        if self._rank:  # another rank's end may explain the job's: its log is read for it
            return failure(self._client, self.job)
        return failure(self._client, self.job, self._replay.error, with_tail=False)

    def tell_bound(self, bound: Bound, manifest: ResultManifest) -> None:
        """Say what the job left: in the card what came, below the outputs what did not."""
        card = self.card
        missing = worth_telling(bound.missing, card.sent.asked_back)
        card.summary = summary_line(
            card.sent.names,
            bound.bound,
            bound.changed,
            [name for name in missing if name != manifest.value_key],
            bound.deleted,
        )
        card.notes += [note for note in bound.notes if note not in card.notes]
        if missing:
            self.output.draw_card(final=True)
        for name, reason in missing.items():
            what = "the value of the last expression" if name == manifest.value_key else name
            self.output.text("stderr", f"{what} did not come back: {reason}\n")

    def tell_unbound(self, names: Iterable[str]) -> None:
        """A stranger's job has ended: say what it left and how to have it."""
        if names:
            self.output.draw_card(final=True)
            untrusted = Untrusted(self.job.number, self.job.owner_name)
            self.output.text("stderr", f"{', '.join(names)}: not bound. {one_line(untrusted)}\n")

    def complete(self) -> None:
        """Everything was drawn; the card says so last of all."""
        self.output.flush()
        self.card.drawing.complete = True
        self.output.draw_card(final=True)
