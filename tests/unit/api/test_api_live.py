"""The live stream on an engine of its own: what a line holds, and when there is one (api/live.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest
from support.engine_bench import ALICE, BOB, ENCODER, Bench, gpu_queue, make_node
from support.live_page import LivePage

from gpucluster.api import live, live_jobs
from gpucluster.api.feed import EventFeed
from gpucluster.api.live import Follower, LiveQuery
from gpucluster.api.live_changes import Line
from gpucluster.api.live_source import LiveSource
from gpucluster.api.schemas import TOPICS, LiveUpdate, Topic
from gpucluster.api.usage import UsageWatch
from gpucluster.api.views import Views
from gpucluster.api.visibility import Visibility
from gpucluster.engine.events import EndedJobShared, EngineEvent, ShareChanged, StepReported
from gpucluster.model.errors import Unavailable
from gpucluster.model.events import PublishedEvent
from gpucluster.model.jobs import Job, Progress, Share
from gpucluster.model.principals import Principal
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import Gpu
from gpucluster.nodes.usage import GpuUsage

T = TypeVar("T")
GUEST = Principal(issuer="unix", subject="1002", name="guest")
CLOSED = QueueSpec(name="closed", submit_users=("alice",))


class Usage(UsageWatch):
    """Measured by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.gpus: dict[str, int] = {}

    def gpu(self, uuid: str) -> GpuUsage | None:
        percent = self.gpus.get(uuid)
        return GpuUsage(utilization_percent=percent, memory_used_bytes=0) if percent is not None else None


class Cluster(Bench):
    """An engine whose events go to a feed, with what a service puts around them."""

    def __init__(self, simulated: bool = True, ring_size: int = 1000) -> None:
        node = make_node("n0", 8)
        gpus: list[Gpu] = [msgspec.structs.replace(gpu, simulated=simulated) for gpu in node.gpus]
        nodes = [msgspec.structs.replace(node, gpus=tuple(gpus), simulated=simulated)]
        self.feed = EventFeed(0, self._no_older, ring_size=ring_size)
        self.trouble: Unavailable | None = None
        self.before_settled: Callable[[], None] = lambda: None
        self.usage = Usage()
        self.notes: list[str] = []
        super().__init__([gpu_queue("open", 6), CLOSED], nodes)
        visibility = Visibility(lambda name: self.engine.state.tree.queues[name].spec)
        self.views = Views(
            engine=lambda: self.engine,
            now_us=lambda: self.now_us,
            last_seq=lambda: self.feed.last_seq,
            visibility=visibility,
            usage=self.usage,
            task_notes=dict,
            cluster="test",
            levels=("gpu", "node", "cluster"),
        )
        parts: Any = SimpleNamespace(engine=self.engine, settled=self._settled)
        store: Any = SimpleNamespace(newest_ids=self._newest_ids, jobs_by_id=self._jobs_by_id)
        self.source = LiveSource(
            driver=parts,
            store=store,
            feed=self.feed,
            views=self.views,
            visibility=visibility,
            notes=lambda: self.notes,
            now_us=lambda: self.now_us,
        )
        self.source.began_seq = 0

    def step(self, *events: EngineEvent, after_s: float = 0.0) -> Any:
        result = super().step(*events, after_s=after_s)
        self.source.ended.forget(result.changes.events)
        self.feed.publish(result.changes.events)
        return result

    def submit(self, queue: str = "open", gpus: int = 1, tasks: int = 1, **more: Any) -> str:
        return super().submit(queue, gpus, tasks, **more)

    def report(self, job_id: str, step: int) -> None:
        self.step(StepReported(self.attempt_id(job_id), Progress(step=step, time_us=self.now_us)), after_s=2)

    async def _settled(self, timeout_s: float) -> None:
        self.before_settled()
        if self.trouble is not None:
            raise self.trouble

    @staticmethod
    async def _no_older(after: int, limit: int) -> Sequence[PublishedEvent]:
        return ()

    def _newest_ids(
        self,
        limit: int,
        *,
        owner: str,
        queues: Collection[str],
        shares: Collection[Share],
        count_at_most: int,
    ) -> tuple[list[str], int]:
        jobs = sorted(self.store.jobs(), key=lambda job: -job.number)
        found = [
            job.id
            for job in jobs
            if job.owner.id == owner or job.spec.queue in queues or job.spec.share in shares
        ]
        return found[:limit], min(len(found), count_at_most)

    def _jobs_by_id(self, job_ids: Collection[str]) -> list[Job]:
        known = {job.id for job in self.store.jobs()}
        return [self.store.job(job_id) for job_id in job_ids if job_id in known]


class Stream:
    """What one follower gets, line by line."""

    def __init__(self, cluster: Cluster, caller: Principal = ALICE, *topics: Topic, **query: Any) -> None:
        wanted = LiveQuery(topics=frozenset(topics), **query)
        self._lines: AsyncIterator[bytes] = Follower(cluster.source, caller, wanted).lines()
        self.page = LivePage()

    async def next(self) -> LiveUpdate:
        line = await asyncio.wait_for(anext(self._lines), 30)
        update = msgspec.json.decode(line, type=LiveUpdate)
        self.page.take(update)
        return update

    async def next_update(self) -> LiveUpdate:
        while True:
            update = await self.next()
            if update.type == "update":
                return update


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(main())


def names(update: LiveUpdate) -> list[str]:
    return [job.id for job in update.jobs]


def test_line_has_the_fields_of_an_update() -> None:
    assert Line.__struct_fields__ == LiveUpdate.__struct_fields__


def test_first_line_has_everything_and_a_later_one_each_thing_once_as_it_is() -> None:
    async def work() -> None:
        cluster = Cluster()
        one = cluster.submit(gpus=2)
        stream = Stream(cluster, ALICE, *TOPICS)
        first = await stream.next()
        assert (first.full, names(first), first.jobs[0].state) == (list(TOPICS), [one], "starting")
        assert first.status is not None
        assert (first.status.gpus_used, first.status.my_running) == (2, 1)
        cluster.start(one)
        cluster.report(one, 3)
        two = cluster.submit(gpus=1)
        cluster.end(two)
        second = await stream.next_update()
        assert second.full == []
        assert [(job.id, job.state) for job in second.jobs] == [(two, "succeeded"), (one, "running")]
        assert second.jobs[1].progress is not None
        assert second.progress == [], "it stands in the view"
        assert [node.name for node in second.nodes] == [], "two took a GPU and gave it back"
        assert second.seq == cluster.feed.last_seq
        cluster.report(one, 4)
        third = await stream.next_update()
        assert [(told.job_id, told.progress.step) for told in third.progress] == [(one, 4)]
        assert (third.jobs, third.queues, third.nodes, third.status) == ([], [], [], None)

    run(work())


def test_queues_that_an_event_does_not_name_are_sent_when_what_is_free_for_them_changes() -> None:
    async def work() -> None:
        cluster = Cluster()
        stream = Stream(cluster, ALICE, "queues")
        await stream.next()
        assert stream.page.queues["open"].free_until_reclaimed["gpu"] == 2000
        cluster.submit("closed", gpus=2)
        update = await stream.next_update()
        assert {queue.name for queue in update.queues} == {"root", "open", "closed"}
        assert stream.page.queues["open"].free_until_reclaimed["gpu"] == 0

    run(work())


def test_page_that_has_something_gets_what_changed_since() -> None:
    async def work() -> None:
        cluster = Cluster()
        one, two = cluster.submit(), cluster.submit()
        after = cluster.feed.last_seq
        cluster.start(two)
        stream = Stream(cluster, ALICE, "jobs", "nodes", after=after, have=frozenset({"jobs"}))
        first = await stream.next()
        assert (first.full, names(first)) == (["nodes"], [two])
        stream = Stream(
            cluster, ALICE, "jobs", after=cluster.feed.last_seq, have=frozenset({"jobs"}), jobs=(one,)
        )
        assert names(await stream.next()) == [one], "what is watched comes in any case"

    run(work())


@pytest.mark.parametrize("after", [None, 0, 10_000])
def test_number_that_nothing_can_be_told_from_is_answered_with_everything(after: int | None) -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.submit()
        stream = Stream(cluster, ALICE, *TOPICS, after=after, have=frozenset(TOPICS if after else ()))
        assert (await stream.next()).full == list(TOPICS)

    run(work())


def test_number_of_an_earlier_process_is_answered_with_everything_since_its_queues_may_differ() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.submit()
        cluster.source.began_seq = cluster.feed.last_seq
        stream = Stream(cluster, ALICE, "queues", after=cluster.feed.last_seq, have=frozenset({"queues"}))
        assert (await stream.next()).full == ["queues"]

    run(work())


def test_follower_far_behind_gets_everything_instead_of_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_BEHIND", 3)

    async def work() -> None:
        cluster = Cluster()
        job = cluster.submit()
        near = cluster.feed.last_seq
        cluster.start(job)
        stream = Stream(cluster, ALICE, "jobs", after=near, have=frozenset({"jobs"}))
        assert (await stream.next()).full == []
        stream = Stream(cluster, ALICE, "jobs", after=1, have=frozenset({"jobs"}))
        assert (await stream.next()).full == ["jobs"]

    run(work())


def test_slow_follower_that_lost_the_thread_gets_everything_on_the_same_stream() -> None:
    async def work() -> None:
        cluster = Cluster(ring_size=5)
        old = cluster.submit()
        cluster.end(old)
        stream = Stream(cluster, ALICE, "mine", "queues", jobs=(old, "unknown"))
        assert (await stream.next()).jobs_gone == ["unknown"]
        jobs = [cluster.submit(gpus=0) for _ in range(4)]
        update = await stream.next_update()
        assert update.full == ["queues", "mine"]
        assert names(update) == [*reversed(jobs), old]
        assert update.jobs_gone == ["unknown"], "a page that starts anew needs to be told again"

    run(work())


def test_alive_tells_how_far_the_follower_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.01)

    async def work() -> None:
        cluster = Cluster()
        stream = Stream(cluster, BOB, "mine")
        assert (await stream.next()).seq == 0
        cluster.submit("closed")
        update = await stream.next()
        assert (update.type, update.jobs, update.seq) == ("alive", [], cluster.feed.last_seq)

    run(work())


def test_strangers_learn_of_the_room_that_a_job_takes_alone() -> None:
    async def work() -> None:
        cluster = Cluster()
        strangers, owner = Stream(cluster, GUEST, *TOPICS), Stream(cluster, ALICE, *TOPICS)
        await strangers.next(), await owner.next()
        job = cluster.submit("closed", gpus=2, name="secret")
        cluster.start(job)
        cluster.report(job, 1)
        update = await strangers.next_update()
        assert (update.jobs, update.jobs_gone, update.progress) == ([], [], [])
        assert [gpu.occupied for gpu in update.nodes[0].gpus] == [True] * 2 + [False] * 6
        assert "secret" not in repr(strangers.page.updates)
        assert "secret" in repr(await owner.next_update())

    run(work())


def test_colleagues_see_a_job_and_not_what_it_reports() -> None:
    async def work() -> None:
        cluster = Cluster()
        colleague, owner = Stream(cluster, BOB, "jobs"), Stream(cluster, ALICE, "jobs")
        await colleague.next(), await owner.next()
        job = cluster.submit("open")
        cluster.start(job)
        assert (names(await colleague.next_update()), names(await owner.next_update())) == ([job], [job])
        cluster.report(job, 1)
        assert [told.progress.step for told in (await owner.next_update()).progress] == [1]
        cluster.end(job)
        update = await colleague.next_update()
        assert [(view.state, view.progress) for view in update.jobs] == [("succeeded", None)]
        assert not any(each.progress for each in colleague.page.updates)

    run(work())


def test_change_of_who_may_read_a_job_is_told_to_those_whom_it_concerns_alone() -> None:
    async def work() -> None:
        cluster = Cluster()
        stream = Stream(cluster, GUEST, "jobs", "nodes")
        await stream.next()
        job = cluster.submit("closed", name="plan")
        await stream.next_update()
        cluster.step(ShareChanged(job, Share.QUEUE, ALICE.id))
        cluster.step(ShareChanged(job, Share.EVERYONE, ALICE.id))
        update = await stream.next_update()
        assert (names(update), update.jobs_gone) == ([job], []), "sharing with the queue did not concern them"
        assert update.nodes[0].gpus[0].job_name == "plan"
        cluster.step(ShareChanged(job, Share.OWNER, ALICE.id))
        update = await stream.next_update()
        assert (names(update), update.jobs_gone) == ([], [job])
        assert update.nodes[0].gpus[0].job_name is None
        cluster.step(ShareChanged(job, Share.QUEUE, ALICE.id))
        cluster.submit("open", name="next")
        assert (await stream.next_update()).jobs_gone == []

    run(work())


def test_ended_job_is_read_once_for_all_followers_and_again_when_it_is_shared() -> None:
    async def work() -> None:
        cluster = Cluster()
        reads: list[str] = []
        find = cluster.source.store.jobs_by_id

        def counted(job_ids: Collection[str]) -> list[Job]:
            reads.extend(job_ids)
            return find(job_ids)

        cluster.source.store.jobs_by_id = counted  # type: ignore[method-assign]
        streams = [Stream(cluster, ALICE, "jobs"), Stream(cluster, GUEST, "jobs")]
        for stream in streams:
            await stream.next()
        job_id = cluster.submit("closed")
        cluster.end(job_id)
        assert names(await streams[0].next_update()) == [job_id]
        assert reads == [job_id]
        job = cluster.job(job_id)
        job.spec = msgspec.structs.replace(job.spec, share=Share.EVERYONE)
        cluster.store._jobs[job_id] = ENCODER.encode(msgspec.structs.replace(job, attempt=None))
        cluster.step(EndedJobShared(job, Share.OWNER))
        for stream in streams:
            update = await stream.next_update()
            assert [view.share for view in update.jobs] == ["everyone"]
        assert reads == [job_id, job_id]

    run(work())


def test_list_has_the_newest_jobs_and_all_of_ones_own_that_have_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_jobs, "MAX_LISTED", 2)
    monkeypatch.setattr(live_jobs, "MAX_COUNTED", 6)

    async def work() -> None:
        cluster = Cluster()
        mine = cluster.submit(gpus=1)
        others = [cluster.submit(gpus=0, owner=BOB) for _ in range(5)]
        update = await Stream(cluster, ALICE, "jobs").next()
        assert names(update) == [others[4], others[3], mine]
        assert update.jobs_left_out == 3
        update = await Stream(cluster, ALICE, "mine").next()
        assert (names(update), update.jobs_left_out) == ([mine], 0)
        cluster.submit(gpus=0, owner=BOB)
        assert (await Stream(cluster, ALICE, "jobs").next()).jobs_left_out == 3, "counted up to six"

    run(work())


def test_only_the_first_of_many_waiting_jobs_are_told_why_and_those_that_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_jobs, "MAX_EXPLAINED", 2)

    async def work() -> None:
        cluster = Cluster()
        cluster.submit(gpus=8)
        waiting = [cluster.submit(gpus=8) for _ in range(5)]
        update = await Stream(cluster, ALICE, "jobs", jobs=(waiting[4],)).next()
        places = {job.id: job.position for job in update.jobs if job.state == "pending"}
        assert places == dict(zip(waiting, (1, 2, None, None, 5), strict=True))

    run(work())


def test_watched_jobs_place_is_looked_at_after_events_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.0)

    async def work() -> None:
        cluster = Cluster()
        cluster.submit(gpus=8)
        first, second = cluster.submit(gpus=8), cluster.submit(gpus=8)
        stream = Stream(cluster, ALICE, jobs=(second,))
        await stream.next()
        assert stream.page.jobs[second].position == 2
        cluster.stop(first)
        update = await stream.next_update()
        assert [(job.id, job.position) for job in update.jobs] == [(second, 1)]

    run(work())


def test_measured_use_of_gpus_is_told_though_no_event_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "IDLE_LOOK_S", 0.0)

    async def work() -> None:
        cluster = Cluster(simulated=False)
        stream = Stream(cluster, ALICE, "nodes")
        await stream.next()
        cluster.usage.gpus["n0/3"] = 70
        update = await stream.next_update()
        assert [gpu.utilization_percent for gpu in update.nodes[0].gpus][2:4] == [None, 70]

    run(work())


def test_job_that_ends_while_its_line_is_made_is_told_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        cluster = Cluster()
        stream = Stream(cluster, ALICE, "jobs")
        await stream.next()
        job = cluster.submit()

        def end_once() -> None:
            cluster.before_settled = lambda: None
            cluster.end(job)

        cluster.before_settled = end_once
        update = await stream.next_update()
        assert [(view.id, view.state) for view in update.jobs] == [(job, "succeeded")]
        assert not any(view.state == "starting" for each in stream.page.updates for view in each.jobs)

    run(work())


def test_store_that_does_not_answer_is_told_in_the_status_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.0)

    async def work() -> None:
        cluster = Cluster()
        watched = cluster.submit()
        stream = Stream(cluster, ALICE, *TOPICS, jobs=(watched,))
        await stream.next()
        cluster.trouble = Unavailable("the store has not answered for a while")
        job = cluster.submit(gpus=2)
        cluster.stop(watched)
        update = await stream.next_update()
        assert update.status is not None
        assert update.status.notes == ["the store has not answered for a while"]
        assert (update.jobs, update.nodes, update.queues) == ([], [], [])
        cluster.trouble = None
        update = await stream.next_update()
        assert [(view.id, view.state) for view in update.jobs] == [(job, "starting"), (watched, "stopping")]
        assert update.status is not None
        assert (update.status.notes, update.status.gpus_used) == ([], 3)
        assert {queue.name for queue in update.queues} >= {"root", "open"}

    run(work())


def test_stream_that_cannot_begin_says_so_instead() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.trouble = Unavailable("the store has not answered for a while")
        with pytest.raises(Unavailable):
            await Stream(cluster, ALICE, *TOPICS).next()

    run(work())
