"""Where gangs go (docs/policies/placement.md and gang.md)."""

from __future__ import annotations

import pytest
from support.engine_bench import make_node, make_role

from gpucluster.model.jobs import TaskPlacement, TaskRole
from gpucluster.model.resources import GPU
from gpucluster.model.topology import Node, NodeHealth
from gpucluster.policy.lacking import lacking_for
from gpucluster.policy.placement import place_gang
from gpucluster.policy.space import ClusterSpace, DoubleHold


class Cluster:
    """A space that is filled by hand."""

    def __init__(self, *nodes: Node) -> None:
        self.space = ClusterSpace(nodes)
        self._count = 0

    def occupy(self, node: str, *indices: int, cpus: int = 0) -> None:
        self._count += 1
        uuids = tuple(f"{node}/{index}" for index in indices)
        role = TaskRole(gpus=len(uuids) * 1000, cpus=cpus * 1000)
        placement = TaskPlacement(
            role="other", rank=0, local_rank=0, node=node, gpus=uuids, resources=role.request()
        )
        self.space.take(f"other-{self._count}", [placement])

    def place(self, *roles: TaskRole, **more: object) -> list[TaskPlacement] | None:
        return place_gang(self.space, roles, **more)  # type: ignore[arg-type]

    def gpus(self, *roles: TaskRole, **more: object) -> list[str]:
        placements = self.place(*roles, **more)
        assert placements is not None
        return [uuid for placement in placements for uuid in placement.gpus]

    def nodes(self, *roles: TaskRole, **more: object) -> list[str]:
        placements = self.place(*roles, **more)
        assert placements is not None
        return [placement.node for placement in placements]


# ---- within a node


def test_two_gpus_come_from_one_switch() -> None:
    cluster = Cluster(make_node("n0"))
    cluster.occupy("n0", 0, 2)
    assert cluster.gpus(make_role(2)) == ["n0/4", "n0/5"]


def test_single_gpu_comes_from_the_most_broken_switch_and_socket() -> None:
    cluster = Cluster(make_node("n0"))
    cluster.occupy("n0", 4, 2, 3)
    assert cluster.gpus(make_role(1)) == ["n0/5"]


def test_four_gpus_come_from_one_socket() -> None:
    cluster = Cluster(make_node("n0"))
    cluster.occupy("n0", 1)
    assert cluster.gpus(make_role(4)) == ["n0/4", "n0/5", "n0/6", "n0/7"]


def test_three_gpus_take_a_whole_switch_and_one_of_its_socket() -> None:
    cluster = Cluster(make_node("n0"))
    cluster.occupy("n0", 0)
    assert cluster.gpus(make_role(3)) == ["n0/1", "n0/2", "n0/3"]


def test_tasks_of_one_node_get_neighbouring_gpus_each() -> None:
    cluster = Cluster(make_node("n0"))
    placements = cluster.place(make_role(2, tasks=4))
    assert placements is not None
    assert [placement.gpus for placement in placements] == [(f"n0/{i}", f"n0/{i + 1}") for i in (0, 2, 4, 6)]


def test_bad_gpus_are_not_given_out() -> None:
    cluster = Cluster(make_node("n0", bad=[0, 1, 2]))
    assert cluster.place(make_role(6)) is None
    assert "n0/0" not in cluster.gpus(make_role(5))


# ---- which node


def test_small_job_goes_to_the_node_that_is_used_already() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n1", 0)
    assert cluster.gpus(make_role(1)) == ["n1/1"]


def test_pair_prefers_a_whole_switch_on_a_used_node_to_an_empty_node() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n1", 0, 4)
    assert set(cluster.nodes(make_role(2))) == {"n1"}


def test_pair_opens_another_node_rather_than_be_torn_between_switches() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n1", 0, 2, 4, 6)
    assert cluster.nodes(make_role(2)) == ["n0"]


def test_cpu_job_does_not_strand_gpus() -> None:
    cluster = Cluster(make_node("gpus"), make_node("plain", gpus=0))
    assert cluster.nodes(make_role(0, cpus=4)) == ["plain"]
    cluster = Cluster(make_node("idle"), make_node("busy"))
    cluster.occupy("busy", *range(8))
    assert cluster.nodes(make_role(0, cpus=4)) == ["busy"]


def test_node_on_which_a_start_failed_is_the_last_resort() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n0", 0)
    assert cluster.nodes(make_role(1), avoid=["n0"]) == ["n1"]
    assert cluster.nodes(make_role(8, tasks=1), avoid=["n1"]) == ["n1"]


@pytest.mark.parametrize("health", [NodeHealth.CORDONED, NodeHealth.LOST])
def test_node_that_is_not_ready_gets_nothing_new(health: NodeHealth) -> None:
    assert Cluster(make_node("n0", health=health)).place(make_role(1)) is None


def test_cpu_and_memory_of_the_node_count() -> None:
    cluster = Cluster(make_node("n0", cpu=8, memory=16), make_node("n1", cpu=4, memory=64))
    assert cluster.nodes(make_role(1, cpus=6)) == ["n0"]
    assert cluster.nodes(make_role(1, memory=32)) == ["n1"]
    assert cluster.place(make_role(1, cpus=6, memory=32)) is None


# ---- gangs


def test_gang_goes_to_one_node_if_one_holds_it() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n0", 0)
    assert set(cluster.nodes(make_role(2, tasks=4))) == {"n1"}


def test_gang_takes_the_fewest_nodes() -> None:
    cluster = Cluster(*(make_node(f"n{i}") for i in range(4)))
    for node in ("n0", "n1"):
        cluster.occupy(node, 0, 1, 2, 3)
    assert set(cluster.nodes(make_role(4, tasks=4))) == {"n2", "n3"}


def test_last_tasks_of_a_gang_go_where_they_fill_best() -> None:
    cluster = Cluster(*(make_node(f"n{i}") for i in range(3)))
    cluster.occupy("n1", 0, 1, 2, 3)
    assert cluster.nodes(make_role(4, tasks=3)) == ["n0", "n0", "n1"]


def test_gang_stays_in_one_rack_if_that_takes_no_more_nodes() -> None:
    cluster = Cluster(
        make_node("a0", rack="a"),
        make_node("b0", rack="b"),
        make_node("a1", rack="a"),
        make_node("b1", rack="b"),
    )
    cluster.occupy("a0", 0)
    assert set(cluster.nodes(make_role(8, tasks=2))) == {"b0", "b1"}


def test_fewest_nodes_count_more_than_one_rack() -> None:
    cluster = Cluster(
        make_node("a0", rack="a"),
        make_node("a1", gpus=4, rack="a"),
        make_node("a2", gpus=4, rack="a"),
        make_node("b0", rack="b"),
    )
    assert set(cluster.nodes(make_role(4, tasks=4))) == {"a0", "b0"}


def test_gang_that_does_not_fit_whole_gets_nothing() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n1", 0)
    assert cluster.place(make_role(8, tasks=2)) is None
    assert cluster.space.free_gpus("A100") == 15


def test_ranks_count_over_the_gang_and_local_ranks_over_the_node() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    placements = cluster.place(make_role(4, tasks=4))
    assert placements is not None
    assert [(p.rank, p.local_rank, p.node) for p in placements] == [
        (0, 0, "n0"),
        (1, 1, "n0"),
        (2, 0, "n1"),
        (3, 1, "n1"),
    ]


def test_roles_of_one_gang_are_placed_together() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n0", 0)
    workers, master = make_role(2, tasks=3, name="worker"), make_role(0, cpus=2, name="master")
    placements = cluster.place(master, workers)
    assert placements is not None
    assert [p.role for p in placements] == ["master", "worker", "worker", "worker"]
    assert {p.node for p in placements} == {"n0"}, "three switches are whole on n0"


def test_large_gang_of_single_gpu_tasks_is_placed_in_bulk() -> None:
    cluster = Cluster(*(make_node(f"n{i}") for i in range(64)))
    placements = cluster.place(make_role(1, tasks=512))
    assert placements is not None
    assert len({uuid for p in placements for uuid in p.gpus}) == 512


# ---- GPU types


def mixed() -> Cluster:
    return Cluster(
        make_node("t", gpu_type="T4"), make_node("a", gpu_type="A100"), make_node("v", gpu_type="V100")
    )


def test_types_are_taken_in_the_order_of_preference() -> None:
    cluster = mixed()
    assert cluster.nodes(make_role(1, types=["V100", "T4"])) == ["v"]
    cluster.occupy("v", *range(8))
    assert cluster.nodes(make_role(1, types=["V100", "T4"])) == ["t"]


def test_job_that_takes_any_type_gets_the_one_of_which_most_are_free() -> None:
    cluster = mixed()
    cluster.occupy("t", 0)
    cluster.occupy("v", 0, 1)
    assert cluster.nodes(make_role(1)) == ["a"]


def test_tasks_of_one_role_get_one_type() -> None:
    assert mixed().place(make_role(8, tasks=2)) is None


def test_placement_names_the_type() -> None:
    placements = mixed().place(make_role(2, types=["T4"]))
    assert placements is not None
    assert placements[0].resources["gpu/T4"] == placements[0].resources[GPU] == 2000


def test_type_at_its_queues_maximum_is_passed_over() -> None:
    assert mixed().nodes(make_role(2, types=["V100", "T4"]), limits={"V100": 1}) == ["t"]


def test_second_role_may_leave_the_first_its_only_type() -> None:
    cluster = Cluster(make_node("t", gpu_type="T4"), make_node("a", gpu_type="A100"))
    any_type, only_t4 = make_role(8, name="any"), make_role(8, types=["T4"], name="t4")
    placements = cluster.place(any_type, only_t4)
    assert placements is not None
    assert [p.node for p in placements] == ["a", "t"]


# ---- what is lacking


def lacking(cluster: Cluster, *roles: TaskRole) -> tuple[str, set[str]]:
    assert cluster.place(*roles) is None
    lack = lacking_for(cluster.space, roles)
    return lack.shortage.value, set(lack.resources)


def test_too_few_gpus_are_told_from_scattered_ones() -> None:
    cluster = Cluster(make_node("n0"), make_node("n1"))
    cluster.occupy("n0", 0, 1, 2)
    cluster.occupy("n1", 0, 1, 2)
    assert lacking(cluster, make_role(8)) == ("fragmentation", {"gpu/A100"})
    assert lacking(cluster, make_role(1, tasks=11)) == ("no_gpus_free", {"gpu/A100"})


def test_cpu_and_memory_are_told_apart() -> None:
    cluster = Cluster(make_node("n0", cpu=8, memory=16))
    cluster.occupy("n0", cpus=6)
    assert lacking(cluster, make_role(1, cpus=4)) == ("no_cpu_free", {"cpu"})
    assert lacking(cluster, make_role(1, memory=32)) == ("no_memory_free", {"memory"})
    assert lacking(cluster, make_role(1, cpus=4, memory=32)) == ("no_cpu_free", {"cpu", "memory"})


def test_cluster_without_open_nodes_says_so() -> None:
    assert lacking(Cluster(), make_role(1, memory=0)) == ("no_nodes", {"gpu", "cpu"})


# ---- the books


def test_gpu_never_gets_a_second_holder() -> None:
    cluster = Cluster(make_node("n0"))
    cluster.occupy("n0", 0)
    with pytest.raises(DoubleHold):
        cluster.occupy("n0", 0)
