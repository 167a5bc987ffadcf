"""Control groups of one task, v1 and v2: where they can be made, what they limit, how the tree in them is frozen or killed.

Nothing here needs root as such: a folder that may be written is enough (a delegated subtree, a container, root).
Controllers of the v2 hierarchy must be enabled already by whoever delegated the subtree; only at its true root are
they enabled here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

PREFIX = "gpucluster."


class Hierarchies(NamedTuple):
    """Where a process stands. `v1`: controller → folder; `v2`: folder, with the mount point above which it cannot go."""

    v1: dict[str, str]
    v2: str | None
    v2_mount: str | None


def find_hierarchies(mountinfo: str | None = None, membership: str | None = None) -> Hierarchies:
    """The groups of this process (from /proc/self/mountinfo and /proc/self/cgroup, or their given text)."""
    paths = _memberships(_read("/proc/self/cgroup") if membership is None else membership)
    v1: dict[str, str] = {}
    v2 = v2_mount = None
    for fields in _mounts(_read("/proc/self/mountinfo") if mountinfo is None else mountinfo):
        root, mount, kind, options = fields[3], fields[4], fields[5], fields[7]
        if kind == "cgroup2" and v2 is None:
            v2, v2_mount = _below(mount, root, paths.get("")), mount
        for controller in options.split(",") if kind == "cgroup" else ():
            folder = _below(mount, root, paths.get(controller))
            if folder:
                v1.setdefault(controller, folder)
    return Hierarchies(v1, v2, v2_mount)


def own(groups: Iterable[object], task_id: str) -> list[str]:
    """Those of the groups, as a file names them, that are surely a task's: of its name, and below a cgroup mount."""
    mounts = [fields[4] + "/" for fields in _mounts(_read("/proc/self/mountinfo"))]
    found = []
    for group in groups:
        if not isinstance(group, str) or os.path.basename(group) != PREFIX + task_id:
            continue
        if os.path.realpath(group) == group and group.startswith(tuple(mounts)):
            found.append(group)
    return found


def _mounts(mountinfo: str) -> Iterator[list[str]]:
    """The fields of the cgroup mounts in mountinfo, those behind the dash appended."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            yield [*fields[:5], *kind]


def _memberships(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if number != "0" else [""]:
            found[controller] = path
    return found


def _below(mount: str, root: str, path: str | None) -> str | None:
    """The folder of group `path` in a mount that shows the hierarchy from `root` on."""
    if path is None:
        return None
    if root != "/":
        if path != root and not path.startswith(root + "/"):
            return None
        path = path[len(root) :]
    folder = os.path.join(mount, path.lstrip("/")).rstrip("/")
    return folder if os.path.isdir(folder) else None


def v2_parent(places: Hierarchies, controllers: Iterable[str]) -> str | None:
    """The nearest folder, from our own upwards, in which a group with these controllers can be made."""
    folder, needed = places.v2, set(controllers)
    while folder and places.v2_mount:
        if os.access(folder, os.W_OK) and needed <= _enabled(folder, needed):
            return folder
        if folder == places.v2_mount or len(folder) <= len(places.v2_mount):
            return None
        folder = os.path.dirname(folder)
    return None


def _enabled(folder: str, needed: set[str]) -> set[str]:
    control = os.path.join(folder, "cgroup.subtree_control")
    enabled = set(_read(control).split())
    is_true_root = not os.path.exists(os.path.join(folder, "cgroup.type"))
    missing = needed - enabled
    if missing and is_true_root and missing <= set(_read(os.path.join(folder, "cgroup.controllers")).split()):
        with contextlib.suppress(OSError):
            write(control, " ".join(f"+{name}" for name in sorted(missing)))
        enabled = set(_read(control).split())
    return enabled


def write(path: str, text: str) -> None:
    """Write in one system call, so that the kernel's refusal is seen. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_counter(path: str, name: str) -> int:
    """The number beside `name` in a file of `name number` lines; 0 when it is not there."""
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0


def members(group: str) -> set[int]:
    """Pids in the group and in groups that the task made below it."""
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        found.update(int(pid) for pid in _read(os.path.join(folder, "cgroup.procs")).split())
    return found


def can_freeze(group: str) -> bool:
    return any(os.path.exists(os.path.join(group, name)) for name in ("cgroup.freeze", "freezer.state"))


def freeze(group: str, frozen: bool) -> None:
    """Stop all processes in the group where they stand, or let them go on. Raises OSError."""
    if os.path.exists(os.path.join(group, "cgroup.freeze")):
        write(os.path.join(group, "cgroup.freeze"), "1" if frozen else "0")
    else:
        write(os.path.join(group, "freezer.state"), "FROZEN" if frozen else "THAWED")


def kill(group: str) -> bool:
    """SIGKILL everything in the group at once; False where the kernel cannot (v1, or before 5.14)."""
    try:
        write(os.path.join(group, "cgroup.kill"), "1")
    except OSError:
        return False
    return True


def remove(groups: Iterable[str], patience_s: float = 1.0) -> None:
    """Remove groups whose processes have ended; the kernel may need a moment to see that they have."""
    for group in groups:
        deadline = time.monotonic() + patience_s
        while os.path.isdir(group) and not _remove_tree(group) and time.monotonic() < deadline:
            time.sleep(0.005)


def _remove_tree(group: str) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not os.path.isdir(group)
