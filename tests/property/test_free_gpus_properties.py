"""What a queue is told about free GPUs, on any tree with any books (policy/free.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpucluster.model.queues import QueueSpec
from gpucluster.model.resources import Resources
from gpucluster.policy.free import free_gpus
from gpucluster.policy.tree import QueueTree

TYPES = ("gpu/A100", "gpu/T4")
RESOURCES = ("gpu", *TYPES)
SOME = st.integers(0, 12).map(lambda count: count * 1000)


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """Guarantees, maxima and use need not fit together, nor into the cluster."""
    names = [f"q{index}" for index in range(draw(st.integers(1, 6)))]
    amounts = st.none() | st.dictionaries(st.sampled_from(RESOURCES), SOME, max_size=3)
    specs = [
        QueueSpec(
            name=name,
            parent=draw(st.sampled_from(["root", *names[:index]])),
            guaranteed=draw(amounts),
            max=draw(amounts),
        )
        for index, name in enumerate(names)
    ]
    capacity = {gpu_type: draw(SOME) for gpu_type in TYPES}
    tree = QueueTree(specs, Resources({"gpu": sum(capacity.values()), **capacity}))
    for leaf in tree.leaves():
        held = {gpu_type: draw(st.integers(0, 4)) * 1000 for gpu_type in TYPES}
        tree.take(leaf.name, {"gpu": sum(held.values()), **held})
    return tree


IDLE = st.fixed_dictionaries({gpu_type: SOME for gpu_type in TYPES})


@given(tree=trees(), idle=IDLE)
def test_free_gpus_are_never_negative_and_never_more_than_lie_idle(
    tree: QueueTree, idle: dict[str, int]
) -> None:
    all_idle = {"gpu": sum(idle.values()), **idle}
    for free in free_gpus(tree, idle).values():
        for resource in RESOURCES:
            for_good, reclaimable = free.for_good[resource], free.until_reclaimed[resource]
            assert min(for_good, reclaimable, free.lent_out[resource]) >= 0
            assert for_good + reclaimable <= all_idle[resource]
        for numbers in (free.for_good, free.lent_out):
            assert set(numbers) == set(RESOURCES)
        assert free.for_good["gpu"] <= sum(free.for_good[gpu_type] for gpu_type in TYPES)


@given(tree=trees(), idle=IDLE)
def test_taking_what_is_free_breaks_no_maximum(tree: QueueTree, idle: dict[str, int]) -> None:
    for name, free in free_gpus(tree, idle).items():
        for resource in RESOURCES:
            amount = free.for_good[resource] + free.until_reclaimed[resource]
            assert not amount or not tree.over_max(name, {resource: amount})


@given(tree=trees(), idle=IDLE)
def test_what_is_free_for_good_is_within_the_guarantee_at_every_level(
    tree: QueueTree, idle: dict[str, int]
) -> None:
    for name, free in free_gpus(tree, idle).items():
        for resource, amount in free.for_good.items():
            for level in tree[name].path():
                if amount and level.guarantee is not None:
                    assert level.used.get(resource, 0) + amount <= level.guaranteed_amount(resource)


@given(tree=trees(), idle=IDLE)
def test_what_is_free_for_good_is_what_the_policy_takes_for_a_claim(
    tree: QueueTree, idle: dict[str, int]
) -> None:
    """One rule in two places: a job of that many GPUs would be a claim, and one of more would not, if there were more."""
    for name, free in free_gpus(tree, idle).items():
        if tree.stands_on(name) is None:
            continue
        for gpu_type in TYPES:
            amount = free.for_good[gpu_type]
            if amount:
                assert tree.is_within_guarantee(name, {"gpu": amount, gpu_type: amount})
            elif idle[gpu_type] and not tree.over_max(name, {"gpu": 1, gpu_type: 1}):
                assert not tree.is_within_guarantee(name, {"gpu": 1, gpu_type: 1})


@given(tree=trees(), idle=IDLE)
def test_lent_out_is_used_by_others_and_guaranteed(tree: QueueTree, idle: dict[str, int]) -> None:
    for name, free in free_gpus(tree, idle).items():
        queue = tree[name]
        for resource, lent in free.lent_out.items():
            used = queue.used.get(resource, 0)
            assert lent <= tree.root.used.get(resource, 0) - used
            assert not lent or used + lent <= queue.guaranteed_amount(resource)
