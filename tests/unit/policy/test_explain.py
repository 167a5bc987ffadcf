"""Why a job waits: typed, in one sentence, with numbers."""

from __future__ import annotations

import pytest
from support.engine_bench import ALICE, BOB, Bench, gpu_queue, make_node, make_spec

from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import NodeHealth


@pytest.fixture
def bench() -> Bench:
    return Bench([gpu_queue("a", most=12), gpu_queue("b")], [make_node("n0"), make_node("n1")])


def sentence(bench: Bench, job: str, code: str) -> str:
    why = bench.why(job)
    assert (why.verdict, why.code) == ("starts_when", code)
    return why.sentence


def test_too_few_gpus_are_counted(bench: Bench) -> None:
    bench.submit("a", 8)
    bench.submit("b", 7)
    job = bench.submit("b", 2)
    assert sentence(bench, job, "no_gpus_free") == "Needs 2 GPUs: 1 of 16 is free, 15 in use by 2 jobs."
    assert bench.why(job).facts["free"] == 1
    assert bench.why(job).position == 1


def test_gpus_out_of_service_are_named(bench: Bench) -> None:
    bench.submit("b", 8)
    bench.change_node(make_node("n1", bad=[0]), health=NodeHealth.CORDONED)
    job = bench.submit("b", 1)
    assert (
        sentence(bench, job, "no_gpus_free")
        == "Needs 1 GPU: 0 of 16 are free, 8 in use by 1 job, 8 out of service (n1 is cordoned)."
    )


def test_only_the_types_that_were_asked_for_are_counted() -> None:
    bench = Bench([gpu_queue("a")], [make_node("t", gpu_type="T4"), make_node("v", gpu_type="V100")])
    bench.submit("a", 7, types=["V100"])
    job = bench.submit("a", 2, types=["V100"])
    assert sentence(bench, job, "no_gpus_free") == "Needs 2 V100 GPUs: 1 of 8 is free, 7 in use by 1 job."


def test_enough_free_but_scattered_is_fragmentation(bench: Bench) -> None:
    bench.submit("b", 5)
    bench.submit("b", 5)
    job = bench.submit("b", 4)
    assert (
        sentence(bench, job, "fragmentation")
        == "Needs 4 GPUs on one node: 6 are free, but at most 3 on one node."
    )


def test_scattered_gang_says_how_many_tasks_fit(bench: Bench) -> None:
    bench.submit("b", 5)
    bench.submit("b", 5)
    job = bench.submit("b", 2, tasks=3)
    expected = "Needs 3 tasks with up to 2 GPUs on one node each: 6 are free, but only 2 such tasks find a place at once."
    assert sentence(bench, job, "fragmentation") == expected


def test_of_many_closed_nodes_three_are_named() -> None:
    bench = Bench([gpu_queue("a")], [make_node(f"n{index}") for index in range(7)])
    for index in range(1, 7):
        bench.change_node(make_node(f"n{index}"), health=NodeHealth.LOST)
    job = bench.submit("a", 8, tasks=2)
    closed = "n1 is lost, n2 is lost, n3 is lost and 3 more are closed"
    assert sentence(bench, job, "no_gpus_free").endswith(f"48 out of service ({closed}).")


def test_of_several_maxima_in_the_way_that_on_gpus_is_told() -> None:
    limits = {"cpu": 4000, "memory": 64 << 30, "gpu/A100": 4000}
    bench = Bench([QueueSpec(name="a", max=limits)], [make_node("n0")])
    bench.submit("a", 4, cpus=4, memory=64)
    job = bench.submit("a", 1, cpus=1, memory=1)
    assert sentence(bench, job, "queue_max").startswith("Needs 1 GPU; the maximum of queue a leaves")


def test_of_several_maxima_on_the_path_that_on_gpus_is_told() -> None:
    inner = QueueSpec(name="a", max={"gpu": 4000})
    leaf = QueueSpec(name="a.b", parent="a", max={"memory": 64 << 30, "cpu": 4000})
    bench = Bench([inner, leaf], [make_node("n0")])
    bench.submit("a.b", 4, cpus=4, memory=64)
    job = bench.submit("a.b", 1, cpus=1, memory=1)
    assert sentence(bench, job, "queue_max").startswith("Queue a uses 4 GPUs of its maximum of 4 GPUs")


def test_queue_at_its_maximum_says_used_and_maximum(bench: Bench) -> None:
    bench.submit("a", 8)
    bench.submit("a", 2)
    job = bench.submit("a", 4)
    assert (
        sentence(bench, job, "queue_max")
        == "Queue a uses 10 GPUs of its maximum of 12 GPUs; this job needs 4 GPUs."
    )


def test_job_behind_another_says_which_and_why_that_one_waits(bench: Bench) -> None:
    bench.submit("b", 8, tasks=2)
    bench.submit("b", 8)
    bench.submit("b", 1)
    job = bench.submit("b", 1)
    expected = (
        "Number 3 in queue b, behind job 2, which waits: needs 8 GPUs: 0 of 16 are free, 16 in use by 1 job."
    )
    assert sentence(bench, job, "behind") == expected
    assert bench.why(job).facts["behind"] == 2


def test_job_that_may_pass_is_not_said_to_be_behind(bench: Bench) -> None:
    bench.submit("b", 8, tasks=2, cpus=60)
    bench.submit("b", 8)
    job = bench.submit("b", 0, cpus=30)
    assert sentence(bench, job, "no_cpu_free").startswith(
        "Needs 1 task of 30 CPU cores and 1 GiB of memory: at most 4"
    )


def test_cpu_and_memory_shortage_give_what_is_free_beside_the_gpus(bench: Bench) -> None:
    for _ in range(2):
        bench.submit("b", 1, cpus=60, memory=500)
    assert "at most 4 CPU cores are free on a node with these GPUs free" in sentence(
        bench, bench.submit("b", 1, cpus=8), "no_cpu_free"
    )
    assert "at most 12 GiB of memory is free" in sentence(
        bench, bench.submit("a", 1, memory=64), "no_memory_free"
    )


def test_cluster_without_a_node_says_so() -> None:
    bench = Bench()
    assert sentence(bench, bench.submit(), "no_nodes") == "No node has reported yet."


def test_nodes_that_take_nothing_new_are_named(bench: Bench) -> None:
    bench.change_node(make_node("n0"), health=NodeHealth.CORDONED)
    bench.change_node(make_node("n1"), health=NodeHealth.LOST)
    job = bench.submit("b", 1)
    assert sentence(bench, job, "no_nodes") == "No node takes new tasks: n0 is cordoned and n1 is lost."


def test_job_that_the_cluster_can_no_longer_hold_says_never(bench: Bench) -> None:
    bench.submit("b", 8)
    bench.submit("b", 8)
    job = bench.submit("b", 8)
    bench.change_node(make_node("n0", gpus=4))
    bench.change_node(make_node("n1", gpus=4))
    why = bench.why(job)
    assert (why.verdict, why.code) == ("never", "never")
    assert why.sentence == "Never as asked: no node has 8 GPUs. The most you can ask is 4 GPUs per task."


def test_back_off_says_what_failed_and_when_it_goes_on(bench: Bench) -> None:
    job = bench.submit("b", retries=1)
    bench.end(job, code=7)
    assert sentence(bench, job, "back_off") == (
        "Its last attempt did not succeed (ended with exit code 7); it is tried again in 1 s."
    )


def test_dependency_names_the_jobs(bench: Bench) -> None:
    job = bench.submit("b", after=(bench.submit("b"), bench.submit("a")))
    assert sentence(bench, job, "dependency") == "Waits for job 1 (starting) and job 2 (starting) to succeed."


def test_states_after_pending_explain_themselves(bench: Bench) -> None:
    job = bench.submit("b", tasks=2)
    assert bench.why(job).sentence == "The job has its place and is starting: 0 of 2 tasks up."
    bench.start(job)
    assert bench.why(job).sentence == "The job runs on n0."
    bench.stop(job)
    assert bench.why(job).sentence == "The job is being stopped (cancelled): 2 tasks still to end."


# ---- dry run


def test_dry_run_says_where_it_would_start_and_changes_nothing(bench: Bench) -> None:
    plan = bench.engine.dry_run(make_spec("b", 2, cpus=4, memory=8), ALICE, bench.now_us)
    assert plan.starts_now
    assert plan.sentence == (
        "The job would start now on n0 with 2 GPUs, 4 CPU cores and 8 GiB of memory, on capacity that its queue borrows."
    )
    assert plan.placement[0].gpus == ("n0/0", "n0/1")
    assert bench.engine.state.jobs == {}
    assert len(bench.engine.state.pending["b"]) == 0
    assert bench.used("root") == 0


def test_dry_run_says_why_it_would_wait(bench: Bench) -> None:
    bench.submit("b", 8, tasks=2)
    plan = bench.engine.dry_run(make_spec("b", 1), ALICE, bench.now_us)
    assert not plan.starts_now
    assert plan.sentence == "The job would wait. Needs 1 GPU: 0 of 16 are free, 16 in use by 1 job."
    waits_for = bench.engine.dry_run(make_spec("b", 1, after=("job-1",)), ALICE, bench.now_us)
    assert waits_for.sentence == "The job would wait for job 1 to succeed."


def test_dry_run_refuses_what_a_submission_would() -> None:
    bench = Bench([QueueSpec(name="closed", submit_users=("alice",))], [make_node("n0")])
    with pytest.raises(Exception, match="bob may not submit"):
        bench.engine.dry_run(make_spec("closed"), BOB, bench.now_us)
