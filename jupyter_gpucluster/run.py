"""What a cell does with a job: submit it, follow it, bind what it left. `%%submit`, `%submit`, `%attach` and `%logs` are this.

The order is that of DESIGN section 3: find and pickle the inputs, hand over, follow, fetch, bind. The card is the first
output and is brought up to date last.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.interactiveshell import InteractiveShell

from gpucluster.api.errors import GpuclusterError, InvalidRequest
from gpucluster.api.schemas import JobView, ResultManifest, StreamItem

from . import connection, describe, earlier, live
from .binding import Bound, summary_line
from .card import Card
from .errors import CellSyntaxError, Detached, Untrusted, Withdrawn, as_typed, one_line
from .follow import Reader, StreamClosed, Watch
from .happenings import limits_text, status_text
from .interrupt import Interrupted, Keyboard
from .job import Job
from .outcome import bind, failure, fetch_blobs, result_of, worth_telling
from .output import CellOutput
from .place import running_cell
from .replay import Limits, Replay
from .seams import seam
from .submission import NOTHING_SENT, Budget, Prepared, flat, prepare_cell, send, sending_text

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient


@dataclass(frozen=True)
class Settings:
    """A notebook's defaults beyond those that are options."""

    on_interrupt: Literal["detach", "cancel"] = "detach"
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True)
class Sent:
    """Names that went with the cell, outputs that the user asked for by name, and whether he asked for an amount of memory
    or CPU cores.
    """

    names: tuple[str, ...] = ()
    asked_back: frozenset[str] = frozenset()
    asks_limits: bool = False


def _tell_cut_displays(output: CellOutput, job: JobView) -> None:
    if output.cut_displays:
        output.text(
            "stderr",
            f"[displays of {job.owner_name} are shown without HTML and scripts; %attach {job.number} --trust shows "
            "them whole]\n",
        )


def _ranks_text(job: JobView) -> str:
    return "It has one task, rank 0." if job.tasks == 1 else f"Its ranks are 0 to {job.tasks - 1}."


def _gang_hints(job: JobView, rank: int) -> list[str]:
    """That a gang has more ranks than the one that is shown."""
    if job.tasks == 1:
        return []
    other = 1 if rank == 0 else 0
    return [f"rank {rank} of {job.tasks} is shown; %logs {job.number} --rank {other} shows others"]


def _note_limits(card: Card | None, said: Mapping[str, Any]) -> None:
    """Say in the card how the limits that were asked for are kept."""
    if card is None or card.job is None or said.get("event") != "up":
        return
    card.limits = limits_text(card.job, said.get("limit_means") or {})


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


class CellRun:
    """One magic's dealings with one job, in the thread that runs the cell."""

    def __init__(self, shell: InteractiveShell, settings: Settings) -> None:
        self._shell = shell
        self._settings = settings
        self._connected: ApiClient | None = None
        #: The task of a gang that is shown, and whose names are bound.
        self._rank = 0

    @property
    def _client(self) -> ApiClient:
        """The scheduler's client; asked for only once the submission is ready to go."""
        if self._connected is None:
            self._connected = connection.client()
        return self._connected

    def _connect(self, keyboard: Keyboard) -> ApiClient:
        """As `_client`, where it may take long (a scheduler may have to start) and ■ must work. Raises Withdrawn."""
        try:
            self._connected = connection.known() or keyboard.call(connection.client)
        except Interrupted:
            raise Withdrawn(NOTHING_SENT) from None
        return self._connected

    # ---- submit

    def submit(self, source: str, values: Mapping[str, Any], *, is_cell: bool) -> Any:
        """Submit and, with `wait`, follow to the end. Returns what the magic returns."""
        try:
            prepared = self._prepare(source, values, is_cell=is_cell)
        except KeyboardInterrupt:
            raise Withdrawn(NOTHING_SENT) from None
        with Keyboard() as keyboard:
            self._tell_what_earlier_jobs_give(prepared, flat(values.get("after")), keyboard)
            card = Card(title=prepared.title, notes=prepared.notes, warnings=prepared.warnings)
            output = self._output(card, show_result=is_cell)
            waits = bool(values.get("wait", True))
            job = self._hand_over(prepared, output if waits else None, keyboard)
            handle = Job.from_view(job, connection.default_address())
            if values.get("as"):
                self._shell.user_ns[values["as"]] = handle
            if not waits:
                _warn(prepared.warnings)
                return handle
            card.simulated = connection.is_simulated(self._client)
            card.update(job)
            card.hints = _gang_hints(job, self._rank)
            output.draw_card()
            output.text("stderr", "".join(f"warning: {warning}\n" for warning in prepared.warnings))
            asks_limits = bool(values.get("memory") or values.get("cpus"))
            sent = Sent(tuple(prepared.names), frozenset(flat(values.get("out"))), asks_limits)
            return self._follow(job, output, keyboard, sent)

    def _tell_what_earlier_jobs_give(self, prepared: Prepared, after: list[str], keyboard: Keyboard) -> None:
        """Say of a name that is nowhere defined that a job which this one waits for gives it back, if one does."""
        if not (prepared.undefined and after):
            return
        from .capture.collect import not_defined

        client = self._connect(keyboard)
        try:
            given = keyboard.call(lambda: earlier.given_back(client, after, prepared.undefined))
        except Interrupted:
            raise Withdrawn(NOTHING_SENT) from None
        better = {
            not_defined(name): earlier.sentence(name, job, self._shell.user_ns) for name, job in given.items()
        }
        prepared.warnings[:] = [better.get(warning, warning) for warning in prepared.warnings]

    def _hand_over(self, prepared: Prepared, output: CellOutput | None, keyboard: Keyboard) -> JobView:
        """Submit; while big inputs travel, the card says so (`output` None: nobody draws a card, a line does)."""
        sending = sending_text(prepared)
        if sending and output is None:
            print(sending, file=sys.stderr)
        card = output.card if output is not None else None
        if sending and output is not None and card is not None:
            card.sending = sending
            output.draw_card()
        try:
            return send(self._connect(keyboard), prepared, keyboard)
        except GpuclusterError as error:
            if sending and output is not None and card is not None:
                card.sending = "not submitted"
                output.draw_card()
            raise (as_typed(error) if isinstance(error, InvalidRequest) else error) from None

    def _prepare(self, source: str, values: Mapping[str, Any], *, is_cell: bool) -> Prepared:
        """Lines are counted as the user sees them: the code of %%submit begins in line 2 of its cell."""
        place = running_cell(self._shell)
        try:
            return prepare_cell(
                source,
                values,
                self._shell.user_ns,
                self._settings.budget,
                shell=self._shell,
                first_line=2 if is_cell else place.line if place else 1,
            )
        except SyntaxError as error:
            raise CellSyntaxError(error, place) from None

    def _output(self, card: Card | None, *, show_result: bool = True, inert: bool = False) -> CellOutput:
        return CellOutput(self._shell, card, uuid.uuid4().hex, show_result=show_result, inert=inert)

    def attach(self, job: Job, *, rank: int = 0, trust: bool = False) -> Any:
        """Follow one rank of a job that was submitted before, from its first output on.

        Of a stranger's job nothing is run here unless they are trusted: no pickle is loaded, no script is drawn.
        """
        with Keyboard() as keyboard:
            view = job.view()
            if not 0 <= rank < view.tasks:
                raise InvalidRequest("--rank", f"job {view.number} has no rank {rank}", _ranks_text(view))
            self._rank = rank
            card = Card(simulated=connection.is_simulated(self._client), hints=_gang_hints(view, rank))
            card.update(view)
            output = self._output(card, inert=not (view.mine or trust))
            output.draw_card()
            return self._follow(view, output, keyboard, trusted=view.mine or trust)

    def _follow(
        self,
        job: JobView,
        output: CellOutput,
        keyboard: Keyboard,
        sent: Sent = Sent(),
        *,
        trusted: bool = True,
    ) -> Any:
        replay = Replay(
            output,
            prefix=output.card_id,
            where=f"%logs {job.number}",
            limits=self._settings.limits,
            on_status=lambda said: _note_limits(output.card, said) if sent.asks_limits else None,
        )
        watch = Watch(
            self._client,
            job,
            output,
            replay,
            keyboard,
            rank=self._rank,
            on_interrupt=self._settings.on_interrupt,
        )
        try:
            ended = watch.run()
        except Detached:
            self._let_go(output, watch.job)
            raise
        _tell_cut_displays(output, ended)
        if ended.state != "succeeded":
            if trusted:
                self._take_what_is_there(ended, output, keyboard, sent)
            output.draw_card(final=True)
            if self._rank:  # another rank's end may explain the job's: its log is read for it
                raise failure(self._client, ended)
            raise failure(self._client, ended, replay.error, with_tail=False)
        try:
            if not trusted:
                return self._leave_result(ended, output, keyboard)
            return self._take_result(ended, output, keyboard, sent)
        except (Interrupted, KeyboardInterrupt):
            raise Detached(ended.number, ended.state) from None

    def _let_go(self, output: CellOutput, job: JobView) -> None:
        """The cell waits no longer: its card says how to come back, and goes on without it."""
        card = output.card
        if card is None:
            return
        card.contact = None
        card.hints = [*card.hints, f"let go by this cell; %attach {job.number} comes back"]
        output.draw_card(final=True)
        if output.card_shown:
            live.keep(card, output.card_id, connection.default_address())

    def _take_result(self, job: JobView, output: CellOutput, keyboard: Keyboard, sent: Sent) -> Any:
        """Bind what the job left; returns the value that the magic returns (`%submit`), or None."""
        bound = self._bind(job, output, keyboard, sent)
        if bound is None or not bound.has_value:
            return None
        if output.drew_result:
            hook: Any = self._shell.displayhook
            hook.update_user_ns(bound.value)
            return None
        return None if output.shows_result else bound.value

    def _take_what_is_there(self, job: JobView, output: CellOutput, keyboard: Keyboard, sent: Sent) -> None:
        """Bind what a cell had assigned before it failed. Why it failed is still to be told, so nothing is raised here."""
        try:
            self._bind(job, output, keyboard, sent)
        except (Interrupted, KeyboardInterrupt):
            output.text("stderr", f"interrupted; %attach {job.number} fetches what the cell had assigned\n")
        except GpuclusterError as error:
            output.text("stderr", f"what the cell had assigned did not come back: {one_line(error)}\n")

    def _bind(self, job: JobView, output: CellOutput, keyboard: Keyboard, sent: Sent) -> Bound | None:
        """Fetch and bind what the rank that is shown left, if anything, and say it in the card."""
        card = output.card
        assert card is not None
        manifest, blobs = keyboard.call(lambda: self._fetch(job))
        if manifest is None:
            output.draw_card(final=True)
            return None
        bound = bind(manifest, blobs, self._shell.user_ns)
        missing = worth_telling(bound.missing, sent.asked_back)
        names_missing = [name for name in missing if name != manifest.value_key]
        card.summary = summary_line(sent.names, bound.bound, bound.changed, names_missing, bound.deleted)
        card.notes = [*card.notes, *bound.notes]
        output.draw_card(final=True)
        for name, reason in missing.items():
            what = "the value of the last expression" if name == manifest.value_key else name
            output.text("stderr", f"{what} did not come back: {reason}\n")
        return bound

    def _leave_result(self, job: JobView, output: CellOutput, keyboard: Keyboard) -> None:
        """A stranger's job has ended: say what it left and how to have it."""
        output.draw_card(final=True)
        view = keyboard.call(lambda: result_of(self._client, job.id, self._rank))
        names = view.result.names if view is not None and view.result is not None else ()
        if names:
            output.text(
                "stderr",
                f"{', '.join(names)}: not bound. {one_line(Untrusted(job.number, job.owner_name))}\n",
            )

    def _fetch(self, job: JobView) -> tuple[ResultManifest | None, dict[str, bytes]]:
        """What the job left, in a thread."""
        view = result_of(self._client, job.id, self._rank)
        if view is None or view.result is None:
            return None, {}
        return view.result, fetch_blobs(self._client, job.id, view.result)

    # ---- the rest

    def dry_run(self, source: str, values: Mapping[str, Any], *, is_cell: bool) -> None:
        """Print what would be sent and where it would run."""
        prepared = self._prepare(source, values, is_cell=is_cell)
        _warn(prepared.warnings)
        try:
            plan = self._client.dry_run(prepared.submission)
        except InvalidRequest as error:
            raise as_typed(error) from None
        sent = f"{', '.join(prepared.names)} ({describe.size(prepared.total_bytes)})"
        lines = [
            f"in: {sent if prepared.names else 'nothing'}",
            *([f"modules imported there: {', '.join(prepared.modules)}"] if prepared.modules else []),
            f"out: {', '.join(prepared.outputs) or 'nothing'}",
            f"queue: {plan.queue}",
            plan.sentence,
            *(
                f"rank {task.rank} on {task.node}"
                + (f" (GPU {', '.join(map(str, task.gpu_indices))})" if task.gpu_indices else "")
                for task in plan.placement
            ),
            *(f"note: {note}" for note in prepared.notes),
            "Nothing was submitted.",
        ]
        print("\n".join(lines))

    def show_log(self, job: Job, *, rank: int, attempt: int | None, tail: int | None, follow: bool) -> None:
        """Draw a log without a card; with `follow` until the job ends or ■ is pressed."""
        view = job.view()
        output = self._output(None, inert=not view.mine)
        replay = Replay(
            output,
            prefix=output.card_id,
            where=f"job {job.number}",
            keep_last_error=False,
            on_status=lambda said: status_text(view, said),
        )
        follower = self._client.log(job.id, rank, attempt=attempt, tail=tail, follow=follow)
        closed: StreamClosed | None = None
        with Keyboard() as keyboard, Reader(follower, keyboard) as reader:
            try:
                while closed is None:
                    item = keyboard.next()
                    if isinstance(item, StreamClosed):
                        closed = item
                    elif isinstance(item, StreamItem):
                        self._draw_log_item(item, job, replay, with_seams=attempt is None)
                        reader.drawn()
            except Interrupted:
                output.flush()
        replay.finish()
        _tell_cut_displays(output, view)
        output.flush()
        if closed is not None and closed.error is not None:
            raise closed.error

    def _draw_log_item(self, item: StreamItem, job: Job, replay: Replay, *, with_seams: bool) -> None:
        if item.type in ("record", "gone"):
            replay.record(item)
        elif item.type == "attempt" and item.attempt > 1 and with_seams:
            replay.seam(seam(self._client, job.id, item.attempt))
