"""What a page follows, as it is now: `GET /v1/live` (schemas.LiveUpdate).

Events say only *what* to look at anew; what is sent is read from the books at that moment, each thing whole. So a follower
that was cut off needs nothing but the number of the newest event that it has seen, events that undo each other cost one
view, and whoever is slow gets fewer updates, never late ones. The first change is sent at once, further ones gathered.

A follower is shown nothing that is not in the store yet, and of jobs that it may not see nothing but the room that they take.
Where nothing tells of a change (a waiting job's place, measured use, the notes), it is looked at from time to time.
"""

from __future__ import annotations

import dataclasses
import time
from asyncio import sleep
from collections.abc import AsyncIterator

import msgspec

from ..model.errors import Unavailable
from ..model.principals import Principal
from .feed import Resync, Signal
from .live_changes import Changes, Line, Sent, encode
from .live_jobs import LiveJobs
from .live_source import LiveSource
from .schemas import TOPICS, LiveStatus, Topic

#: The first change is sent at once, further ones at least so far apart.
MIN_INTERVAL_S = 0.1
HEARTBEAT_S = 10.0
#: What no event tells of is looked at: watched jobs so soon after any event, and everything after so long without one.
LOOK_S = 1.0
IDLE_LOOK_S = 5.0
#: A follower this far behind gets everything instead of what changed.
MAX_BEHIND = 5000


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveQuery:
    """What a page follows. `have`: those topics that it has as of `after`. `jobs`: ids that it watches, whatever the topics."""

    after: int | None = None
    topics: frozenset[Topic] = frozenset()
    have: frozenset[Topic] = frozenset()
    jobs: tuple[str, ...] = ()


class Follower:
    """One page's stream. `lines` gives encoded LiveUpdates, one a line, and does not end by itself."""

    def __init__(self, source: LiveSource, caller: Principal, query: LiveQuery) -> None:
        self._source = source
        self._caller = caller
        self._query = query
        self._sent = Sent()
        self._jobs = LiveJobs(source, caller, query.topics, query.jobs, self._sent)
        self._changes = Changes(is_anew=True)
        self._seq = 0
        self._status: LiveStatus | None = None
        self._has_passed = False  # any event since the last look
        self._is_in_trouble = False  # the store did not answer at the last try
        self._looked_s = 0.0
        self._sent_s = 0.0

    async def lines(self) -> AsyncIterator[bytes]:
        """Raises Unavailable before the first line only: later trouble is told in the status, and waited out."""
        with self._source.feed.watch() as signal:
            self._begin()
            await self._read_on()
            yield self._encoded(await self._update(look=True))
            while True:
                await sleep(MIN_INTERVAL_S)
                await self._next_occasion(signal)
                line = await self._what_is_new()
                if line is not None:
                    yield self._encoded(line)

    # ---- when

    def _begin(self) -> None:
        """Where to go on from, and what to send in full."""
        query, last = self._query, self._source.feed.last_seq
        can_go_on = query.after is not None and self._source.began_seq < query.after <= last
        if query.after is not None and can_go_on and last - query.after <= MAX_BEHIND:
            self._seq = query.after
            self._changes.full.update(query.topics - query.have)
        else:
            self._seq = last
            self._changes.everything(query.topics)

    async def _next_occasion(self, signal: Signal) -> None:
        """An event, or the time to look again or to say that we are here."""
        due_s = min(self._due_to_look_s(), self._sent_s + HEARTBEAT_S)
        await signal.wait(max(0.0, due_s - time.monotonic()))

    def _due_to_look_s(self) -> float:
        """Soon after an event for those who watch jobs: a place in the queue changes with what others do."""
        is_soon = self._is_in_trouble or (self._has_passed and self._jobs.is_watching)
        return self._looked_s + (LOOK_S if is_soon else IDLE_LOOK_S)

    async def _read_on(self) -> None:
        """Gather what the events up to now have changed. Raises Unavailable; what was read until then is kept."""
        try:
            while events := await self._source.feed.read(self._seq):
                self._changes.add(events)
                self._seq = events[-1].seq
        except Resync as gone:
            self._seq = gone.seq
            self._changes.everything(self._query.topics)
        self._has_passed |= self._changes.any

    async def _what_is_new(self) -> Line | None:
        try:
            await self._read_on()
            look = time.monotonic() >= self._due_to_look_s()
            line = await self._update(look) if look or self._changes.any else None
        except Unavailable as error:
            line = self._trouble(error)
        if line is not None and not line.is_empty:
            return line
        if time.monotonic() - self._sent_s >= HEARTBEAT_S:
            return Line(type="alive", seq=self._seq, time_us=self._source.now_us())
        return None

    def _encoded(self, line: Line) -> bytes:
        self._sent_s = time.monotonic()
        return encode(line) + b"\n"

    # ---- what

    async def _update(self, look: bool) -> Line:
        """All that changed. `look`: also what no event tells of. Raises Unavailable; then no change is lost."""
        source, changes = self._source, self._changes
        line = Line(type="update", seq=self._seq, time_us=0)
        line.full = [topic for topic in TOPICS if topic in changes.full]
        try:
            await self._jobs.add_to(line, changes, look=look)
            await source.settle()
        except BaseException:
            self._sent.roll_back()
            raise
        # From here on nothing is awaited: what is read is of one moment.
        if changes.books or line.full:
            self._add_queues(line)
        self._add_nodes(line, changes, look)
        if "status" in self._query.topics:
            self._set_status(line, source.views.status(self._caller, source.notes()))
        line.time_us = source.now_us()
        self._sent.commit()
        self._changes, self._is_in_trouble = Changes(), False
        if look:
            self._looked_s, self._has_passed = time.monotonic(), False
        return line

    def _trouble(self, error: Unavailable) -> Line:
        """The store is away: the status says so, with the figures as they were last known. It is tried again soon."""
        self._looked_s, self._is_in_trouble = time.monotonic(), True
        line = Line(type="update", seq=self._seq, time_us=self._source.now_us())
        if self._status is not None:
            notes = list(dict.fromkeys([*self._source.notes(), error.reason]))
            self._set_status(line, msgspec.structs.replace(self._status, notes=notes))
        return line

    def _set_status(self, line: Line, status: LiveStatus) -> None:
        if status != self._status or "status" in line.full:
            self._status = status
            line.status = msgspec.Raw(encode(status))

    def _add_queues(self, line: Line) -> None:
        """Those that differ: what lies idle is free for many of them at once, so events do not name them all."""
        if "queues" not in self._query.topics:
            return
        for view in self._source.views.queues(self._caller):
            encoded = encode(view)
            if self._sent.note(("queue", view.name), encoded) or "queues" in line.full:
                line.queues.append(msgspec.Raw(encoded))

    def _add_nodes(self, line: Line, changes: Changes, look: bool) -> None:
        if "nodes" not in self._query.topics:
            return
        nodes = self._source.state.nodes
        is_full = "nodes" in line.full
        for name in nodes if is_full else self._nodes_to_look_at(changes, look):
            if name not in nodes:
                line.nodes_gone.append(name)
                continue
            encoded = encode(self._source.views.node(nodes[name], self._caller))
            if self._sent.note(("node", name), encoded) or is_full:
                line.nodes.append(msgspec.Raw(encoded))

    def _nodes_to_look_at(self, changes: Changes, look: bool) -> dict[str, None]:
        """Those that events name, those of jobs of which it changed who may know them, and those that are measured."""
        state = self._source.state
        names = dict(changes.nodes)
        for job_id in changes.shares:
            job = state.jobs.get(job_id)
            if job is not None and job.attempt is not None:
                names.update(dict.fromkeys(placement.node for placement in job.attempt.placements))
        if look:
            nodes = state.nodes.items()
            names.update((name, None) for name, node in nodes if not all(gpu.simulated for gpu in node.gpus))
        return names
