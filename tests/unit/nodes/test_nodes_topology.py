"""Topology cells, islands, product names, and what the kernel says about the machine."""

from __future__ import annotations

import pytest

from gpucluster.nodes.declared import declared_nodes
from gpucluster.nodes.gpu_types import gpu_type
from gpucluster.nodes.host import Host, sysfs_bus_id
from gpucluster.nodes.settings import DEFAULT_DECLARATIONS, GpuTypeSettings
from gpucluster.nodes.topology import components, islands, topology_cells


def test_cells_of_the_default_cluster_form_a_tree_in_which_every_gpu_has_one_cell_per_level():
    cells = topology_cells(declared_nodes(DEFAULT_DECLARATIONS))
    by_level = {}
    for cell in cells:
        by_level.setdefault(cell.level, []).append(cell)
    assert {level: len(found) for level, found in by_level.items()} == {
        "cluster": 1, "rack": 1, "node": 2, "socket": 4, "switch": 8, "gpu": 16,
    }  # fmt: skip
    for found in by_level.values():
        gpus = [gpu for cell in found for gpu in cell.gpus]
        assert len(gpus) == len(set(gpus)) == 16
    by_id = {cell.id: cell for cell in cells}
    for cell in cells:
        assert cell.parent is None or set(cell.gpus) <= set(by_id[cell.parent].gpus)


def test_cells_bear_the_level_names_of_the_site():
    levels = ("gpu", "plx", "numa", "node", "row", "cluster")
    cells = topology_cells(declared_nodes(DEFAULT_DECLARATIONS), levels)
    assert "rack-0/node-0/numa-1/plx-2" in {cell.id for cell in cells if cell.level == "plx"}


def test_components_join_what_is_linked_through_others():
    links = {(0, 2), (2, 4), (1, 3)}
    assert components(5, lambda a, b: (a, b) in links or (b, a) in links) == [0, 1, 0, 1, 0]


def test_gpus_on_one_switch_fabric_are_one_island_together_with_what_is_linked_to_them():
    assert islands(4, [(2, 3)], [0, 1]) == [0, 0, 1, 1]
    assert islands(4, [(1, 2)], [0, 1]) == [0, 0, 0, None]
    assert islands(2, [], []) == [None, None]


@pytest.mark.parametrize(
    ("product", "wanted"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX-3080-Ti"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Blackwell"),
        ("NVIDIA TITAN V", "TITAN-V"),
        ("", "GPU"),
        ("???", "GPU"),
    ],
)
def test_product_names_become_the_types_people_ask_for(product, wanted):
    assert gpu_type(product) == wanted


def test_types_of_the_site_come_first():
    types = [GpuTypeSettings(name="small", products=("Tesla T4",))]
    assert gpu_type("Tesla T4", types) == "small"
    assert gpu_type("NVIDIA L4", types) == "L4"


def test_bus_ids_are_written_as_the_kernel_does():
    assert sysfs_bus_id("00000000:3B:00.0") == "0000:3b:00.0"
    assert sysfs_bus_id("0001:3b:00.0") == "0001:3b:00.0"


@pytest.fixture
def machine(tmp_path):
    """Writes files below a root and gives the Host that reads them."""

    def write(**files: str) -> Host:
        for path, text in files.items():
            file = tmp_path / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Host(tmp_path)

    return write


def test_cgroup_v2_limits_of_any_ancestor_count(machine):
    host = machine(
        proc__self__cgroup="0::/jobs/mine\n",
        **{
            "sys__fs__cgroup__jobs__mine__cpu.max": "max 100000\n",
            "sys__fs__cgroup__jobs__cpu.max": "50000 100000\n",
            "sys__fs__cgroup__jobs__mine__memory.max": "max\n",
            "sys__fs__cgroup__jobs__memory.max": "1073741824\n",
        },
    )
    assert host.cpu_milli() == 500
    assert host.memory_bytes() == 1 << 30


def test_cgroup_v1_limits_count_and_its_huge_number_means_none(machine):
    host = machine(
        proc__self__cgroup="4:cpu,cpuacct:/box\n3:memory:/box\n",
        **{
            "sys__fs__cgroup__cpu__box__cpu.cfs_quota_us": "150000",
            "sys__fs__cgroup__cpu__box__cpu.cfs_period_us": "100000",
            "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "-1",
            "sys__fs__cgroup__memory__box__memory.limit_in_bytes": "2147483648",
            "sys__fs__cgroup__memory__memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert host.cpu_milli() <= 1500
    assert host.memory_bytes() == 2 << 30


def test_machine_without_any_of_these_files_has_its_cores_and_memory(tmp_path):
    host = Host(tmp_path)
    assert host.cpu_milli() >= 1000
    assert host.memory_bytes() > 0
    assert host.nics() == []
    assert host.numa_node("00000000:3B:00.0") is None


def test_network_cards_are_hardware_only_with_their_numa_node(machine):
    host = machine(
        **{
            "sys__class__net__eth0__device__numa_node": "1\n",
            "sys__class__net__lo__mtu": "65536",
            "sys__class__infiniband__mlx5_0__device__numa_node": "-1\n",
        }
    )
    assert [tuple(nic) for nic in host.nics()] == [("eth0", 1, False), ("mlx5_0", None, True)]
