"""A cell drawn anew for a page from its job's log, by the code that a kernel draws with (DESIGN 4, *One owner of a cell's
output*).

One thread follows the job and draws; what it draws waits, joined to few steps and within a bound, until the page takes it.
Nothing of the job is run or unpickled here: names are told, not bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from gpucluster.api.errors import InvalidRequest, invalid_input
from gpucluster.api.schemas import JobView, ResultManifest

from .. import connection, describe
from ..binding import Bound
from ..card import Card, Sent
from ..cell import CellOutput, now_us
from ..draw import Drawer, gang_hints
from ..drawing import CellDrawing, CellOp
from ..errors import error_output
from ..outcome import result_of
from ..replay import Limits
from ..steps import Steps
from .messages import CellQuery

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient
    from gpucluster.api.feeds import Follower

#: So much may wait for the page; then the drawing waits, and the job's stream with it.
WAITING_BYTES = 256 << 10
#: A page gets what was drawn at most this often, unless so much waits that nothing more is drawn.
BATCH_INTERVAL_S = 0.1


class _Left(Exception):
    """The page has gone: there is nobody to draw for."""


class SavedCard(msgspec.Struct, kw_only=True):
    """What of a card that was saved in a notebook is shown again; the rest of it is told by the job."""

    notes: list[str] = []
    warnings: list[str] = []
    limits: str = ""
    sent: Sent = Sent()


class CellRedraw:
    """Draws one cell. `connect` makes a client of the scheduler, which is closed at the end."""

    def __init__(self, query: CellQuery, *, connect: Callable[[], ApiClient]) -> None:
        self._query = query
        self._connect = connect

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Encoded CellOps in their order, as they are drawn, up to "done". Closing the iterator ends the drawing.

        Raises InvalidRequest for a query that cannot be, NotFound, Forbidden (the job may not be read), Unavailable.
        """
        handover = _Handover(asyncio.get_running_loop())
        drawing = _Drawing(self._query, self._connect, handover)
        drawing.start()
        try:
            async with contextlib.aclosing(handover.batches()) as batches:
                async for ops in batches:
                    yield [_encoded(op) for op in ops]
        finally:
            drawing.stop()


class _Handover:
    """Steps on their way from the thread that draws to the loop that sends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps = Steps()
        self._change = threading.Condition()
        self._closed = False
        self._over = False
        self._error: Exception | None = None
        self._something = asyncio.Event()
        self._much = asyncio.Event()

    # ---- in the thread

    def put(self, op: CellOp) -> None:
        """Hand a step over; waits while too much waits already. Raises _Left."""
        with self._change:
            # A clear makes less of what waits.
            while self._is_full and op.op != "clear" and not self._closed:
                self._change.wait()
            if self._closed:
                raise _Left
            self._steps.add(op)
            self._tell(self._something)
            if self._is_full:
                self._tell(self._much)

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more comes; `error`: why not all was drawn."""
        with self._change:
            self._over, self._error = True, error
            self._tell(self._something, self._much)

    def _tell(self, *events: asyncio.Event) -> None:
        for event in events:
            if not event.is_set():
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(event.set)

    @property
    def _is_full(self) -> bool:
        if self._steps.size >= WAITING_BYTES:
            self._steps.compact()
        return self._steps.size >= WAITING_BYTES

    # ---- in the loop

    async def batches(self) -> AsyncGenerator[list[CellOp], None]:
        while True:
            await self._something.wait()
            with self._change:
                ops, over = self._steps.take(), self._over
                self._something.clear()
                self._much.clear()
                self._change.notify()
            if ops:
                yield ops
            if over:
                break
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._much.wait(), BATCH_INTERVAL_S)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify()


class _StepsOutput(CellOutput):
    """Draws into a handover."""

    def __init__(self, handover: _Handover, card: Card, card_id: str, **how: Any) -> None:
        super().__init__(card, card_id, **how)
        self._handover = handover

    def _add(self, op: CellOp) -> None:
        self._handover.put(op)

    def draw_card(self, *, final: bool = False) -> None:
        assert self.card is not None
        self._add(CellOp(op="card", data=self.card.mimebundle(now_us())))


class _Drawing:
    """The thread that draws."""

    def __init__(self, query: CellQuery, connect: Callable[[], ApiClient], handover: _Handover) -> None:
        self._query = query
        self._connect = connect
        self._handover = handover
        self._follower: Follower | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpucluster-redraw", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, wherever it waits. Returns at once."""
        self._stopped.set()
        self._handover.close()
        follower = self._follower
        if follower is not None:
            follower.close()

    def _run(self) -> None:
        try:
            saved = _saved(self._query.card)
            with self._connect() as client:
                self._draw(client, saved)
        except _Left:
            return
        except Exception as error:  # raised where somebody sees it: by `batches`
            self._handover.finish(error)
        else:
            self._handover.finish()

    def _draw(self, client: ApiClient, saved: SavedCard) -> None:
        drawing = self._query.drawing or CellDrawing()
        drawer: Drawer | None = None
        with client.follow(self._query.job_id, drawing.rank) as follower:
            self._follower = follower
            if self._stopped.is_set():  # stop() came between: it did not see the follower
                return
            for item in follower:
                if drawer is None and item.job is not None:
                    drawer = self._begin(client, item.job, drawing, saved)
                if drawer is not None:
                    drawer.take(item)
                    drawer.tick()
        if drawer is not None and drawer.ended:
            self._end(client, drawer)

    def _begin(self, client: ApiClient, job: JobView, drawing: CellDrawing, saved: SavedCard) -> Drawer:
        """The card, and below it what the kernel said of the submission."""
        drawing = msgspec.structs.replace(
            drawing, complete=False, display_prefix=drawing.display_prefix or job.id
        )
        if self._query.drawing is None:
            drawing.fills_cell, drawing.execution_count = job.fills_cell, job.execution_count
        card = Card(
            title=job.name,
            simulated=connection.is_simulated(client),
            notes=saved.notes,
            warnings=saved.warnings,
            limits=saved.limits,
            sent=saved.sent,
            drawing=drawing,
            hints=[*gang_hints(job, drawing.rank), *_binding_hints(job)],
        )
        card.update(job)
        output = _StepsOutput(
            self._handover,
            card,
            drawing.display_prefix,
            show_result=drawing.show_result,
            inert=not job.mine,
        )
        limits = Limits(text_bytes=drawing.text_bytes, display_bytes=drawing.display_bytes)
        drawer = Drawer(client, job, output, rank=drawing.rank, limits=limits)
        drawer.draw_card()
        drawer.warn()
        return drawer

    def _end(self, client: ApiClient, drawer: Drawer) -> None:
        """As the kernel ends a cell, but that no name is bound."""
        job = drawer.finish()
        drawer.card.hints = gang_hints(job, drawer.card.drawing.rank)
        left = result_of(client, job.id, drawer.card.drawing.rank)
        manifest = left.result if left is not None else None
        if manifest is not None and job.mine:
            self._tell_names(drawer, manifest)
        elif manifest is not None and job.state == "succeeded":
            drawer.tell_unbound(manifest.names)
        if job.state != "succeeded":
            error = error_output(drawer.failure())
            self._handover.put(
                CellOp(op="error", ename=error.ename, evalue=error.evalue, traceback=error.traceback)
            )
        drawer.complete()
        self._handover.put(CellOp(op="done"))

    @staticmethod
    def _tell_names(drawer: Drawer, manifest: ResultManifest) -> None:
        if manifest.names:
            drawer.card.hints.append(f"%attach {drawer.job.number} binds these names here")
        told = Bound(
            bound=manifest.names,
            changed=manifest.changed,
            missing=manifest.missing,
            notes=manifest.notes,
            deleted=manifest.deleted,
        )
        drawer.tell_bound(told, manifest)


def _binding_hints(job: JobView) -> list[str]:
    """While it is not known what the job leaves: that whoever draws here will not bind it."""
    if job.state in describe.ENDED or not job.mine:
        return []
    return [f"drawn from the log: %attach {job.number} comes back, and binds the names that it leaves"]


def _saved(card: dict[str, Any] | None) -> SavedCard:
    """Raises InvalidRequest."""
    try:
        return msgspec.convert(card or {}, SavedCard)
    except msgspec.ValidationError as error:
        wrong = invalid_input(error)
        raise InvalidRequest(f"cell.card.{wrong.field}", wrong.reason, wrong.hint) from None


def _encoded(op: CellOp) -> bytes:
    try:
        return msgspec.json.encode(op)
    except (
        UnicodeEncodeError
    ):  # half of a surrogate pair in what a job displayed; JSON can name it, UTF-8 cannot
        return json.dumps(msgspec.to_builtins(op)).encode("ascii")
