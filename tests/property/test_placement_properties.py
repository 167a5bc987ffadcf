"""Placement against independent brute force on small clusters."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_bench import GIB, make_node, make_role

from gpucluster.model.jobs import TaskPlacement, TaskRole
from gpucluster.model.resources import CPU, MEMORY
from gpucluster.model.topology import Gpu
from gpucluster.policy.gpus import choose_gpus, split_among_tasks, spread_of
from gpucluster.policy.placement import place_gang
from gpucluster.policy.space import ClusterSpace, NodeSpace, topology_cell_counts

TYPES = ("A100", "T4")


@st.composite
def spaces(draw: st.DrawFn) -> ClusterSpace:
    """Up to five nodes in two racks, each partly in use."""
    space = ClusterSpace(
        make_node(
            f"n{index}",
            gpus=draw(st.sampled_from((8, 4, 0))),
            gpu_type=draw(st.sampled_from(TYPES)),
            cpu=draw(st.integers(1, 12)),
            memory=draw(st.integers(1, 12)),
            rack=f"rack-{index % 2}",
        )
        for index in range(draw(st.integers(1, 5)))
    )
    for node in list(space):
        busy = draw(st.sets(st.integers(0, 7)))
        uuids = tuple(gpu.uuid for gpu in node.all_free_gpus() if gpu.index in busy)
        placement = TaskPlacement(
            role="other",
            rank=0,
            local_rank=0,
            node=node.name,
            gpus=uuids,
            resources=TaskRole(cpus=0).request(),
        )
        space.take(f"other-{node.name}", [placement])
    return space


asked = st.builds(
    make_role,
    gpus=st.integers(0, 5),
    tasks=st.integers(1, 6),
    cpus=st.integers(0, 4),
    memory=st.integers(0, 4),
    types=st.sampled_from(((), ("T4",), ("T4", "A100"))),
)


def room(node: NodeSpace, role: TaskRole, gpu_type: str) -> int:
    """How many tasks of the role a node holds with GPUs of this type."""
    counts = [role.count]
    if role.gpus:
        counts.append(len(node.free_gpus(gpu_type)) * 1000 // role.gpus)
    if role.cpus:
        counts.append(node.cpu_free // role.cpus)
    if role.memory:
        counts.append(node.memory_free // role.memory)
    return max(0, min(counts))


@settings(max_examples=300, deadline=None)
@given(spaces(), asked)
def test_gang_of_equal_tasks_gets_a_place_exactly_when_there_is_one(
    space: ClusterSpace, role: TaskRole
) -> None:
    possible = any(
        sum(room(node, role, gpu_type) for node in space) >= role.count
        for gpu_type in role.gpu_types or TYPES
    )
    assert (place_gang(space, [role]) is not None) == possible


@settings(max_examples=300, deadline=None)
@given(spaces(), asked)
def test_gang_of_equal_tasks_takes_the_fewest_nodes_and_one_rack_if_that_will_do(
    space: ClusterSpace, role: TaskRole
) -> None:
    placements = place_gang(space, [role])
    if placements is None:
        return
    (gpu_type,) = {name for p in placements for name in p.resources if name.startswith("gpu/")} or {
        "gpu/A100"
    }
    used = {placement.node for placement in placements}
    enough = [
        nodes
        for size in range(1, len(used) + 1)
        for nodes in combinations(space, size)
        if sum(room(node, role, gpu_type.removeprefix("gpu/")) for node in nodes) >= role.count
    ]
    assert len(used) == len(enough[0])
    if any(len({node.rack for node in nodes}) == 1 for nodes in enough):
        assert len({space[name].rack for name in used}) == 1


@settings(max_examples=300, deadline=None)
@given(spaces(), st.lists(asked, min_size=1, max_size=3))
def test_whatever_is_placed_is_free_and_whole(space: ClusterSpace, many: list[TaskRole]) -> None:
    roles = [make_role(r.gpus // 1000, r.count, cpus=r.cpus / 1000, memory=r.memory / GIB, types=r.gpu_types, name=f"r{i}")
             for i, r in enumerate(many)]  # fmt: skip
    placements = place_gang(space, roles)
    if placements is None:
        return
    assert [placement.rank for placement in placements] == list(range(sum(role.count for role in roles)))
    by_role = {role.name: role for role in roles}
    for node in space:
        here = [placement for placement in placements if placement.node == node.name]
        given_out = [uuid for placement in here for uuid in placement.gpus]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) <= {gpu.uuid for gpu in node.all_free_gpus()}
        assert sum(placement.resources[CPU] for placement in here) <= max(0, node.cpu_free)
        assert sum(placement.resources[MEMORY] for placement in here) <= max(0, node.memory_free)
        assert sorted(placement.local_rank for placement in here) == list(range(len(here)))
    for placement in placements:
        assert len(placement.gpus) * 1000 == by_role[placement.role].gpus


@settings(max_examples=300, deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1), st.data())
def test_chosen_gpus_are_as_close_as_can_be(free_indices: set[int], data: st.DataObject) -> None:
    gpus = make_node("n0").gpus
    free = [gpus[index] for index in sorted(free_indices)]
    count = data.draw(st.integers(1, len(free)))
    sizes = topology_cell_counts(gpus)

    def level(chosen: list[Gpu]) -> int:
        return spread_of(chosen, free, sizes).level

    chosen = choose_gpus(free, count)
    assert len({gpu.uuid for gpu in chosen}) == count
    assert level(chosen) == min(level(list(other)) for other in combinations(free, count))


@settings(max_examples=200, deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1), st.integers(1, 8))
def test_shares_of_tasks_are_disjoint_and_complete(indices: set[int], tasks: int) -> None:
    gpus = make_node("n0").gpus
    chosen = [gpus[index] for index in sorted(indices)][: len(indices) // tasks * tasks]
    shares = split_among_tasks(chosen, tasks)
    assert len(shares) == tasks
    assert sorted(gpu.index for share in shares for gpu in share) == [gpu.index for gpu in chosen]
