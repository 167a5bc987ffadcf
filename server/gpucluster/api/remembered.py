"""Which cluster.yaml a data folder was served with last.

A scheduler that is brought back by whoever waits for a job (a notebook, the Jupyter server) does not know what it was
started with by hand. On another cluster's configuration, its jobs' queues would be gone: so the folder remembers.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..model.errors import Unavailable
from .config import BUILT_IN
from .discovery import ENV_CONFIG

REMEMBERED = "served.json"


class Served(msgspec.Struct, frozen=True):
    """`config`: absolute path of the cluster.yaml, or None for the built-in cluster."""

    config: str | None = None


def choose_config(folder: Path, given: str | os.PathLike[str] | None) -> Path | None:
    """What to serve: the given file, $GPUCLUSTER_CONFIG, or what this folder was served with last; None = built-in.

    Raises Unavailable when the remembered file is gone.
    """
    chosen = os.fspath(given) if given else os.environ.get(ENV_CONFIG)
    if chosen:
        return None if chosen == BUILT_IN else Path(chosen).expanduser().resolve()
    remembered = _read(folder / REMEMBERED).config
    if remembered is None:
        return None
    if not os.path.exists(remembered):
        raise Unavailable(
            f"the data folder {folder} was last served with {remembered}, which is not there any more",
            hint=f"Put it back, or start `gpucluster serve --config FILE` ({BUILT_IN!r} for the built-in cluster).",
        )
    return Path(remembered)


def remember_config(folder: Path, config: Path | None) -> None:
    """Note what this folder is served with; called by the one that owns the folder."""
    content = msgspec.json.encode(Served(None if config is None else str(config)))
    target = folder / REMEMBERED
    try:
        if target.read_bytes() == content:
            return
    except OSError:
        pass
    temporary = target.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, target)


def _read(path: Path) -> Served:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Served)
    except (OSError, msgspec.DecodeError):
        return Served()
