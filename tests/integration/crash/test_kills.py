"""Kill -9 of every kind of process, many times, under a stream of submissions: acknowledged = ended exactly once.

`SOAK_KILLS` sets how many (default 200), `SOAK_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Killer, Scheduler, Submitter, task_processes, wait_for_end

KILLS = int(os.environ.get("SOAK_KILLS", "200"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
SUBMITTERS = 2
ENDED = {"succeeded", "failed", "cancelled"}


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gpc-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(1500 + KILLS)
def test_every_acknowledged_job_ends_exactly_once_whatever_is_killed(folder: Path) -> None:
    print(f"\nSOAK_SEED={SEED} SOAK_KILLS={KILLS}")
    scheduler = Scheduler(folder)
    scheduler.start()
    witness = folder / "witness"
    witness.mkdir()
    scheduler.client().close()
    submitters = [Submitter(scheduler, witness, SEED + i) for i in range(SUBMITTERS)]
    for submitter in submitters:
        submitter.start()
    killer = Killer(scheduler, SEED)
    try:
        while sum(killer.kills.values()) < KILLS:
            killer.kill_one()
        for submitter in submitters:
            submitter.stopping.set()
        for submitter in submitters:
            submitter.join(120)
            assert not submitter.is_alive()
            assert submitter.fault is None, repr(submitter.fault)
        acknowledged = {job: key for submitter in submitters for job, key in submitter.acknowledged.items()}
        print(f"kills: {dict(killer.kills)}; acknowledged: {len(acknowledged)} jobs")
        assert min(killer.kills[kind] for kind in ("scheduler", "supervisor", "worker")) > 0
        assert len(acknowledged) >= KILLS // 10
        check(scheduler, acknowledged, witness)
    finally:
        scheduler.stop()


def check(scheduler: Scheduler, acknowledged: dict[str, str], witness: Path) -> None:
    with scheduler.client() as client:
        views = wait_for_end(client, list(acknowledged), timeout_s=600)
        for job_id, key in acknowledged.items():
            view = views[job_id]
            story = "\n".join(f"{entry.from_state} → {entry.to_state}: {entry.cause} {entry.detail or ''}"
                              for entry in client.history(job_id))  # fmt: skip
            lines = (witness / f"{key}.log").read_text().splitlines()
            told = f"job {view.number} ({view.state}: {view.reason}), seed {SEED}\n{story}\n" + "\n".join(
                lines
            )
            assert view.state == "succeeded", told
            ends = [entry for entry in client.history(job_id) if entry.to_state in ENDED]
            assert len(ends) == 1, told
            assert not any(line.startswith("OVERLAP") for line in lines), told
            begins = Counter(tuple(line.split()[1:3]) for line in lines if line.startswith("begin"))
            assert all(count == 1 for count in begins.values()), told
            last = {line.split()[2] for line in lines if line.startswith("end")}
            assert str(view.attempts_made) in last, told
            output = b"".join(item.payload or b"" for item in client.log(job_id) if item.kind == "stdout")
            assert output.endswith(b"working\ndone\n"), told
        assert not client.jobs(states=["pending", "starting", "running", "stopping"]).jobs
        used = {queue.name: queue.used for queue in client.queues() if any(queue.used.values())}
        assert not used, "all has ended, and the books still count something as used"
    deadline = time.monotonic() + 30
    while task_processes(scheduler.data) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not task_processes(scheduler.data), "processes of ended tasks are left"
