"""Limits that really limit: by control groups where they can be made, else by rlimits; and that it is said which."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpucluster.runtimes.limits import CpuLimit
from gpucluster.runtimes.supervisor import cgroups
from gpucluster.runtimes.supervisor.confinement import Confinement, Limits
from gpucluster.worker.frames import Kind

from .lab import Lab, cell, command, placement, shell

EATER = "x = []\nwhile True: x.append(bytearray(8 << 20))"
FORKER = "import subprocess\nfor i in range(30): subprocess.Popen(['sleep', '300'])"
NOWHERE = cgroups.Hierarchies({}, None, None)


def groups_can_be_made(controller: str) -> bool:
    places = cgroups.find_hierarchies()
    parent = places.v1.get(controller) or cgroups.v2_parent(places, [controller])
    return parent is not None and os.access(parent, os.W_OK)


needs_groups = pytest.mark.skipif(
    not groups_can_be_made("memory"), reason="no right to make control groups here"
)


def up_status(lab: Lab, attempt: str) -> dict[str, object]:
    statuses = [json.loads(frame.payload) for frame in lab.frames(attempt) if frame.kind is Kind.STATUS]
    return next(status for status in statuses if status["event"] == "up")


@needs_groups
def test_command_over_its_memory_limit_is_killed_and_the_limit_is_named(lab: Lab) -> None:
    attempt = lab.start(command("python3", "-c", EATER), placement(memory=128 << 20))
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.signal, task_exit.oom) == (137, 9, True)
    assert task_exit.reason == "out of memory: limit 128 MiB"
    assert str(up_status(lab, attempt)["limits"]).startswith("cgroup v")


@needs_groups
def test_cell_over_its_memory_limit_is_killed_and_the_limit_is_named(lab: Lab) -> None:
    task_exit = lab.exit(lab.start(cell(EATER), placement(memory=256 << 20)))
    assert task_exit.oom
    assert task_exit.reason == "out of memory: limit 256 MiB"


@needs_groups
def test_child_killed_for_memory_is_named_as_the_cause_of_a_failure(lab: Lab) -> None:
    attempt = lab.start(shell(f"python3 -c '{EATER}'; exit 9"), placement(memory=128 << 20))
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.oom) == (9, True)


@needs_groups
def test_task_without_limits_has_none_and_says_so(lab: Lab) -> None:
    attempt = lab.start(shell("true"))
    assert lab.exit(attempt).code == 0
    assert up_status(lab, attempt)["limits"] == "none: no limit was asked for"


@needs_groups
def test_number_of_processes_is_limited(folder: Path) -> None:
    lab = Lab(folder, pids_limit=10)
    attempt = lab.start(command("python3", "-c", FORKER))
    assert lab.exit(attempt).code == 1
    assert b"Resource temporarily unavailable" in lab.output(attempt, Kind.STDERR)
    lab.close()


@needs_groups
def test_cpu_is_a_quota_only_where_that_is_configured(folder: Path) -> None:
    script = "cat /proc/self/cgroup"
    task_groups = []
    for number, limit in enumerate((CpuLimit.SHARE, CpuLimit.QUOTA)):
        where = folder / str(number)
        where.mkdir()
        lab = Lab(where, cpu_limit=limit)
        attempt = lab.start(shell(f"{script}; {_quota_command()}"), placement(cpu=500))
        assert lab.exit(attempt).code == 0
        task_groups.append(lab.output(attempt).decode().splitlines()[-1])
        lab.close()
    assert task_groups[0].split()[0] in ("-1", "max")
    assert task_groups[1].split()[0] == "50000"


def _quota_command() -> str:
    places = cgroups.find_hierarchies()
    if "cpu" in places.v1:
        return f"cat {places.v1['cpu']}/gpucluster.$GPUCLUSTER_TASK_ID/cpu.cfs_quota_us"
    return f"cat {cgroups.v2_parent(places, ['cpu'])}/gpucluster.$GPUCLUSTER_TASK_ID/cpu.max"


def test_where_no_group_can_be_made_memory_is_kept_by_rlimit_and_cpu_is_said_to_be_free() -> None:
    confinement = Confinement("t.0", Limits(memory_bytes=1 << 30, cpu_milli=1000), NOWHERE)
    assert confinement.means["memory"] == "rlimit"
    assert confinement.means["cpu"] == "none: no control group with this controller may be made here"
    assert confinement.groups == []
    assert not confinement.freeze(True)


def test_rlimit_stops_a_process_that_wants_too_much() -> None:
    confinement = Confinement("t.0", Limits(memory_bytes=200 << 20), NOWHERE)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            confinement.set_rlimits()
            bytearray(400 << 20)
            os.write(writer, b"got it")
        except MemoryError:
            os.write(writer, b"MemoryError")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"MemoryError"
    os.close(reader)
    os.close(writer)


@needs_groups
def test_groups_are_removed_with_the_task(lab: Lab) -> None:
    attempt = lab.start(shell("true"), placement(memory=1 << 30, cpu=1000))
    lab.exit(attempt)
    record = json.loads((lab.task_dir(attempt) / "worker.json").read_text())
    assert record["cgroups"]
    assert not any(os.path.exists(group) for group in record["cgroups"])
