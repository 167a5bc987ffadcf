"""Where groups can be made, read from texts and folders as the kernel shows them (v2 is not at hand everywhere)."""

from __future__ import annotations

from pathlib import Path

from gpucluster.runtimes.supervisor import cgroups
from gpucluster.runtimes.supervisor.confinement import Confinement, Limits


def mount_line(root: str, at: Path, kind: str, options: str) -> str:
    return f"30 20 0:26 {root} {at} rw,nosuid shared:9 - {kind} {kind} rw,{options}\n"


def make_v2(at: Path, enabled: dict[str, str]) -> cgroups.Hierarchies:
    """A v2 tree of folders; `enabled`: subtree_control by folder. Our own group is the deepest."""
    deepest = ""
    for name, controllers in enabled.items():
        folder = at / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(controllers)
        (folder / "cgroup.controllers").write_text("cpu memory pids")
        if name:
            (folder / "cgroup.type").write_text("domain")
        deepest = name
    return cgroups.find_hierarchies(mount_line("/", at, "cgroup2", "nsdelegate"), f"0::/{deepest}\n")


def test_own_folder_is_found_in_each_v1_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "memory" / "jobs" / "a").mkdir(parents=True)
    (tmp_path / "cpu").mkdir()
    mounts = mount_line("/", tmp_path / "memory", "cgroup", "memory") + mount_line(
        "/", tmp_path / "cpu", "cgroup", "cpu,cpuacct"
    )
    places = cgroups.find_hierarchies(mounts, "3:memory:/jobs/a\n2:cpu,cpuacct:/\n")
    assert places.v1["memory"] == str(tmp_path / "memory" / "jobs" / "a")
    assert places.v1["cpu"] == places.v1["cpuacct"] == str(tmp_path / "cpu")
    assert places.v2 is None


def test_container_that_sees_its_part_of_the_hierarchy_only_finds_itself_in_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    mounts = mount_line("/docker/abc", tmp_path, "cgroup", "memory")
    assert cgroups.find_hierarchies(mounts, "3:memory:/docker/abc/inner\n").v1["memory"] == str(
        tmp_path / "inner"
    )
    assert cgroups.find_hierarchies(mounts, "3:memory:/elsewhere\n").v1 == {}


def test_v2_group_goes_to_the_nearest_ancestor_that_has_the_controllers(tmp_path: Path) -> None:
    enabled = {
        "": "cpu memory pids",
        "user": "cpu memory pids",
        "user/app": "memory pids",
        "user/app/lab": "",
    }
    places = make_v2(tmp_path, enabled)
    assert cgroups.v2_parent(places, ["memory"]) == str(tmp_path / "user" / "app")
    assert cgroups.v2_parent(places, ["memory", "cpu"]) == str(tmp_path / "user")
    assert cgroups.v2_parent(places, ["io"]) is None


def test_controllers_are_enabled_only_at_the_true_root(tmp_path: Path) -> None:
    places = make_v2(tmp_path, {"": "", "user": ""})
    (tmp_path / "cgroup.type").write_text("domain")  # a namespace's root is none
    assert cgroups.v2_parent(places, ["memory"]) is None
    assert (tmp_path / "cgroup.subtree_control").read_text() == ""
    (tmp_path / "cgroup.type").unlink()
    cgroups.v2_parent(places, ["memory"])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_limits_of_a_v2_group_are_written_as_the_kernel_wants_them(tmp_path: Path) -> None:
    places = make_v2(tmp_path, {"": "cpu memory pids"})
    group = tmp_path / "gpucluster.t.0"
    group.mkdir()
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.weight", "cpu.max"):
        (group / name).touch()
    made = Confinement("t.0", Limits(memory_bytes=1 << 30, cpu_milli=2500, pids=100, cpu_hard=True), places)
    assert made.how == "cgroup v2"
    assert made.groups == [str(group)]
    assert made.tree_group == str(group)
    written = {path.name: path.read_text() for path in group.iterdir()}
    assert written == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "pids.max": "100",
        "cpu.weight": "250",
        "cpu.max": "250000 100000",
    }


def test_group_that_refuses_the_process_is_given_up_and_said(tmp_path: Path) -> None:
    places = make_v2(tmp_path, {"": "cpu memory pids"})
    group = tmp_path / "gpucluster.t.0"
    group.mkdir()
    (group / "cpu.weight").touch()
    made = Confinement("t.0", Limits(cpu_milli=1000), places)
    made.give_up(str(group), "Permission denied")
    assert made.how == "none: Permission denied"
    assert made.groups == []
    assert made.tree_group is None


def test_oom_kills_are_counted_in_v2(tmp_path: Path) -> None:
    places = make_v2(tmp_path, {"": "memory"})
    group = tmp_path / "gpucluster.t.0"
    group.mkdir()
    (group / "memory.max").touch()
    made = Confinement("t.0", Limits(memory_bytes=1 << 20), places)
    assert made.oom_kills() == 0
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    assert made.oom_kills() == 2
