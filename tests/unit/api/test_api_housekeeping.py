from __future__ import annotations

import os
from pathlib import Path

from gpucluster.api.config import ClusterConfig, Retention
from gpucluster.api.housekeeping import folder_bytes, retention_policy


def test_inputs_that_attempts_share_count_once_in_sum(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(b"x" * 1_000_000)
    for number in range(5):
        (tmp_path / f"a{number}/inputs").mkdir(parents=True)
        os.link(blob, tmp_path / f"a{number}/inputs/buffer.0")
    measured = [folder_bytes(tmp_path / f"a{number}") for number in range(5)]
    assert sum(measured) == 5 * (1_000_000 // 6)


def test_hole_in_a_file_takes_no_room(tmp_path: Path) -> None:
    """Else a job could push out everybody's logs with a file that takes nothing."""
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
    assert folder_bytes(tmp_path) < 1 << 20


def test_caps_of_the_configuration_reach_the_store_in_bytes() -> None:
    config = ClusterConfig(retention=Retention(events_bytes=5_000_000, logs_bytes=7))
    policy = retention_policy(config)
    assert (policy.events_max_bytes, policy.logs_max_bytes) == (5_000_000, 7)
