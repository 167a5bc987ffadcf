from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from gpucluster.api.feed import MAX_BEHIND, READ_BYTES, READ_LIMIT, EventFeed, Resync
from gpucluster.model.events import PublishedEvent


def event(seq: int, job: str | None = None) -> PublishedEvent:
    return PublishedEvent(seq=seq, time_us=0, kind="job.state", data={}, job_id=job)


class Store:
    """Events that are stored: from `oldest` on."""

    def __init__(self, oldest: int = 1) -> None:
        self.oldest = oldest
        self.last = 0
        self.reads = 0

    async def read(self, after: int, limit: int) -> Sequence[PublishedEvent]:
        self.reads += 1
        first = max(after + 1, self.oldest)
        return [event(seq) for seq in range(first, min(first + limit, self.last + 1))]


def feed_with(count: int, ring: int = 10, store: Store | None = None) -> tuple[EventFeed, Store]:
    store = store or Store()
    feed = EventFeed(0, store.read, ring_size=ring)
    for seq in range(1, count + 1):
        store.last = seq
        feed.publish([event(seq)])
    return feed, store


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 10))


def test_newest_events_come_from_memory() -> None:
    feed, store = feed_with(30)
    assert [e.seq for e in run(feed.read(25))] == [26, 27, 28, 29, 30]
    assert [e.seq for e in run(feed.read(20))] == list(range(21, 31))
    assert store.reads == 0


def test_older_events_come_from_the_store_then_from_memory() -> None:
    feed, store = feed_with(2000)
    seen: list[int] = []
    while events := run(feed.read(seen[-1] if seen else 0)):
        assert len(events) <= READ_LIMIT
        seen += [e.seq for e in events]
    assert seen == list(range(1, 2001))
    assert store.reads


@pytest.mark.parametrize("after", [-1, 31, 10_000])
def test_number_that_never_was_means_resync(after: int) -> None:
    feed, _ = feed_with(30)
    with pytest.raises(Resync) as gone:
        run(feed.read(after))
    assert gone.value.seq == 30


def test_events_that_retention_took_mean_resync() -> None:
    feed, _ = feed_with(30, store=Store(oldest=15))
    with pytest.raises(Resync):
        run(feed.read(5))
    assert next(e.seq for e in run(feed.read(14))) == 15


def test_who_is_too_far_behind_takes_a_snapshot_instead_of_all() -> None:
    feed = EventFeed(MAX_BEHIND + 10, Store().read)
    with pytest.raises(Resync):
        run(feed.read(1))


def test_long_events_are_bounded_by_their_bytes() -> None:
    store = Store()
    feed = EventFeed(0, store.read, ring_bytes=4 * READ_BYTES)
    for seq in range(1, 201):
        store.last = seq
        data = {"description": "x" * 100_000}
        feed.publish([PublishedEvent(seq=seq, time_us=0, kind="job.progress", data=data)])
    held = [event for event, _ in feed._ring]
    assert 35 <= len(held) <= 42, "four MiB of 100 kB"
    batch = run(feed.read(held[0].seq - 1))
    assert 9 <= len(batch) <= 10
    assert store.reads == 0
    assert [e.seq for e in run(feed.read(1))][:2] == [2, 3], "older ones come from the store"


def test_event_longer_than_all_that_may_be_read_at_once_is_given_alone() -> None:
    feed = EventFeed(0, Store().read)
    for seq in (1, 2):
        feed.publish([PublishedEvent(seq=seq, time_us=0, kind="x", data={"t": "x" * 3 * READ_BYTES})])
    assert [e.seq for e in run(feed.read(0))] == [1]
    assert [e.seq for e in run(feed.read(1))] == [2]


def test_follower_is_woken_by_events_and_by_the_heartbeat() -> None:
    async def follow() -> list[list[int]]:
        feed, _ = feed_with(3)
        batches = []
        follower = feed.follow(1, heartbeat_s=0.01)
        batches.append([e.seq for e in await anext(follower)])
        batches.append([e.seq for e in await anext(follower)])  # nothing for a heartbeat
        feed.publish([event(4), event(5)])
        batches.append([e.seq for e in await anext(follower)])
        await follower.aclose()
        return batches

    assert run(follow()) == [[2, 3], [], [4, 5]]


def test_event_between_reading_and_waiting_is_not_missed() -> None:
    async def work() -> list[int]:
        feed, _ = feed_with(1)
        with feed.watch() as signal:
            assert await feed.read(1) == ()
            feed.publish([event(2)])
            assert await signal.wait(10)
            return [e.seq for e in await feed.read(1)]

    assert run(work()) == [2]


def test_watch_of_a_job_is_woken_by_its_events_alone_and_leaves_nothing() -> None:
    async def work() -> tuple[bool, bool]:
        feed, _ = feed_with(0)
        with feed.watch("mine") as signal:
            feed.publish([event(1, "other")])
            other = await signal.wait(0.01)
            feed.publish([event(2, "mine")])
            mine = await signal.wait(0.01)
        assert not feed._job_signals
        return other, mine

    assert run(work()) == (False, True)
