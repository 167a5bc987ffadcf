"""The bundle: what a node needs to run a task, as one folder named by its content.

Supervisors, fork servers and workers run from it, not from the installed package: an upgrade of the scheduler puts a
new bundle beside the old one, and running tasks keep theirs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_TREES = ("worker", "runtimes/supervisor")
_FILES = ("__init__.py", "runtimes/__init__.py")


def write_bundle(data_dir: str) -> str:
    """Make sure that the bundle of this version stands below `data_dir`; returns its folder. Raises OSError."""
    files = dict(_contents())
    folder = os.path.join(data_dir, "bundle", _digest(files))
    if os.path.isdir(folder):
        return folder
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(folder))
    try:
        for name, content in files.items():
            path = os.path.join(temporary, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        os.chmod(temporary, 0o755)
        os.rename(temporary, folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.isdir(folder):  # else another scheduler process was quicker, with the same content
            raise
    return folder


def prune_bundles(data_dir: str, in_use: set[str]) -> None:
    """Remove bundles of other versions, but for the folders in `in_use` (the current one, and those of live tasks)."""
    root = os.path.join(data_dir, "bundle")
    keep = {os.path.basename(folder) for folder in in_use}
    if os.path.isdir(root):
        for name in os.listdir(root):
            if name not in keep:
                shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _contents() -> Iterator[tuple[str, bytes]]:
    paths = [_PACKAGE / name for name in _FILES]
    for tree in _TREES:
        paths += (_PACKAGE / tree).rglob("*.py")
    for path in sorted(paths):
        yield f"gpucluster/{path.relative_to(_PACKAGE).as_posix()}", path.read_bytes()
    yield "start.py", (_PACKAGE / "worker" / "start.py").read_bytes()


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:32]
