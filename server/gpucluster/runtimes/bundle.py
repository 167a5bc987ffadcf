"""The bundle: what a node needs to run a task, as one folder named by its content.

Supervisors, fork servers and workers run from it, not from the installed package: an upgrade of the scheduler puts a
new bundle beside the old one, and running tasks keep theirs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..worker.files import read_regular, remove_tree

_PACKAGE = Path(__file__).resolve().parents[1]
_TREES = ("worker", "runtimes/supervisor")
_FILES = ("__init__.py", "runtimes/__init__.py")
_CACHE = "__pycache__"
#: The folder of the bundle that scripts of a command job find `gpucluster` in (worker/for_scripts.py).
SCRIPTS = "scripts"


def write_bundle(data_dir: str) -> str:
    """Make sure that the bundle of this version stands below `data_dir`, whole and as it was written; returns its folder.

    One that is there is read again: it may have been cut off by a power failure, or changed. Raises OSError.
    """
    files = dict(_contents())
    root = os.path.join(data_dir, "bundle")
    folder = os.path.join(root, _digest(files))
    os.makedirs(root, mode=0o700, exist_ok=True)
    if _is_whole(folder, files):
        return folder
    temporary = tempfile.mkdtemp(prefix=".new-", dir=root)
    try:
        _write(temporary, files)
        _put_in_place(temporary, folder, files)
    finally:
        if os.path.lexists(temporary):
            remove_tree(temporary)
    return folder


def _write(folder: str, files: dict[str, bytes]) -> None:
    folders = {folder}
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        folders.update(str(parent) for parent in Path(path).parents if parent.is_relative_to(folder))
        with open(path, "xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    for each in folders:
        os.chmod(each, 0o755)  # whatever the umask
        _sync(each)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(temporary: str, folder: str, files: dict[str, bytes]) -> None:
    """What stands there and is not whole is moved aside; a task that has it open keeps it until bundles are pruned."""
    for _ in range(3):
        try:
            os.rename(temporary, folder)
            _sync(os.path.dirname(folder))
            return
        except OSError as error:
            if not os.path.lexists(folder):
                raise
            if _is_whole(folder, files):  # another scheduler process was quicker
                return
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            os.rename(folder, tempfile.mktemp(prefix=".bad-", dir=os.path.dirname(folder)))
    raise OSError(errno.EEXIST, "the bundle cannot be put in its place", folder)


def _is_whole(folder: str, files: dict[str, bytes]) -> bool:
    """True when the folder holds exactly these files, all of them ours and writable by nobody else.

    Compiled files are removed: whoever could change one could make Python run it in the place of its source.
    """
    found: set[str] = set()
    try:
        if not os.path.isdir(folder) or os.path.islink(folder):
            return False
        for parent, folders, names in os.walk(folder, onerror=_raise):
            if _CACHE in folders:
                folders.remove(_CACHE)
                remove_tree(os.path.join(parent, _CACHE))
            if not all(_is_ours(os.path.join(parent, name)) for name in (".", *folders)):
                return False
            found.update(os.path.relpath(os.path.join(parent, name), folder) for name in names)
        return found == set(files) and all(
            _is_ours(os.path.join(folder, name))
            and read_regular(os.path.join(folder, name), len(content)) == content
            for name, content in files.items()
        )
    except OSError:
        return False


def _is_ours(path: str) -> bool:
    found = os.lstat(path)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode)


def _raise(error: OSError) -> None:
    raise error


def prune_bundles(data_dir: str, in_use: set[str]) -> None:
    """Remove bundles of other versions, but for the folders in `in_use` (the current one, and those of live tasks)."""
    root = os.path.join(data_dir, "bundle")
    keep = {os.path.basename(folder) for folder in in_use}
    if os.path.isdir(root):
        for name in os.listdir(root):
            if name not in keep:
                with contextlib.suppress(OSError):
                    remove_tree(os.path.join(root, name))


def _contents() -> Iterator[tuple[str, bytes]]:
    paths = [_PACKAGE / name for name in _FILES]
    for tree in _TREES:
        paths += (_PACKAGE / tree).rglob("*.py")
    for path in sorted(paths):
        yield f"gpucluster/{path.relative_to(_PACKAGE).as_posix()}", path.read_bytes()
    yield "start.py", (_PACKAGE / "worker" / "start.py").read_bytes()
    yield f"{SCRIPTS}/gpucluster/__init__.py", (_PACKAGE / "worker" / "for_scripts.py").read_bytes()


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:32]
