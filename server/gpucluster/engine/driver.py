"""The live loop around the pure engine: events in, one step, one commit, then answers, instructions and followers.

The order is the promise (DESIGN section 7): nothing of a step is acted on or acknowledged before it is in the store.
When a commit fails, the in-memory engine is thrown away and rebuilt from the store, the same code as after a restart:
requests are answered with the error, what the world told is kept and handled again.

What is read of `engine` between two awaits after `settled()` is committed; without it, a step may be in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..model.errors import GpuclusterError, Unavailable
from ..model.events import PublishedEvent
from ..model.jobs import HOLDING_STATES, TASK_ENDED, Job
from ..model.topology import Node
from .core import Engine, StepResult
from .events import EngineEvent, TaskStartFailed, TimerFired
from .instructions import GiveUpNode, Instruction, StartTask, StopTask
from .protocols import Backend, Clock, Journal, OrderFactory, Recovered, TaskAdoption

Listener = Callable[[Sequence[PublishedEvent]], None]
_Entry = tuple[EngineEvent, "asyncio.Future[None] | None"]

#: Pause after a failed commit before what the world told is tried again, in seconds: doubles from the first to the last.
RETRY_FIRST_S = 0.1
RETRY_LAST_S = 5.0
#: How long a reader waits for a commit at most.
SETTLE_S = 10.0
#: How long a refused request may wait for the engine to be rebuilt.
ANSWER_S = 1.0
#: At most this many events are handled in one step, so that one commit stays short.
BATCH_LIMIT = 1000


class EngineDriver:
    """Owns the engine and is the only one that steps it. Everything here runs on one event loop.

    `new_engine(nodes)` builds an empty engine for these nodes. `engine` is the present one: read it, never step it, and
    do not keep a reference over an await (a failed commit replaces it).
    """

    def __init__(
        self,
        *,
        new_engine: Callable[[Sequence[Node]], Engine],
        journal: Journal,
        backend: Backend,
        clock: Clock,
        make_order: OrderFactory,
        log: logging.Logger,
    ) -> None:
        self._new_engine = new_engine
        self._journal = journal
        self._backend = backend
        self._clock = clock
        self._make_order = make_order
        self._log = log
        self._inbox: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._wake_timer: asyncio.TimerHandle | None = None
        self._listeners: list[Listener] = []
        self._journal_thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._loop_task: asyncio.Task[None] | None = None
        self._parked: deque[_Entry] = deque()
        self._retry_s = RETRY_FIRST_S
        self._retry_timer: asyncio.TimerHandle | None = None
        self._is_retry_due = False
        self._is_settled = True
        self._readers: list[asyncio.Future[None]] = []
        self._last_seq = 0
        self._closing = False
        self.engine: Engine
        #: Called with a sentence when the loop has failed and nothing is handled any more.
        self.on_fault: Callable[[str], None] | None = None
        #: Why the store does not take commits at present, for status; None when all is well.
        self.trouble: str | None = None

    # ---- what the service calls

    async def start(self) -> None:
        """Bring up the backend, rebuild the engine from the store, adopt what runs, then serve events."""
        nodes = await self._backend.open(self.post)
        recovered = await self._on_journal_thread(self._journal.recover)
        self.engine = self._new_engine(nodes)
        self.engine.recover(recovered)
        self._last_seq = self.engine.last_seq
        await self._backend.adopt(adoptions(recovered))
        self.post(TimerFired())
        self._loop_task = asyncio.create_task(self._run(), name="engine")
        self._loop_task.add_done_callback(self._loop_ended)

    async def submit(self, event: EngineEvent) -> None:
        """Hand in an event and wait until it is committed. Raises the GpuclusterError that it was refused with."""
        if self._closing:
            raise _stopping()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox.append((event, future))
        self._wake.set()
        await asyncio.shield(future)

    def post(self, event: EngineEvent) -> None:
        """Hand in an event of the world. It is never refused and never lost while this process lives."""
        self._inbox.append((event, None))
        self._wake.set()

    async def settled(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until the engine's state is what the store holds. What is read before the next await is then committed.

        Raises Unavailable when the store takes longer than `timeout_s` over a commit.
        """
        if self._is_settled:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._readers.append(waiter)
        # Awaited itself: through wait_for the reader would wake one turn of the loop later, when the next step has begun.
        timer = loop.call_later(timeout_s, _too_late, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """`listener` gets the published events after each commit, in order. Returns what removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest committed event."""
        return self._last_seq

    async def close(self) -> None:
        """Finish the step in hand, then let go of the backend; tasks stay with their supervisors."""
        self._closing = True
        self._wake.set()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
        for timer in (self._wake_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        self._refuse_waiting(_stopping())
        await self._backend.close()
        self._journal_thread.shutdown()

    # ---- the loop

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (self._inbox or self._is_retry_due) and not self._closing:
                if self._is_retry_due:
                    await self._retry_parked()
                    await self._let_readers_in()
                batch = [self._inbox.popleft() for _ in range(min(BATCH_LIMIT, len(self._inbox)))]
                if batch:
                    await self._handle(batch)
                await self._let_readers_in()
            if self._closing:
                return

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """The loop ends only when it is told to. Should it fail, nobody may go on waiting for it."""
        if task.cancelled() or task.exception() is None:
            return
        self._closing = True
        self.trouble = f"the engine has stopped: {task.exception()!r}"
        self._log.critical("the engine has stopped", exc_info=task.exception())
        self._refuse_waiting(
            Unavailable("the scheduler has stopped after a fault of its own; its log tells more")
        )
        if self.on_fault is not None:
            self.on_fault(self.trouble)

    async def _handle(self, batch: list[_Entry]) -> None:
        self._is_settled = False
        try:
            result = self.engine.step(self._clock.now_us(), [event for event, _ in batch])
        except Exception:
            self._log.exception("a step of the engine failed; rebuilding from the store")
            await self._isolate(batch)
            return
        await self._commit(batch, result)

    async def _isolate(self, batch: list[_Entry]) -> None:
        """After a fault inside a step: rebuild, then one event at a time, to find the one that cannot be handled."""
        await self._rebuild()
        if len(batch) > 1:
            for entry in batch:
                await self._handle([entry])
            return
        event, future = batch[0]
        self._log.error("cannot handle the event %r", event)
        self.trouble = "the scheduler met a fault of its own; its log tells more"
        if future is None:
            self._park(batch[0])
        elif not future.done():
            future.set_exception(
                GpuclusterError("the scheduler could not handle this request; its log tells more")
            )

    async def _commit(self, batch: list[_Entry], result: StepResult) -> None:
        if not result.changes.is_empty:
            try:
                await self._on_journal_thread(self._journal.commit, result.changes)
            except GpuclusterError as error:
                await self._commit_failed(batch, error)
                return
            except Exception as error:
                self._log.exception("the store failed in an unforeseen way")
                await self._commit_failed(batch, Unavailable(f"the store failed: {error}"))
                return
            if not self._parked:
                self.trouble = None
        self._last_seq = self.engine.last_seq
        self._is_settled = True
        refused = {id(event): error for event, error in result.refused}
        for event, future in batch:
            if future is None or future.done():
                continue
            refusal = refused.get(id(event))
            if refusal is None:
                future.set_result(None)
            else:
                future.set_exception(refusal)
        for instruction in result.instructions:
            await self._carry_out(instruction)
        self._notify(result.changes.events)
        self._wake_at(result.wake_at_us)

    async def _commit_failed(self, batch: list[_Entry], error: GpuclusterError) -> None:
        if self.trouble is None:
            self._log.error("the store does not take commits: %s", error)
        self.trouble = str(error)
        for entry in batch:
            if entry[1] is None:
                self._park(entry)
        # Who asked is answered once the engine is as before, so that nobody sees what was refused; but not later than this.
        rebuild = asyncio.create_task(self._rebuild())
        await asyncio.wait([rebuild], timeout=ANSWER_S)
        for _, future in batch:
            if future is not None and not future.done():
                future.set_exception(error)
        await rebuild

    # ---- what the world told and could not be stored or handled yet

    def _park(self, entry: _Entry) -> None:
        """Keep an event of the world for later, without holding up the others."""
        if isinstance(entry[0], TimerFired) and any(
            isinstance(event, TimerFired) for event, _ in self._parked
        ):
            return
        self._parked.append(entry)
        if self._retry_timer is None:
            self._retry_timer = asyncio.get_running_loop().call_later(self._retry_s, self._retry_now)
            self._retry_s = min(RETRY_LAST_S, self._retry_s * 2)

    def _retry_now(self) -> None:
        self._retry_timer = None
        self._is_retry_due = True
        self._wake.set()

    async def _retry_parked(self) -> None:
        """One at a time, up to the first that fails again. That one goes to the end, so it does not block the others."""
        self._is_retry_due = False
        for _ in range(len(self._parked)):
            entry = self._parked.popleft()
            await self._handle([entry])
            if self._parked and self._parked[-1] is entry:
                return
        if not self._parked:
            self._retry_s, self.trouble = RETRY_FIRST_S, None

    async def _rebuild(self) -> None:
        """Back to what the store says. Reads may fail as well while the store is in trouble: tried until they do not."""
        nodes = list(self.engine.state.reported.values())
        pause_s = RETRY_FIRST_S
        while True:
            try:
                recovered = await self._on_journal_thread(self._journal.recover)
                break
            except Exception as error:
                self.trouble = str(error)
                self._log.error("cannot read the store: %s", error)
                if self._closing:
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_LAST_S, pause_s * 2)
        engine = self._new_engine(nodes)
        engine.recover(recovered)
        self.engine = engine
        self._is_settled = True
        # A commit may be durable although it reported a failure: what its instructions would have started is asked after.
        # The backend leaves alone what it follows already.
        await self._backend.adopt(adoptions(recovered))
        # The first step repeats what a lost one would have asked for (stops of attempts that are being stopped).
        self._park((TimerFired(), None))

    # ---- outwards

    async def _let_readers_in(self) -> None:
        """Whoever waits for a committed state reads before the next step begins."""
        if not self._is_settled or not self._readers:
            return
        for waiter in self._readers:
            if not waiter.done():
                waiter.set_result(None)
        self._readers.clear()
        await asyncio.sleep(0)

    def _refuse_waiting(self, error: GpuclusterError) -> None:
        waiting = [future for _, future in self._inbox if future is not None] + self._readers
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        self._readers.clear()

    async def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, StartTask):
            try:
                await self._backend.start(self._make_order(instruction))
            except Exception as error:
                self._log.exception("the backend could not take a task")
                rank = instruction.placement.rank
                self.post(
                    TaskStartFailed(
                        instruction.attempt_id, rank, f"could not be handed to its node: {error}", True
                    )
                )
        elif isinstance(instruction, StopTask):
            try:
                await self._backend.stop(instruction)
            except Exception:
                # The stop stands in the store; the engine asks again when its deadline has passed.
                self._log.exception("the backend could not take a stop")
        elif isinstance(instruction, GiveUpNode):
            try:
                await self._backend.give_up(instruction.node)
            except Exception:
                self._log.exception("the backend could not give up %s; it is asked again", instruction.node)

    def _notify(self, events: Sequence[PublishedEvent]) -> None:
        if not events:
            return
        for listener in list(self._listeners):
            try:
                listener(events)
            except Exception:
                self._log.exception("a follower of events failed")

    def _wake_at(self, time_us: int | None) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        if time_us is not None:
            delay_s = max(0.0, (time_us - self._clock.now_us()) / 1e6)
            self._wake_timer = asyncio.get_running_loop().call_later(delay_s, self.post, TimerFired())

    async def _on_journal_thread(self, function: Callable, *args: object):  # type: ignore[no-untyped-def, type-arg]
        return await asyncio.get_running_loop().run_in_executor(self._journal_thread, function, *args)


def _stopping() -> Unavailable:
    return Unavailable("the scheduler is stopping", hint="Try again in a few seconds.")


def _too_late(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        hint = "Try again in a few seconds."
        waiter.set_exception(Unavailable("the store has not answered for a while", hint=hint))


def adoptions(recovered: Recovered) -> list[TaskAdoption]:
    """The tasks that may be on nodes: those of active attempts that were not seen to end."""
    return [
        TaskAdoption(
            job_id=job.id,
            attempt_id=job.attempt.id,
            placement=task.placement,
            reported_us=_reported_us(job, task.rank),
        )
        for job in recovered.jobs
        if job.state in HOLDING_STATES and job.attempt is not None
        for task in job.attempt.tasks
        if task.state not in TASK_ENDED
    ]


def _reported_us(job: Job, rank: int) -> int:
    """Up to when this task's step reports are in the store: the job keeps the newest of the rank that reports."""
    progress = job.progress
    return progress.time_us if progress is not None and progress.rank == rank else 0
