"""`kill -9` of a committing process at random instants: whatever it said was committed is there, and nothing by halves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.store_samples import ANNA, ManualClock, damage

from gpucluster.store import Store
from gpucluster.store import store as store_module

ROOT = Path(__file__).parents[3]
KILLS = 12


def commit_until_killed(folder: Path, first: int, delay_s: float, mode: str) -> list[tuple[str, str]]:
    """Start a committer, kill it some time after its first acknowledgement, and give all that it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "server"), str(ROOT / "tests")])}
    script = str(Path(__file__).with_name("committer.py"))
    process = subprocess.Popen(
        [sys.executable, script, str(folder), str(first), mode], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        head = process.stdout.readline()
        time.sleep(delay_s)
    finally:
        process.send_signal(signal.SIGKILL)
    tail = process.stdout.read()
    process.stdout.close()
    process.wait()
    lines = (head + tail).decode().split("\n")[:-1]
    return [(kind, value) for kind, value in (line.split() for line in lines)]


@pytest.mark.parametrize("mode", ["local", "network"])
def test_every_acknowledged_commit_survives_kill_9(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store_module, "network_file_system", lambda path: "nfs" if mode == "network" else None
    )
    seed = int(os.environ.get("GPUCLUSTER_TEST_SEED", "1"))
    chance = random.Random(f"{seed}-{mode}")
    acknowledged: list[tuple[str, str]] = []
    next_number = 1
    for kill in range(KILLS):
        acknowledged += commit_until_killed(tmp_path, next_number, chance.uniform(0, 0.15), mode)
        store = Store.open(tmp_path, ManualClock())
        jobs = {str(job.number): job for job in store.recover().jobs}
        for kind, value in acknowledged:
            told = f"{kind} {value}, kill {kill}, seed {seed}"
            if kind == "blob":
                assert store.blobs.missing([value], ANNA.id) == [], told
            else:
                assert value in jobs, told
            if kind == "started":
                assert jobs[value].attempt is not None, told
                assert len(jobs[value].attempt.tasks) == 2, told
        last_step = max((int(value) for kind, value in acknowledged if kind == "step"), default=None)
        if last_step is not None:
            assert [report.step for report in store.steps(jobs[str(last_step)].id)] == [last_step]
        # Nothing by halves: each job has its history, its event and its submission; numbers have no gaps.
        assert sorted(map(int, jobs)) == list(range(1, len(jobs) + 1))
        assert store.recover().last_seq == len(jobs)
        newest = jobs[str(len(jobs))]
        assert store.history(newest.id)
        assert store.submission(newest.id)
        assert damage(store.folder.database) == []
        next_number = len(jobs) + 1
        store.close()
    assert len(acknowledged) > KILLS
