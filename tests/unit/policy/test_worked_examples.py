"""The worked examples of docs/policies/, one test for each page."""

from __future__ import annotations

from support.engine_bench import Bench, gpu_queue, make_node, make_role

from gpucluster.engine.events import TaskEnded
from gpucluster.model.jobs import TaskExit, TaskPlacement, TaskRole
from gpucluster.policy.free import free_gpus, idle_gpus
from gpucluster.policy.placement import place_gang
from gpucluster.policy.space import ClusterSpace


def test_capacity_queues_example() -> None:
    bench = Bench([gpu_queue("vision", 4), gpu_queue("nlp", 4), gpu_queue("guests", 0)], [make_node("n0")])

    def gpus_used() -> list[int]:
        return [bench.used(name) // 1000 for name in ("vision", "nlp", "guests")]

    def free() -> list[tuple[int, int, int]]:
        state = bench.engine.state
        numbers = free_gpus(state.tree, idle_gpus(state.space))
        return [
            (
                found.for_good["gpu"] // 1000,
                found.until_reclaimed["gpu"] // 1000,
                found.lent_out["gpu"] // 1000,
            )
            for found in (numbers[name] for name in ("vision", "nlp", "guests"))
        ]

    assert free() == [(4, 4, 0), (4, 4, 0), (0, 8, 0)]
    guests = [bench.submit("guests") for _ in range(8)]
    assert gpus_used() == [0, 0, 8]
    assert free() == [(0, 0, 4), (0, 0, 4), (0, 0, 0)]
    for _ in range(4):
        bench.submit("guests")
    vision = [bench.submit("vision", 2), bench.submit("vision", 2)]
    nlp = bench.submit("nlp", 2)
    assert gpus_used() == [0, 0, 8]
    end_together(bench, guests[:4])
    assert gpus_used() == [2, 2, 4]
    assert bench.states(*vision, nlp) == ["starting", "pending", "starting"]
    end_together(bench, guests[4:6])
    assert gpus_used() == [4, 2, 2]
    end_together(bench, guests[6:8])
    assert gpus_used() == [4, 2, 2]


def end_together(bench: Bench, jobs: list[str]) -> None:
    """All of them in one step."""
    ended = TaskExit(code=0, ended_us=bench.now_us)
    bench.step(*(TaskEnded(bench.attempt_id(job), 0, ended) for job in jobs))


def test_fifo_example() -> None:
    nodes = [make_node("t", gpu_type="T4"), make_node("v", gpu_type="V100")]
    bench = Bench([gpu_queue("a")], nodes)
    jobs = [
        bench.submit("a", 4, types=["V100"]),
        bench.submit("a", 8, types=["V100"]),
        bench.submit("a", 1, types=["V100"]),
        bench.submit("a", 1, types=["T4"]),
        bench.submit("a", 2, types=["V100", "T4"]),
        bench.submit("a", 0, cpus=2),
    ]
    starts = {job for job in jobs if bench.state(job) == "starting"}
    assert starts == {jobs[0], jobs[3], jobs[4], jobs[5]}
    assert bench.nodes_of(jobs[4]) == ["t"]
    assert bench.why(jobs[2]).facts["behind"] == 2


def test_gang_example() -> None:
    bench = Bench([gpu_queue("a"), gpu_queue("b")], [make_node("n0"), make_node("n1")])
    bench.submit("a", 1)
    gang = bench.submit("a", 8, tasks=2)
    single = bench.submit("b", 8)
    assert bench.states(gang, single) == ["pending", "starting"]
    assert bench.used("a") == 1000


def test_placement_example() -> None:
    space = ClusterSpace([make_node("n0"), make_node("n1")])
    taken = TaskPlacement(
        role="other",
        rank=0,
        local_rank=0,
        node="n1",
        gpus=("n1/0", "n1/2", "n1/4", "n1/6"),
        resources=TaskRole(gpus=4000).request(),
    )
    space.take("other", [taken])
    got = []
    for index, gpus in enumerate((1, 2, 2, 4)):
        placements = place_gang(space, [make_role(gpus)])
        assert placements is not None
        space.take(f"job-{index}", placements)
        got.append(placements[0].gpus)
    assert got == [("n1/1",), ("n0/0", "n0/1"), ("n0/2", "n0/3"), ("n0/4", "n0/5", "n0/6", "n0/7")]


def test_attempts_example() -> None:
    bench = Bench([gpu_queue("a")], [make_node("n0"), make_node("n1")])
    job = bench.submit("a", tasks=2, retries=1)
    bench.start(job)
    bench.end(job, 1, code=1, reason="connection refused")
    assert bench.state(job) == "stopping"
    bench.lose(job, 0)
    assert bench.state(job) == "starting"
    assert bench.job(job).failures == 0
    bench.start(job)
    bench.end(job, 0, code=1, error_name="ValueError")
    bench.end(job, 1, code=143)
    assert bench.why(job).code == "back_off"
    bench.pass_time(1)
    bench.stop(job)
    bench.end(job, 0, 1, code=143)
    assert bench.state(job) == "cancelled"
