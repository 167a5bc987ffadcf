"""Which file system a path lies on: on a network one neither shared memory (SQLite's WAL), nor sockets, nor locks are trusted.

The kernel's statfs magic number decides; FUSE is told apart by the name that the mount table gives. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

#: statfs(2) magic numbers of file systems that several machines may have mounted at once.
_NETWORK_MAGIC = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x01021997: "9p",
    0x5346414F: "afs",
    0x6B414653: "kafs",
    0x73757245: "coda",
    0x00C36400: "ceph",
    0x19830326: "beegfs",
    0xAAD7AAEA: "panfs",
    0x7461636F: "ocfs2",
    0x01161970: "gfs2",
    0x20030528: "pvfs2",
    0x013111A8: "ibrix",
}
_NETWORK_TYPES = (*sorted(set(_NETWORK_MAGIC.values())), "fuse", "virtiofs")
_FUSE_MAGIC = 0x65735546
#: FUSE file systems whose data is on this machine. Any other FUSE (sshfs, s3fs, glusterfs, virtiofs …) counts as network.
_LOCAL_FUSE = frozenset(
    {"fuseblk", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.exfat", "fuse.bindfs", "fuse.gocryptfs", "fuse.encfs"}
)  # fmt: skip


def network_file_system(path: str | os.PathLike[str]) -> str | None:
    """The name of the network file system that `path` lies on ("nfs", "fuse.sshfs", …); None for a local one.

    A path that does not exist yet is judged by its nearest existing folder. Where the system cannot be asked (no
    statfs), the mount table alone decides.
    """
    existing = _nearest_existing(Path(path))
    return classify(_statfs_magic(existing), _mount_type(existing))


def classify(magic: int | None, mount_type: str | None) -> str | None:
    """The network file system's name for a statfs magic number and the type in the mount table; None when local."""
    if magic in _NETWORK_MAGIC:
        return _NETWORK_MAGIC[magic]
    if magic == _FUSE_MAGIC:
        return None if mount_type in _LOCAL_FUSE else (mount_type or "fuse")
    if magic is None and mount_type is not None and mount_type not in _LOCAL_FUSE:
        return mount_type if mount_type.startswith(_NETWORK_TYPES) else None
    return None


def _nearest_existing(path: Path) -> Path:
    resolved = Path(os.path.realpath(path))
    for candidate in (resolved, *resolved.parents):
        if candidate.exists():
            return candidate
    return Path("/")


def _statfs_magic(path: Path) -> int | None:
    """`f_type` of statfs(2), the first field of its answer; None where libc has no statfs."""
    statfs = getattr(ctypes.CDLL(None, use_errno=True), "statfs", None)
    if statfs is None or os.uname().sysname != "Linux":
        return None
    answer = ctypes.create_string_buffer(512)  # struct statfs is at most 120 bytes
    if statfs(os.fsencode(path), answer) != 0:
        return None
    word = ctypes.c_uint32 if os.uname().machine == "s390x" else ctypes.c_ulong
    return int(word.from_buffer(answer).value) & 0xFFFFFFFF


def _mount_type(path: Path) -> str | None:
    """The file system type in /proc/self/mountinfo of the mount that holds `path`."""
    try:
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        return next((kind for number, kind in _mounts() if number == wanted), None)
    except OSError:
        return None


def _mounts() -> Iterator[tuple[str, str]]:
    """(major:minor, type) of each mount."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            left, separator, right = line.partition(" - ")
            if separator:
                yield left.split()[2], right.split()[0]
