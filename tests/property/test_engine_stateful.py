"""The engine under everything that can happen, in any order (DESIGN section 7).

Random queue trees, clusters and jobs; tasks that start, end, fail, get lost; news that comes late or twice; stops; nodes
that go and come; crashes before and after the commit. After every step the books are recounted (Bench does that), no GPU
has two tasks in the world's own bookkeeping, and nothing that could start is left waiting. At the end the world answers
all: then every acknowledged job has ended, exactly once, and a second run of the same script gives the same changes.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.engine_bench import (
    ALICE,
    ENCODER,
    GIB,
    JOB_DECODER,
    SECOND,
    Bench,
    make_job,
    make_role,
    make_spec,
)

from gpucluster.engine.audit import audit
from gpucluster.engine.core import Engine
from gpucluster.engine.events import (
    EngineEvent,
    JobSubmitted,
    NodeChanged,
    NodeHealthSet,
    StepReported,
    StopRequested,
    TaskEnded,
    TaskLost,
    TaskStarted,
    TaskStartFailed,
)
from gpucluster.engine.instructions import GiveUpNode, StartTask
from gpucluster.model.errors import GpuclusterError
from gpucluster.model.jobs import Progress, Requeue, StopCause, TaskExit, TaskRole
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import Gpu, GpuHealth, Node, NodeHealth
from gpucluster.policy.cycle import decide
from gpucluster.policy.free import free_gpus, idle_gpus

TYPES = ("A100", "T4")
Rank = tuple[str, int]  # attempt id and rank


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    for index in range(draw(st.integers(1, 4))):
        gpu_type, count = draw(st.sampled_from(TYPES)), draw(st.sampled_from((8, 4, 4, 2, 0)))
        gpus = tuple(
            Gpu(uuid=f"n{index}/{i}", index=i, type=gpu_type, memory_bytes=GIB, socket=i // 4, switch=i // 2)
            for i in range(count)
        )
        rack = f"rack-{draw(st.integers(0, 1))}"
        cpu, memory = draw(st.integers(4, 16)) * 1000, draw(st.integers(8, 32)) * GIB
        made.append(Node(name=f"n{index}", gpus=gpus, cpu=cpu, memory=memory, rack=rack))
    return made


def amounts(least: int) -> st.SearchStrategy[dict[str, int]]:
    """Amounts by resource, from `least` GPUs on."""
    return st.fixed_dictionaries(
        {},
        optional={
            "gpu": st.integers(least, 12).map(lambda n: n * 1000),
            "gpu/T4": st.integers(least, 6).map(lambda n: n * 1000),
            "cpu": st.integers(4 * least, 32).map(lambda n: n * 1000),
            "memory": st.integers(8 * least, 64).map(lambda n: n * GIB),
        },
    )


@st.composite
def trees(draw: st.DrawFn) -> list[QueueSpec]:
    """One or two levels, any guarantees and maxima, sensible or not."""
    specs = []
    for index in range(draw(st.integers(1, 3))):
        name = f"q{index}"
        children = draw(st.integers(0, 2))
        specs.append(draw(queues(name, "root")))
        specs += [draw(queues(f"{name}.{child}", name)) for child in range(children)]
    return specs


@st.composite
def queues(draw: st.DrawFn, name: str, parent: str) -> QueueSpec:
    return QueueSpec(
        name=name,
        parent=parent,
        guaranteed=draw(st.none() | amounts(0)),
        max=draw(st.none() | st.none() | amounts(2)),
        weight=draw(st.integers(1, 3)),
    )


def roles(name: str) -> st.SearchStrategy[TaskRole]:
    return st.builds(
        make_role,
        gpus=st.sampled_from((1, 0, 1, 2, 4)),
        tasks=st.sampled_from((1, 1, 2, 3)),
        cpus=st.sampled_from((0.5, 1, 2)),
        memory=st.sampled_from((0, 1, 4)),
        types=st.sampled_from(((), (), ("T4",), ("A100", "T4"))),
        name=st.just(name),
    )


class Wish(NamedTuple):
    """What a submission asks for; `queue` and `after` pick among those there are."""

    roles: tuple[TaskRole, ...]
    queue: int
    after: int
    retries: int
    requeue: Requeue
    limit: float | None


wishes = st.builds(
    Wish,
    roles=st.tuples(roles("worker"))
    | st.tuples(roles("worker"))
    | st.tuples(roles("worker"), roles("server")),
    queue=st.integers(0, 8),
    after=st.integers(0, 6),
    retries=st.integers(0, 2),
    requeue=st.sampled_from(Requeue),
    limit=st.sampled_from((None, 30.0)),
)
news = st.tuples(
    st.integers(0, 30),
    st.sampled_from(("up", "up", "up", "well", "well", "badly", "unable", "lost")),
    st.booleans(),
)


#: What happened over all runs, so that the test cannot become empty without notice.
SEEN: Counter[Any] = Counter()


class EngineMachine(RuleBasedStateMachine):
    @initialize(tree=trees(), cluster=nodes())
    def begin(self, tree: list[QueueSpec], cluster: list[Node]) -> None:
        self.cluster = cluster
        self.bench = Bench(tree, cluster)
        self.inbox: list[EngineEvent] = []
        self.told: list[EngineEvent] = []  # what tasks have said so far, for echoes
        self.world: dict[Rank, tuple[str, StartTask]] = {}  # tasks that are not over: ordered | up
        self.started: set[Rank] = set()
        self.script: list[tuple[Any, ...]] = []
        self.submitted = 0

    # ---- what can happen

    @rule(many=st.lists(wishes, min_size=1, max_size=4), flush=st.booleans())
    def submit(self, many: list[Wish], flush: bool) -> None:
        for wish in many:
            self.submit_one(wish)
        if flush:
            self.flush()

    def submit_one(self, wish: Wish) -> None:
        leaves = [leaf.name for leaf in self.bench.engine.state.tree.leaves()]
        known = list(self.bench.engine.state.jobs)
        spec = make_spec(
            leaves[wish.queue % len(leaves)],
            roles=wish.roles,
            after=(known[wish.after],) if wish.after < min(2, len(known)) else (),
            retries=wish.retries,
            requeue=wish.requeue,
            time_limit_s=wish.limit,
        )
        try:
            self.bench.engine.check_admission(spec, ALICE)
        except GpuclusterError:
            return
        self.submitted += 1
        self.inbox.append(JobSubmitted(make_job(spec, f"job-{self.submitted}")))

    @rule(many=st.lists(news, min_size=1, max_size=6), flush=st.booleans())
    def tasks_tell(self, many: list[tuple[int, str, bool]], flush: bool) -> None:
        for pick, kind, retry in many:
            if self.world:
                self.task_tells(pick, kind, retry)
        if flush:
            self.flush()

    @rule(many=st.lists(st.integers(0, 30), min_size=2, max_size=8))
    def tasks_come_up(self, many: list[int]) -> None:
        for pick in many:
            if self.world:
                self.task_tells(pick, "up", True)
        self.flush()

    def task_tells(self, pick: int, kind: str, retry: bool) -> None:
        (attempt, rank), (state, order) = list(self.world.items())[pick % len(self.world)]
        if kind == "up" or (kind == "unable" and state == "up"):
            self.world[attempt, rank] = ("up", order)
            event: EngineEvent = TaskStarted(attempt, rank)
        elif kind == "unable":
            event = TaskStartFailed(attempt, rank, "no room", retry)
        elif kind == "lost":
            event = TaskLost(attempt, rank, "its node is gone")
        else:
            code = 0 if kind == "well" else 1
            event = TaskEnded(attempt, rank, TaskExit(code=code, ended_us=self.bench.now_us))
        if not isinstance(event, TaskStarted):
            del self.world[attempt, rank]
        self.told.append(event)
        self.inbox.append(event)

    @rule(pick=st.integers(0, 30), step=st.integers(0, 9))
    def task_reports(self, pick: int, step: int) -> None:
        if self.started:
            attempt, rank = sorted(self.started)[pick % len(self.started)]
            self.happen(
                StepReported(attempt, Progress(step=step, time_us=self.bench.now_us, rank=rank)), True
            )

    @rule(pick=st.integers(0, 50), flush=st.booleans())
    def old_news_comes_again(self, pick: int, flush: bool) -> None:
        """Late, twice, out of order: but only of tasks that are over in the world."""
        over = [event for event in self.told if (event.attempt_id, event.rank) not in self.world]  # type: ignore[attr-defined]
        if over:
            self.happen(over[pick % len(over)], flush)

    @rule(pick=st.integers(0, 10), cause=st.sampled_from((StopCause.CANCEL, StopCause.EVICT, StopCause.DRAIN)),
          flush=st.booleans())  # fmt: skip
    def stop(self, pick: int, cause: StopCause, flush: bool) -> None:
        if self.submitted:
            self.happen(StopRequested(f"job-{pick % self.submitted + 1}", cause, ALICE.id), flush)

    @rule(
        pick=st.integers(0, 3), health=st.sampled_from(NodeHealth), bad=st.integers(0, 3), flush=st.booleans()
    )
    def node_changes(self, pick: int, health: NodeHealth, bad: int, flush: bool) -> None:
        node = self.cluster[pick % len(self.cluster)]
        gpus = tuple(
            msgspec.structs.replace(gpu, health=GpuHealth.BAD if gpu.index < bad else GpuHealth.OK)
            for gpu in node.gpus
        )
        self.happen(NodeChanged(msgspec.structs.replace(node, health=health, gpus=gpus)), flush)

    @rule(pick=st.integers(0, 3), health=st.sampled_from(NodeHealth), flush=st.booleans())
    def administrator_sets_a_node(self, pick: int, health: NodeHealth, flush: bool) -> None:
        node = self.cluster[pick % len(self.cluster)]
        self.happen(NodeHealthSet(node.name, health, ALICE.id, ALICE.name), flush)

    @rule(seconds=st.sampled_from((0.05, 1.0, 20.0, 400.0)))
    def time_passes(self, seconds: float) -> None:
        self.bench.now_us += round(seconds * SECOND)
        self.flush()

    @rule(after_commit=st.booleans(), starts_lost=st.booleans())
    def crash(self, after_commit: bool, starts_lost: bool) -> None:
        if after_commit:
            self.crash_after_commit(starts_lost)
        else:
            self.script.append(("failed", self.bench.now_us, [copied(event) for event in self.inbox]))
            fail_commit(self.bench, [copied(event) for event in self.inbox])
        self.flush()

    def crash_after_commit(self, starts_lost: bool) -> None:
        """Orders that the world has not taken up yet may be gone: adoption then finds that they never ran."""
        self.script.append(("crash",))
        self.bench.crash()
        self.look()
        for (attempt, rank), (state, _) in list(self.world.items()):
            if state == "ordered" and starts_lost:
                del self.world[attempt, rank]
                self.inbox.append(TaskStartFailed(attempt, rank, "the scheduler was away", True))

    # ---- the machinery

    def happen(self, event: EngineEvent, flush: bool) -> None:
        self.inbox.append(event)
        if flush:
            self.flush()

    def flush(self) -> None:
        events, self.inbox = self.inbox, []
        self.script.append(("step", self.bench.now_us, [copied(event) for event in events]))
        self.bench.step(*events)
        self.look()

    def look(self) -> None:
        """The world takes note of what it is asked, and trusts nobody's books but its own."""
        for instruction in self.bench.last.instructions:
            if isinstance(instruction, StartTask):
                rank = (instruction.attempt_id, instruction.placement.rank)
                assert rank not in self.started, "an attempt's task is started once"
                self.started.add(rank)
                self.world[rank] = ("ordered", instruction)
            elif isinstance(instruction, GiveUpNode):
                self.lose_node(instruction.node)
        held = [
            (order.placement.node, uuid) for _, order in self.world.values() for uuid in order.placement.gpus
        ]
        assert len(held) == len(set(held)), "a GPU has one task at a time"

    def lose_node(self, name: str) -> None:
        SEEN["given up"] += 1
        for (attempt, rank), (_, order) in list(self.world.items()):
            if order.placement.node == name:
                del self.world[attempt, rank]
                self.inbox.append(TaskLost(attempt, rank, "its node was given up"))
                self.told.append(self.inbox[-1])

    @invariant()
    def nothing_that_could_start_is_left_waiting(self) -> None:
        if hasattr(self, "bench"):
            assert decide(self.bench.engine.state.snapshot(), self.bench.now_us) == []

    @invariant()
    def every_waiting_job_can_say_why(self) -> None:
        if hasattr(self, "bench"):
            for job_id in self.bench.engine.state.jobs:
                assert self.bench.why(job_id).sentence

    @invariant()
    def books_move_only_with_an_event_that_tells_of_more_than_a_step_report(self) -> None:
        """What is told of queues is worked out again only then."""
        if hasattr(self, "bench"):
            engine, state = self.bench.engine, self.bench.engine.state
            books = (
                free_gpus(state.tree, idle_gpus(state.space)),
                {queue.name: dict(queue.used) for queue in state.tree.queues.values()},
                {node.name: node.health for node in state.nodes.values()},
                dict(state.waiting),
                dict(state.holding),
            )
            if self.books is not None and self.books[:2] == (engine, engine.books_seq):
                assert books == self.books[2]
            self.books = (engine, engine.books_seq, books)

    #: The engine, its books_seq and its books after the last step.
    books: tuple[Engine, int, Any] | None = None

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        for node in self.cluster:
            self.inbox.append(NodeChanged(node))
            self.inbox.append(NodeHealthSet(node.name, NodeHealth.READY, ALICE.id, ALICE.name))
        for _ in range(60 + 5 * self.submitted):
            for attempt, rank in list(self.world):
                del self.world[attempt, rank]
                self.inbox.append(TaskEnded(attempt, rank, TaskExit(code=0, ended_us=self.bench.now_us)))
            self.bench.now_us += 400 * SECOND
            self.flush()
            if not self.bench.engine.state.jobs:
                break
        assert self.bench.engine.state.jobs == {}
        assert set(self.bench.store.ended) == {f"job-{n + 1}" for n in range(self.submitted)}
        assert self.bench.engine.state.tree.root.used == {}
        assert self.replay() == self.bench.store.events
        SEEN.update((entry.cause, entry.to_state) for entry in self.bench.store.history)
        SEEN.update(entry[0] for entry in self.script)

    def replay(self) -> list[Any]:
        again = Bench(self.bench.queues, self.cluster)
        for kind, *arguments in self.script:
            if kind == "crash":
                again.crash()
                continue
            again.now_us, events = arguments
            events = [copied(event) for event in events]
            if kind == "failed":
                fail_commit(again, events)
            else:
                again.step(*events)
        return again.store.events


def copied(event: EngineEvent) -> EngineEvent:
    """The engine keeps the Job of a submission; a second run needs one of its own."""
    if isinstance(event, JobSubmitted):
        return JobSubmitted(
            JOB_DECODER.decode(ENCODER.encode(event.job)), event.verbatim, event.ended_dependencies
        )
    return event


def fail_commit(bench: Bench, events: list[EngineEvent]) -> None:
    """One step that is lost, then the engine is rebuilt from the store."""
    known = list(bench.engine.state.reported.values())
    bench.engine.step(bench.now_us, events)
    bench.engine = Engine(queues=bench.queues, nodes=known, new_id=bench._new_id, options=bench.options)
    bench.engine.recover(bench.store.recover())
    assert audit(bench.engine.state) == []


#: More, and other ones each time, by hand: GPUCLUSTER_PROPERTY_EXAMPLES=5000 pytest tests/property
EXAMPLES = int(os.environ.get("GPUCLUSTER_PROPERTY_EXAMPLES", "300"))

TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    derandomize="GPUCLUSTER_PROPERTY_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

#: How often each must have happened in EXAMPLES runs, per hundred runs.
FLOORS = {
    "crash": 50,
    "failed": 50,
    "given up": 5,
    ("placed", "starting"): 200,
    ("all_tasks_up", "running"): 150,
    ("succeeded", "succeeded"): 150,
    ("cancel", "stopping"): 2,
    ("evict", "stopping"): 2,
    ("lost", "pending"): 3,
    ("lost", "stopping"): 3,
    ("task_failed", "stopping"): 1,
    ("failed", "pending"): 2,
    ("start_failed", "pending"): 4,
    ("task_could_not_start", "stopping"): 5,
    ("time_limit", "failed"): 1,
    ("dependency_failed", "failed"): 5,
}


def test_the_runs_above_have_seen_everything_that_matters() -> None:
    if not SEEN:
        pytest.skip("the state machine did not run in this process")
    too_rare = {what: SEEN[what] for what, floor in FLOORS.items() if SEEN[what] < floor * EXAMPLES / 100}
    assert too_rare == {}
