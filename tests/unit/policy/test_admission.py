"""What is refused at submission, under which field, and with what to ask for instead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.engine_bench import ALICE, BOB, GIB, Bench, gpu_queue, make_node, make_role, make_spec, refusal

from gpucluster.model.errors import Forbidden, InvalidRequest, NeverAsAsked, NotSupported
from gpucluster.model.jobs import JobSpec
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import NodeHealth
from gpucluster.policy.defaults import fill_defaults


@pytest.fixture
def bench() -> Bench:
    queues = [
        gpu_queue("lab"),
        gpu_queue("vision", parent="lab", submit_users=("@vision",)),
        gpu_queue("small", most=4),
        gpu_queue("open"),
    ]
    nodes = [
        make_node("a0", gpu_type="A100", cpu=64, memory=512),
        make_node("t0", gpus=4, gpu_type="T4", cpu=128, memory=64),
    ]
    return Bench(queues, nodes)


def refused(bench: Bench, spec: JobSpec, owner: Any = ALICE) -> Any:
    return refusal(bench.engine.check_admission, spec, owner)


def test_what_fits_is_taken(bench: Bench) -> None:
    bench.engine.check_admission(make_spec("vision", 8), ALICE)
    bench.engine.check_admission(make_spec("open", 0, cpus=128), BOB)


# ---- queue


def test_unknown_queue_lists_the_queues_that_are_open(bench: Bench) -> None:
    error = refused(bench, make_spec("visoin"), BOB)
    assert (type(error), error.field) == (InvalidRequest, "queue")
    assert error.hint == "Queues open to you: small, open."


def test_inner_queue_names_the_queues_below_it(bench: Bench) -> None:
    assert refused(bench, make_spec("lab")).hint == "Submit to one of the queues below it: vision."


def test_closed_queue_is_forbidden(bench: Bench) -> None:
    assert isinstance(refused(bench, make_spec("vision"), BOB), Forbidden)
    bench.engine.check_admission(make_spec("vision"), msgspec.structs.replace(BOB, is_admin=True))
    bench.engine.check_admission(make_spec("vision"), msgspec.structs.replace(BOB, groups=("vision",)))


# ---- never as asked


@pytest.mark.parametrize(
    ("spec", "field", "hint"),
    [
        (make_spec("open", 9), "gpus", "The most you can ask is 8 GPUs per task."),
        (make_spec("open", 5, types=["T4"]), "gpus", "The most you can ask is 4 T4 GPUs per task."),
        (make_spec("open", 1, cpus=129), "cpus", "The most you can ask is 128 CPU cores per task."),
        (make_spec("open", 8, cpus=65), "cpus", "The most you can ask is 64 CPU cores per task."),
        (make_spec("open", 1, cpus=100, memory=65), "memory", "The most you can ask is 64 GiB per task."),
        (make_spec("open", 1, memory=513), "memory", "The most you can ask is 512 GiB per task."),
        (
            make_spec("open", 4, tasks=3, types=["A100"]),
            "tasks",
            "The most you can ask is 2 tasks of this size.",
        ),
        (make_spec("open", 8, tasks=100_000), "tasks", "The most you can ask is 1 task of this size."),
        (make_spec("small", 5), "gpus", "The most you can ask is 4 GPUs."),
        (make_spec("small", 1, tasks=5), "tasks", "The most you can ask is 4 GPUs in all."),
    ],
)
def test_what_can_never_fit_says_the_most_that_can_be_asked(
    bench: Bench, spec: JobSpec, field: str, hint: str
) -> None:
    error = refused(bench, spec)
    assert (type(error), error.field, error.hint) == (NeverAsAsked, field, hint)


def test_gang_of_unequal_roles_that_cannot_fit_is_refused(bench: Bench) -> None:
    roles = (make_role(8, types=["A100"], name="a"), make_role(1, types=["A100"], name="b"))
    assert isinstance(refused(bench, make_spec("open", roles=roles)), NeverAsAsked)


def test_nodes_that_are_out_of_service_count_as_if_they_were_well(bench: Bench) -> None:
    bench.change_node(make_node("a0", bad=range(8)), health=NodeHealth.LOST)
    bench.engine.check_admission(make_spec("open", 8), ALICE)


def test_without_any_node_nothing_is_said_about_size() -> None:
    Bench().engine.check_admission(make_spec(gpus=64), ALICE)


def test_maximum_of_a_type_alone_is_told() -> None:
    bench = Bench([QueueSpec(name="a", max={"gpu/A100": 2000})], [make_node("n0")])
    assert refused(bench, make_spec("a", 4)).hint == "A100 at most 2 GPUs."


# ---- malformed


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (make_spec("open", -1), "gpus"),
        (make_spec("open", tasks=0), "tasks"),
        (make_spec("open", tasks=-3), "tasks"),
        (make_spec("open", cpus=-1), "cpus"),
        (make_spec("open", memory=-1), "memory"),
        (make_spec("open", memory=1e12), "memory"),
        (make_spec("open", tasks=10**9), "tasks"),
        (make_spec("open", roles=[make_role(), make_role()]), "roles"),
        (make_spec("open", types=["X1"]), "gpu-type"),
        (make_spec("open", 0, types=["A100"]), "gpu-type"),
        (make_spec("open", tier=3), "tier"),
        (make_spec("open", time_limit_s=0.0), "time"),
        (make_spec("open", time_limit_s=float("nan")), "time"),
        (make_spec("open", grace_s=-1.0), "grace"),
        (make_spec("open", grace_s=3601.0), "grace"),
        (make_spec("open", grace_s=float("nan")), "grace"),
        (make_spec("open", time_limit_s=float("inf")), "time"),
        (make_spec("open", retries=-1), "retries"),
        (make_spec("open", retries=1001), "retries"),
    ],
)
def test_malformed_request_names_the_field(bench: Bench, spec: JobSpec, field: str) -> None:
    error = refused(bench, spec)
    assert isinstance(error, InvalidRequest)
    assert error.field == field
    assert error.hint


def test_unknown_gpu_type_lists_the_types(bench: Bench) -> None:
    assert refused(bench, make_spec("open", types=["X1"])).hint == "GPU types here: A100, T4."


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (make_spec("open", tier=0), "tier"),
        (make_spec("open", tier=2), "tier"),
        (make_spec("open", priority=5), "priority"),
        (make_spec("open", roles=[msgspec.structs.replace(make_role(), gpus=500)]), "gpus"),
    ],
)
def test_what_a_later_version_brings_is_refused_by_name(bench: Bench, spec: JobSpec, field: str) -> None:
    error = refused(bench, spec)
    assert (type(error), error.field) == (NotSupported, field)


# ---- defaults


def test_default_is_the_nodes_share_of_its_gpus() -> None:
    nodes = [make_node("a0", cpu=64, memory=512)]
    assert fill_defaults(nodes, 2000) == (16000, 128 * GIB)


def test_default_is_that_of_the_leanest_node_that_could_hold_the_task() -> None:
    nodes = [make_node("fat", cpu=64, memory=512), make_node("lean", gpus=4, gpu_type="T4", cpu=8, memory=32)]
    assert fill_defaults(nodes, 1000) == (2000, 8 * GIB)
    assert fill_defaults(nodes, 1000, ("A100",)) == (8000, 64 * GIB)
    assert fill_defaults(nodes, 8000) == (64000, 512 * GIB)


def test_eight_default_jobs_fill_a_node_exactly() -> None:
    bench = Bench([gpu_queue("a")], [make_node("n0", cpu=5, memory=31)])
    cpus, memory = fill_defaults(bench.engine.state.nodes.values(), 1000)
    jobs = [bench.submit("a", 1, cpus=cpus / 1000, memory=memory / GIB) for _ in range(8)]
    assert set(bench.states(*jobs)) == {"starting"}


def test_default_without_gpus_is_a_core_and_a_little_memory() -> None:
    assert fill_defaults([make_node("a0", cpu=64, memory=512)], 0) == (1000, 4 * GIB)
    assert fill_defaults([make_node("a0", cpu=64, memory=64)], 0) == (1000, 1 * GIB)
    assert fill_defaults([], 0) == (1000, 4 * GIB)
