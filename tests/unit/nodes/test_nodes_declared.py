"""Declared nodes: what a machine without GPUs shows, and what cluster.yaml declares."""

from __future__ import annotations

from gpucluster.nodes.declared import declared_node, declared_nodes
from gpucluster.nodes.settings import DEFAULT_DECLARATIONS, NodeDeclaration


def test_default_cluster_is_two_nodes_of_eight_simulated_gpus():
    nodes = declared_nodes(DEFAULT_DECLARATIONS)
    assert [node.name for node in nodes] == ["node-0", "node-1"]
    for node in nodes:
        assert node.simulated
        assert len(node.gpus) == 8
        assert all(gpu.simulated for gpu in node.gpus)
        assert node.capacity().to_dict() == {
            "gpu": 8000,
            "gpu/SIM-80G": 8000,
            "cpu": 64_000,
            "memory": 512 << 30,
        }


def test_gpus_of_the_default_node_sit_two_to_a_switch_and_two_switches_to_a_socket():
    gpus = declared_nodes(DEFAULT_DECLARATIONS)[0].gpus
    assert [gpu.switch for gpu in gpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [gpu.socket for gpu in gpus] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_uuids_are_readable_unique_and_the_same_on_every_start():
    first = [gpu.uuid for node in declared_nodes(DEFAULT_DECLARATIONS) for gpu in node.gpus]
    second = [gpu.uuid for node in declared_nodes(DEFAULT_DECLARATIONS) for gpu in node.gpus]
    assert first == second
    assert len(set(first)) == 16
    assert first[3] == "GPU-sim-node-0-3"
    assert not any("," in uuid or " " in uuid for uuid in first)  # CUDA_VISIBLE_DEVICES is a list with commas


def test_fewer_gpus_than_switches_spread_over_both_sockets():
    gpus = declared_node(NodeDeclaration(name="small", gpus=2, switches_per_socket=2)).gpus
    assert [(gpu.socket, gpu.switch) for gpu in gpus] == [(0, 0), (1, 2)]


def test_node_without_gpus_still_offers_cores_and_memory():
    node = declared_node(NodeDeclaration(name="cpu", gpus=0, extra={"license": 2}))
    assert node.gpus == ()
    assert node.capacity().to_dict() == {"cpu": 64_000, "memory": 512 << 30, "license": 2}


def test_nvlink_islands_are_as_declared_and_a_gpu_outside_them_has_none():
    gpus = declared_node(NodeDeclaration(name="n", gpus=4, nvlink=((0, 1), (2,)))).gpus
    assert [gpu.nvlink_island for gpu in gpus] == [0, 0, 1, None]
    assert {gpu.nvlink_island for gpu in declared_node(NodeDeclaration(name="n", nvlink=())).gpus} == {None}
