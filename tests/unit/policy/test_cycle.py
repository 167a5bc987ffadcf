"""Whose turn it is: claims, lending, FIFO and the rule of passing, seen through the engine."""

from __future__ import annotations

from support.engine_bench import GIB, Bench, gpu_queue, make_node, make_role

from gpucluster.model.jobs import StopCause
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import NodeHealth
from gpucluster.policy.cycle import decide


def cluster(*queues: QueueSpec, nodes: int = 2) -> Bench:
    return Bench(queues, [make_node(f"n{i}") for i in range(nodes)])


def blocker(bench: Bench, queue: str, gpus: int, tasks: int = 1) -> str:
    job = bench.submit(queue, gpus, tasks)
    assert bench.state(job) == "starting"
    return job


# ---- FIFO


def test_jobs_of_a_queue_start_in_the_order_of_submission() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    first = blocker(bench, "a", 8)
    second, third = bench.submit("a", 8), bench.submit("a", 8)
    bench.end(first)
    assert bench.states(second, third) == ["starting", "pending"]


def test_small_job_does_not_pass_a_large_one_that_waits_for_gpus() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    blocker(bench, "a", 4)
    large, small = bench.submit("a", 8), bench.submit("a", 1)
    assert bench.states(large, small) == ["pending", "pending"]


def test_cpu_job_passes_one_that_waits_for_gpus() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    blocker(bench, "a", 4)
    large, cpu_job = bench.submit("a", 8), bench.submit("a", 0)
    assert bench.states(large, cpu_job) == ["pending", "starting"]


def test_cpu_job_does_not_pass_one_that_waits_for_cpu() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    bench.submit("a", 1, cpus=60)
    head, cpu_job = bench.submit("a", 1, cpus=8), bench.submit("a", 0, cpus=1)
    assert bench.why(head).code == "no_cpu_free"
    assert bench.states(head, cpu_job) == ["pending", "pending"]


def test_job_for_one_gpu_type_passes_one_that_waits_for_another() -> None:
    bench = Bench([gpu_queue("a")], [make_node("t", gpu_type="T4"), make_node("v", gpu_type="V100")])
    bench.submit("a", 8, types=["V100"])
    v100 = bench.submit("a", 1, types=["V100"])
    t4 = bench.submit("a", 1, types=["T4"])
    either = bench.submit("a", 1, types=["V100", "T4"])
    assert bench.states(v100, t4, either) == ["pending", "starting", "starting"]
    assert bench.nodes_of(either) == ["t"]


def test_follower_of_either_type_leaves_the_awaited_type_alone() -> None:
    bench = Bench([gpu_queue("a")], [make_node("t", gpu_type="T4"), make_node("v", gpu_type="V100")])
    bench.submit("a", 4, types=["V100"])
    head = bench.submit("a", 8, types=["V100"])
    either = bench.submit("a", 2, types=["V100", "T4"])
    assert bench.state(head) == "pending"
    assert bench.nodes_of(either) == ["t"], "though four V100 are free"


def test_jobs_that_wait_for_others_or_back_off_hold_nobody_up() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    first = bench.submit("a", 1, retries=1)
    waits = bench.submit("a", 8, after=(first,))
    bench.end(first, code=1)
    small = bench.submit("a", 1)
    assert bench.states(first, waits, small) == ["pending", "pending", "starting"]


def test_job_that_comes_back_has_its_old_place() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    first = blocker(bench, "a", 8)
    second = bench.submit("a", 8)
    bench.stop(first, StopCause.EVICT)
    bench.end(first, code=143)
    assert bench.states(first, second) == ["starting", "pending"]


# ---- maxima


def test_queue_never_passes_its_maximum_however_much_is_free() -> None:
    bench = cluster(gpu_queue("a", most=4), nodes=2)
    first, second = bench.submit("a", 3), bench.submit("a", 2)
    assert bench.states(first, second) == ["starting", "pending"]
    assert bench.used("a") == 3000


def test_maximum_of_the_parent_binds_its_children_together() -> None:
    parent = gpu_queue("lab", most=4)
    bench = cluster(parent, gpu_queue("a", parent="lab"), gpu_queue("b", parent="lab"))
    first, second = bench.submit("a", 3), bench.submit("b", 2)
    assert bench.states(first, second) == ["starting", "pending"]


def test_maximum_of_a_gpu_type_binds() -> None:
    queue = QueueSpec(name="a", max={"gpu/V100": 2000})
    bench = Bench([queue], [make_node("v", gpu_type="V100"), make_node("t", gpu_type="T4")])
    jobs = [bench.submit("a", 2, types=["V100", "T4"]) for _ in range(2)]
    assert [bench.nodes_of(job) for job in jobs] == [["v"], ["t"]]
    assert bench.why(bench.submit("a", 1, types=["V100"])).code == "queue_max"


# ---- claims and lending


def test_claim_starts_before_a_borrower_that_came_first() -> None:
    bench = cluster(gpu_queue("a", 4), gpu_queue("b", 0), nodes=1)
    hog = blocker(bench, "b", 8)
    borrower, claim = bench.submit("b", 8), bench.submit("a", 4)
    bench.end(hog)
    assert bench.states(claim, borrower) == ["starting", "pending"]


def test_claim_of_the_queue_with_the_emptiest_guarantee_goes_first() -> None:
    bench = cluster(gpu_queue("a", 8), gpu_queue("b", 4), gpu_queue("c"), nodes=1)
    running = [blocker(bench, "a", 4), blocker(bench, "c", 4)]
    from_a, from_b = bench.submit("a", 4), bench.submit("b", 4)
    bench.end(running[1])
    assert bench.states(from_a, from_b) == ["pending", "starting"], "b uses 0 of 4, a uses 4 of 8"


def test_idle_capacity_is_lent() -> None:
    bench = cluster(gpu_queue("a", 8), gpu_queue("b", 8))
    assert bench.state(bench.submit("b", 8, tasks=2)) == "starting"
    assert bench.engine.state.tree.borrowed("b")["gpu"] == 8000


def test_what_is_left_is_lent_to_the_smallest_weighted_share() -> None:
    bench = cluster(gpu_queue("a", weight=3), gpu_queue("b"), gpu_queue("c", 16), nodes=2)
    hog = blocker(bench, "c", 8, tasks=2)
    for _ in range(16):
        bench.submit("a", 1)
        bench.submit("b", 1)
    bench.end(hog)
    assert (bench.used("a"), bench.used("b")) == (12000, 4000)


def test_lending_goes_down_the_tree_level_by_level() -> None:
    lab_a, lab_b = gpu_queue("lab-a"), gpu_queue("lab-b")
    queues = [lab_a, lab_b, gpu_queue("a1", parent="lab-a"), gpu_queue("a2", parent="lab-a"),
              gpu_queue("b1", parent="lab-b"), gpu_queue("hog", 8)]  # fmt: skip
    bench = cluster(*queues, nodes=1)
    hog = blocker(bench, "hog", 8)
    for _ in range(8):
        for queue in ("a1", "a2", "b1"):
            bench.submit(queue, 1)
    bench.end(hog)
    assert [bench.used(name) for name in ("lab-a", "lab-b", "a1", "a2")] == [4000, 4000, 2000, 2000]


def test_queue_whose_head_borrows_may_still_claim_afterwards() -> None:
    bench = cluster(gpu_queue("a", 4), gpu_queue("hog", 8), nodes=1)
    hog = blocker(bench, "hog", 8)
    large, cpu_only = bench.submit("a", 6), bench.submit("a", 0)
    bench.end(hog)
    assert bench.states(large, cpu_only) == ["starting", "starting"]


def test_drf_of_the_paper_gives_three_and_two_tasks() -> None:
    """NSDI'11: 9 CPU and 18 GB; A's tasks take 1 CPU and 4 GB, B's 3 CPU and 1 GB: A runs 3, B runs 2."""
    bench = Bench([QueueSpec(name="a"), QueueSpec(name="b")], [])
    for _ in range(6):
        bench.submit("a", 0, cpus=1, memory=4)
        bench.submit("b", 0, cpus=3, memory=1)
    bench.change_node(make_node("n0", gpus=0, cpu=9, memory=18))
    assert (bench.used("a", "cpu"), bench.used("b", "cpu")) == (3000, 6000)
    assert bench.used("a", "memory") == 12 * GIB


# ---- gangs


def test_gang_waits_whole_and_takes_nothing() -> None:
    bench = cluster(gpu_queue("a"), gpu_queue("b"))
    blocker(bench, "a", 1)
    gang = bench.submit("a", 8, tasks=2)
    other = bench.submit("b", 8)
    assert bench.states(gang, other) == ["pending", "starting"]
    assert bench.used("a") == 1000


def test_gang_of_unequal_roles_starts_together() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    roles = (make_role(0, cpus=2, name="server"), make_role(2, tasks=3, name="worker"))
    job = bench.submit("a", roles=roles)
    assert len(bench.gpus(job)) == 6


# ---- nodes


def test_node_that_joins_or_comes_back_is_used_at_once() -> None:
    bench = cluster(gpu_queue("a"), nodes=1)
    blocker(bench, "a", 8)
    job = bench.submit("a", 8)
    bench.change_node(make_node("n1"), health=NodeHealth.CORDONED)
    assert bench.state(job) == "pending"
    bench.change_node(make_node("n1"))
    assert bench.nodes_of(job) == ["n1"]


def test_drained_job_goes_elsewhere() -> None:
    bench = cluster(gpu_queue("a"))
    job = bench.submit("a", 8)
    (node,) = bench.nodes_of(job)
    bench.change_node(make_node(node), health=NodeHealth.CORDONED)
    bench.stop(job, StopCause.DRAIN)
    bench.end(job, code=143)
    assert bench.nodes_of(job) != [node]


# ---- the policy is pure


def test_deciding_leaves_the_books_as_they_were() -> None:
    bench = cluster(gpu_queue("a"), gpu_queue("b", 4))
    hog = blocker(bench, "a", 8, tasks=2)
    for gpus in (1, 2, 8):
        bench.submit("a", gpus)
        bench.submit("b", gpus)
    state = bench.engine.state
    state.release(state.jobs[hog], state.jobs[hog].attempt)
    decisions = decide(state.snapshot(), 0)
    assert decisions
    assert decide(state.snapshot(), 0) == decisions
    assert state.tree.root.used == {}
    assert state.space.free_gpus("A100") == 16


def test_second_cycle_starts_nothing_more() -> None:
    bench = cluster(gpu_queue("a"), gpu_queue("b", 4))
    for gpus in (1, 2, 8, 4, 8):
        bench.submit("a", gpus)
        bench.submit("b", gpus)
    assert decide(bench.engine.state.snapshot(), 0) == []
