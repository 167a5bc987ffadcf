"""Commits without end and prints what was acknowledged: `python committer.py FOLDER FIRST [network]`. To be killed."""

from __future__ import annotations

import os
import sys

from support.store_samples import ManualClock, sample_attempt, sample_job, started, submitted

from gpucluster.engine.protocols import ChangeSet
from gpucluster.model.jobs import Progress, TaskState
from gpucluster.store import Store
from gpucluster.store import store as store_module


def main(folder: str, first: int, network: bool) -> None:
    if network:
        store_module.network_file_system = lambda path: "nfs"
    store = Store.open(folder, ManualClock())
    number = first
    while True:
        job = sample_job(number)
        store.commit(submitted(job))
        say(f"submitted {number}")
        blob_hash = store.blobs.put_bytes(str(number).encode() * 1000, job.owner.id)
        say(f"blob {blob_hash}")
        attempt = sample_attempt(job)
        attempt.tasks[0].state = TaskState.RUNNING
        store.commit(started(job, attempt))
        say(f"started {number}")
        store.commit(ChangeSet(steps=[(job.id, attempt.id, Progress(step=number))]))
        say(f"step {number}")
        number += 1


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), "network" in sys.argv[3:])
