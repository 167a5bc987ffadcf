from __future__ import annotations

from pathlib import Path

import pytest

from gpucluster.store.filesystem import classify, network_file_system


@pytest.mark.parametrize(
    ("magic", "mount_type", "expected"),
    [
        (0x6969, "nfs4", "nfs"),
        (0xFF534D42, "cifs", "cifs"),
        (0xFE534D42, "cifs", "smb2"),
        (0x01021997, "9p", "9p"),
        (0x0BD00BD0, "lustre", "lustre"),
        (0x47504653, "gpfs", "gpfs"),
        (0x65735546, "fuse.sshfs", "fuse.sshfs"),
        (0x65735546, "virtiofs", "virtiofs"),
        (0x65735546, None, "fuse"),
    ],
)
def test_network_file_systems_are_named(magic: int, mount_type: str | None, expected: str) -> None:
    assert classify(magic, mount_type) == expected


@pytest.mark.parametrize(
    ("magic", "mount_type"),
    [(0xEF53, "ext4"), (0x01021994, "tmpfs"), (0x9123683E, "btrfs"), (0x65735546, "fuse.fuse-overlayfs")],
)
def test_local_file_systems_are_not_network(magic: int, mount_type: str) -> None:
    assert classify(magic, mount_type) is None


def test_without_statfs_the_mount_table_decides() -> None:
    assert classify(None, "nfs4") == "nfs4"
    assert classify(None, "fuse.sshfs") == "fuse.sshfs"
    assert classify(None, "ext4") is None
    assert classify(None, None) is None


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert network_file_system(tmp_path / "not" / "there") == network_file_system(tmp_path)


def test_proc_and_memory_are_local() -> None:
    assert network_file_system("/proc") is None
    assert network_file_system("/dev/shm") is None
