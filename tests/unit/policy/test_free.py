"""The two numbers of free GPUs, in worked examples (policy/free.py)."""

from __future__ import annotations

from support.engine_bench import make_node

from gpucluster.model.queues import QueueSpec
from gpucluster.model.resources import Resources
from gpucluster.model.topology import NodeHealth
from gpucluster.policy.free import FreeGpus, free_gpus, idle_gpus
from gpucluster.policy.space import ClusterSpace
from gpucluster.policy.tree import QueueTree


def queue(
    name: str, gpus: int | None = None, *, parent: str = "root", most: int | None = None, **typed: int
) -> QueueSpec:
    """Amounts in GPUs; `typed` by type."""
    guaranteed = None
    if gpus is not None:
        guaranteed = {"gpu": gpus * 1000, **{f"gpu/{name}": count * 1000 for name, count in typed.items()}}
    return QueueSpec(
        name=name, parent=parent, guaranteed=guaranteed, max=None if most is None else {"gpu": most * 1000}
    )


def free(
    specs: list[QueueSpec], used: dict[str, dict[str, int]] | None = None, **idle: int
) -> dict[str, FreeGpus]:
    """`used` by queue and type and `idle` by type, in GPUs; together they are the cluster."""
    capacity = {f"gpu/{name}": count * 1000 for name, count in idle.items()}
    for amounts in (used or {}).values():
        for gpu_type, count in amounts.items():
            capacity[f"gpu/{gpu_type}"] = capacity.get(f"gpu/{gpu_type}", 0) + count * 1000
    tree = QueueTree(specs, Resources({"gpu": sum(capacity.values()), **capacity}))
    for name, amounts in (used or {}).items():
        held = {f"gpu/{gpu_type}": count * 1000 for gpu_type, count in amounts.items()}
        tree.take(name, {"gpu": sum(held.values()), **held})
    return free_gpus(tree, {f"gpu/{name}": count * 1000 for name, count in idle.items()})


def gpus(numbers: FreeGpus, resource: str = "gpu") -> tuple[float, float, float]:
    """For good, until reclaimed, lent out."""
    return (
        numbers.for_good[resource] / 1000,
        numbers.until_reclaimed[resource] / 1000,
        numbers.lent_out[resource] / 1000,
    )


RESEARCH, BATCH = queue("research", 10, most=16), queue("batch", 6)


def test_idle_cluster_is_for_good_up_to_the_guarantee_and_lent_beyond() -> None:
    found = free([RESEARCH, BATCH], A100=16)
    assert gpus(found["research"]) == (10, 6, 0)
    assert gpus(found["batch"]) == (6, 10, 0)
    assert gpus(found["root"]) == (16, 0, 0)


def test_borrower_finds_nothing_for_good_and_its_lender_sees_what_it_lent() -> None:
    found = free([RESEARCH, BATCH], used={"batch": {"A100": 12}}, A100=4)
    assert gpus(found["batch"]) == (0, 4, 0)
    assert gpus(found["research"]) == (4, 0, 6)


def test_maximum_of_the_queue_or_of_one_above_it_bounds_both_numbers() -> None:
    lab = queue("lab", 8, most=9)
    found = free([lab, queue("vision", 4, parent="lab", most=6), queue("other", 8)], A100=16)
    assert gpus(found["vision"]) == (4, 2, 0)
    assert gpus(found["lab"]) == (8, 1, 0)
    found = free(
        [lab, queue("vision", 4, parent="lab"), queue("nlp", 4, parent="lab"), queue("other", 8)],
        used={"nlp": {"A100": 7}},
        A100=9,
    )
    assert gpus(found["vision"]) == (1, 1, 0), "the lab has one left of its guarantee, two up to its maximum"


def test_type_has_its_own_numbers_and_the_sum_is_of_what_can_be_taken() -> None:
    found = free([queue("vision", 6, A100=2), queue("other", 10)], A100=8, T4=8)
    assert gpus(found["vision"], "gpu/A100") == (2, 6, 0)
    assert gpus(found["vision"], "gpu/T4") == (4, 4, 0), (
        "what the untyped guarantee leaves beside the named type"
    )
    assert gpus(found["vision"]) == (6, 10, 0)
    found = free([queue("vision", 6, A100=2), queue("other", 10)], A100=8)
    assert gpus(found["vision"]) == (2, 6, 0), "of six guaranteed, four are of a type that is all taken"


def test_queue_without_a_guarantee_lives_on_what_is_lent() -> None:
    found = free([queue("vision", 4), queue("open")], A100=8)
    assert gpus(found["open"]) == (0, 8, 0)


def test_where_nobody_is_guaranteed_anything_nobody_can_claim_it_back() -> None:
    found = free([queue("one"), queue("two", most=3)], A100=8)
    assert gpus(found["one"]) == (8, 0, 0)
    assert gpus(found["two"]) == (3, 0, 0)


def test_unset_leaf_stands_on_its_parents_guarantee() -> None:
    found = free([queue("lab", 6), queue("vision", parent="lab"), queue("other", 10)], A100=16)
    assert gpus(found["vision"]) == (6, 10, 0)


def test_use_above_a_maximum_and_guarantees_above_the_cluster_are_tolerated() -> None:
    found = free([queue("a", 50, most=2), queue("b", 50)], used={"a": {"A100": 4}}, A100=4)
    assert gpus(found["a"]) == (0, 0, 0)
    assert gpus(found["b"]) == (4, 0, 4), "guaranteed 50 of a cluster of 8, of which 4 are used by another"


def test_guarantee_on_a_node_that_is_closed_is_not_lent() -> None:
    space = ClusterSpace([make_node("n0", 4), make_node("n1", 4, health=NodeHealth.CORDONED, bad=[0])])
    assert idle_gpus(space) == {"gpu/A100": 4000}
    tree = QueueTree([queue("a", 8)], space.capacity())
    assert gpus(free_gpus(tree, idle_gpus(space))["a"]) == (4, 0, 0)


def test_cluster_without_gpus_has_none_free() -> None:
    assert free([queue("a", 2)])["a"] == FreeGpus({"gpu": 0}, {"gpu": 0}, {"gpu": 0})
