"""What a cell does with a job: submit it, follow it, bind what it left. `%%submit`, `%submit`, `%attach` and `%logs` are this.

The order is that of DESIGN section 3: find and pickle the inputs, hand over, follow, fetch, bind. The card is the first
output and is brought up to date last.
"""

from __future__ import annotations

import queue
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.interactiveshell import InteractiveShell

from gpucluster.api.errors import GpuclusterError, InvalidRequest
from gpucluster.api.schemas import JobView, ResultManifest, StreamItem

from . import connection, context, describe, earlier, live
from .binding import Bound
from .card import Card, Sent
from .draw import Drawer, gang_hints
from .drawing import CellDrawing
from .errors import CellSyntaxError, Damaged, Detached, Withdrawn, as_typed, one_line
from .follow import Reader, StreamClosed, Watch
from .happenings import status_text
from .interrupt import Interrupted, Keyboard
from .job import Job
from .outcome import bind, fetch_blobs, result_of
from .output import ShellOutput
from .place import running_cell
from .replay import ALL, Limits, Replay
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


def _ranks_text(job: JobView) -> str:
    return "It has one task, rank 0." if job.tasks == 1 else f"Its ranks are 0 to {job.tasks - 1}."


#: A cell that shows one job and nothing else. What stands below such a line belongs to the job.
_FILLING = {"submit": re.compile(r"\s*%%submit(\s|$)"), "attach": re.compile(r"\s*%?attach\b[^\n]*\s*$")}


def _fills_cell(shell: InteractiveShell, magic: Literal["submit", "attach"]) -> bool:
    """Whether the running cell is this magic alone: then all that it will show is the job's."""
    source = context.cell_source(shell)
    return source is not None and _FILLING[magic].match(source) is not None


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
            card = Card(
                title=prepared.title,
                notes=prepared.notes,
                warnings=prepared.warnings,
                sent=Sent(
                    names=prepared.names,
                    asked_back=flat(values.get("out")),
                    asks_limits=bool(values.get("memory") or values.get("cpus")),
                ),
            )
            output = self._output(card, fills_cell=prepared.submission.fills_cell, show_result=is_cell)
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
            card.hints = gang_hints(job, self._rank)
            output.draw_card()
            return self._follow(job, output, keyboard)

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

    def _hand_over(self, prepared: Prepared, output: ShellOutput | None, keyboard: Keyboard) -> JobView:
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
                fills_cell=is_cell and _fills_cell(self._shell, "submit"),
            )
        except SyntaxError as error:
            raise CellSyntaxError(error, place) from None

    def _output(
        self, card: Card, *, fills_cell: bool, show_result: bool = True, inert: bool = False
    ) -> ShellOutput:
        limits = self._settings.limits
        card.drawing = CellDrawing(
            fills_cell=fills_cell,
            rank=self._rank,
            show_result=show_result,
            execution_count=context.execution_count(self._shell),
            display_prefix=uuid.uuid4().hex,
            text_bytes=limits.text_bytes,
            display_bytes=limits.display_bytes,
        )
        return ShellOutput(
            self._shell, card, card.drawing.display_prefix, show_result=show_result, inert=inert
        )

    def attach(self, job: Job, *, rank: int = 0, trust: bool = False) -> Any:
        """Follow one rank of a job that was submitted before, from its first output on.

        Of a stranger's job nothing is run here unless they are trusted: no pickle is loaded, no script is drawn.
        """
        with Keyboard() as keyboard:
            view = job.view()
            if not 0 <= rank < view.tasks:
                raise InvalidRequest("--rank", f"job {view.number} has no rank {rank}", _ranks_text(view))
            self._rank = rank
            card = Card(simulated=connection.is_simulated(self._client), hints=gang_hints(view, rank))
            card.update(view)
            trusted = view.mine or trust
            fills_cell = _fills_cell(self._shell, "attach")
            output = self._output(card, fills_cell=fills_cell, inert=not trusted)
            output.draw_card()
            return self._follow(view, output, keyboard, trusted=trusted)

    def _follow(self, job: JobView, output: ShellOutput, keyboard: Keyboard, *, trusted: bool = True) -> Any:
        """Draw the job to its end and take what it left. Returns what the magic returns; raises why there is nothing."""
        drawer = Drawer(self._client, job, output, rank=self._rank, limits=self._settings.limits)
        drawer.warn()
        try:
            self._watch(drawer, output, keyboard)
            return self._end(drawer, output, keyboard, trusted)
        finally:
            output.flush()

    def _watch(self, drawer: Drawer, output: ShellOutput, keyboard: Keyboard) -> None:
        watch = Watch(
            self._client,
            drawer,
            keyboard,
            rank=self._rank,
            on_interrupt=self._settings.on_interrupt,
        )
        try:
            watch.run()
        except Detached:
            self._let_go(output, watch.job)
            raise

    def _end(self, drawer: Drawer, output: ShellOutput, keyboard: Keyboard, trusted: bool) -> Any:
        """The job has ended and its output is drawn."""
        job = drawer.job
        if job.state != "succeeded":
            if trusted:
                self._take_what_is_there(drawer, keyboard)
            output.draw_card(final=True)
            self._when_the_cell_is_over(drawer.complete)  # its error is shown before that
            raise drawer.failure()
        value = None
        try:
            if trusted:
                value = self._take_result(drawer, output, keyboard)
            else:
                self._leave_result(drawer, keyboard)
        except (Interrupted, KeyboardInterrupt):
            raise Detached(job.number, job.state) from None
        except Damaged:
            self._when_the_cell_is_over(drawer.complete)
            raise
        drawer.complete()
        return value

    def _when_the_cell_is_over(self, act: Callable[[], None]) -> None:
        """Do `act` when the running cell has shown everything, its error too."""
        events = self._shell.events

        def once(*_: object) -> None:
            events.unregister("post_run_cell", once)
            act()

        events.register("post_run_cell", once)

    def _let_go(self, output: ShellOutput, job: JobView) -> None:
        """The cell waits no longer: its card says how to come back, and goes on without it."""
        card = output.card
        if card is None:
            return
        card.contact = None
        card.hints = [*card.hints, f"let go by this cell; %attach {job.number} comes back"]
        output.draw_card(final=True)
        if output.card_shown:
            live.keep(card, output.card_id, connection.default_address())

    def _take_result(self, drawer: Drawer, output: ShellOutput, keyboard: Keyboard) -> Any:
        """Bind what the job left; returns the value that the magic returns (`%submit`), or None."""
        bound = self._bind(drawer, keyboard)
        if bound is None or not bound.has_value:
            return None
        if output.drew_result:
            hook: Any = self._shell.displayhook
            hook.update_user_ns(bound.value)
            return None
        return None if output.shows_result else bound.value

    def _take_what_is_there(self, drawer: Drawer, keyboard: Keyboard) -> None:
        """Bind what a cell had assigned before it failed. Why it failed is still to be told, so nothing is raised here."""
        number = drawer.job.number
        try:
            self._bind(drawer, keyboard)
        except (Interrupted, KeyboardInterrupt):
            drawer.output.text(
                "stderr", f"interrupted; %attach {number} fetches what the cell had assigned\n"
            )
        except GpuclusterError as error:
            drawer.output.text("stderr", f"what the cell had assigned did not come back: {one_line(error)}\n")

    def _bind(self, drawer: Drawer, keyboard: Keyboard) -> Bound | None:
        """Fetch and bind what the rank that is shown left, if anything, and say it in the card."""
        manifest, blobs = keyboard.call(lambda: self._fetch(drawer.job))
        if manifest is None:
            return None
        bound = bind(manifest, blobs, self._shell.user_ns)
        drawer.tell_bound(bound, manifest)
        return bound

    def _leave_result(self, drawer: Drawer, keyboard: Keyboard) -> None:
        """A stranger's job has ended: say what it left and how to have it."""
        view = keyboard.call(lambda: result_of(self._client, drawer.job.id, self._rank))
        if view is not None and view.result is not None:
            drawer.tell_unbound(view.result.names)

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

    def show_log(
        self, job: Job, *, rank: int, attempt: int | None, tail: int | None, follow: bool, whole: bool = False
    ) -> None:
        """Draw a log without a card; with `follow` until the job ends or ■ is pressed. `whole`: however long it is."""
        view = job.view()
        output = ShellOutput(self._shell, None, uuid.uuid4().hex, inert=not view.mine)
        replay = Replay(
            output,
            prefix=output.card_id,
            where=f"%logs {job.number} --all, or Open log on the card",
            limits=ALL if whole else self._settings.limits,
            keep_last_error=False,
            on_status=lambda said: status_text(view, said),
        )
        follower = self._client.log(job.id, rank, attempt=attempt, tail=tail, follow=follow)
        closed: StreamClosed | None = None
        with Keyboard() as keyboard, Reader(follower, keyboard.inbox) as reader:
            try:
                while closed is None:
                    item = _next_or_none(keyboard, output.due_in_s)
                    if isinstance(item, StreamClosed):
                        closed = item
                    elif isinstance(item, StreamItem):
                        self._draw_log_item(item, job, replay, with_seams=attempt is None)
                        reader.drawn()
                    output.flush_if_due()
            except Interrupted:
                output.flush()
        replay.finish()
        output.tell_cut_displays(view)
        output.flush()
        if closed is not None and closed.error is not None:
            raise closed.error

    def _draw_log_item(self, item: StreamItem, job: Job, replay: Replay, *, with_seams: bool) -> None:
        if item.type in ("record", "gone"):
            replay.record(item)
        elif item.type == "attempt" and with_seams and (text := seam(self._client, job.id, item)):
            replay.seam(text)


def _next_or_none(keyboard: Keyboard, timeout_s: float | None) -> Any:
    """The next item of the inbox; None after `timeout_s`. Raises Interrupted."""
    try:
        return keyboard.next(timeout_s)
    except queue.Empty:
        return None
