"""A full data disk: tasks run on and end as they would, what is lost is said; nothing new starts half done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.engine.events import TaskStartFailed
from gpucluster.worker.frames import Kind

from .lab import Lab, shell, wait_until


@pytest.fixture
def small_lab(folder: Path) -> Iterator[Lab]:
    data = folder / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(data)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no right to mount a small disk here: {done.stderr.strip()}")
    lab = Lab(folder)
    yield lab
    lab.close()
    subprocess.run(["umount", "-l", str(data)], check=True)


def fill(lab: Lab) -> Path:
    path = lab.data_dir / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return path
    raise AssertionError


def statuses(lab: Lab, attempt: str) -> list[dict[str, object]]:
    return [json.loads(frame.payload) for frame in lab.frames(attempt) if frame.kind is Kind.STATUS]


def test_task_on_a_full_disk_ends_as_it_would_and_says_what_was_lost(small_lab: Lab) -> None:
    lab = small_lab
    script = "echo before; touch $GPUCLUSTER_TASK_DIR.ready; until [ -e $GO ]; do sleep 0.01; done;"
    script += "head -c 100000 /dev/zero; exit 7"
    go = lab.runtime_dir / "go"
    attempt = lab.start(shell(script, env={"GO": str(go)}))
    wait_until(lab.mark(attempt, "ready").exists)
    wait_until(lambda: lab.output(attempt) == b"before\n")
    fill(lab)
    go.touch()
    task_exit = lab.exit(attempt)
    assert task_exit.code == 7
    assert "ended with exit code 7" in (task_exit.reason or "")
    assert "bytes of output were lost: No space left on device" in (task_exit.reason or "")
    assert lab.output(attempt).startswith(b"before\n")


def test_output_goes_on_when_there_is_room_again_and_the_gap_is_said(small_lab: Lab) -> None:
    lab = small_lab
    go, written, again = (lab.runtime_dir / name for name in ("go", "written", "again"))
    script = (
        "touch $GPUCLUSTER_TASK_DIR.ready; until [ -e $GO ]; do sleep 0.01; done; head -c 1000000 /dev/zero;"
        "touch $WRITTEN; until [ -e $AGAIN ]; do sleep 0.01; done; echo after"
    )
    attempt = lab.start(shell(script, env={"GO": str(go), "WRITTEN": str(written), "AGAIN": str(again)}))
    wait_until(lab.mark(attempt, "ready").exists)
    filler = fill(lab)
    go.touch()
    wait_until(written.exists)
    filler.unlink()
    again.touch()
    task_exit = lab.exit(attempt)
    assert task_exit.code == 0
    assert "output were lost" in (task_exit.reason or "")
    assert lab.output(attempt).endswith(b"after\n")
    gap = [status for status in statuses(lab, attempt) if status["event"] == "truncated"]
    assert len(gap) == 1
    assert gap[0]["reason"] == "No space left on device"


def test_nothing_starts_half_done_on_a_full_disk(small_lab: Lab) -> None:
    lab = small_lab
    fill(lab)
    event = lab.last(lab.start(shell("true")))
    assert isinstance(event, TaskStartFailed)
    assert event.retry
    assert "No space left on device" in event.reason
