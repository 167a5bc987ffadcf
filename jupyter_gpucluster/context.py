"""What a job needs to know of where it was submitted (DESIGN section 4, *Environment*): notebook, cell, commit,
interpreter, working directory, import path. The environment is gpucluster.api.environment's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gpucluster.api import environment

#: VS Code's ids are addresses with the path of the notebook in them; what tells cells apart stands at their end.
_CELL_ID_LENGTH = 200


def import_path(entries: Iterable[str] | None = None, beside: str | None = None) -> list[str]:
    """sys.path as the job gets it: what is there, in order, once each.

    "" stays: it stands for the working directory, over there as here. `beside`: a folder that takes its place as well when
    the job gets another working directory, so that modules beside the notebook are still found.
    """
    kept: list[str] = []
    for entry in sys.path if entries is None else entries:
        if not isinstance(entry, str) or (entry and not os.path.exists(entry)):
            continue
        for each in [entry, beside] if not entry and beside else [os.path.abspath(entry) if entry else ""]:
            if each is not None and each not in kept:
                kept.append(each)
    return kept


def working_directory() -> str | None:
    """None when it has been deleted under the kernel."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def notebook_path(user_ns: Mapping[str, Any] | None = None) -> str | None:
    """The notebook that this kernel belongs to, as its front end names it; None where nothing says so."""
    said = os.environ.get("JPY_SESSION_NAME") or (user_ns or {}).get("__vsc_ipynb_file__")
    return str(said) if said else None


def cell_id(shell: Any) -> str | None:
    """The id of the cell that runs now, when the front end sent one with the request."""
    found = (_request(shell).get("metadata") or {}).get("cellId")
    return str(found)[-_CELL_ID_LENGTH:] if found else None


def cell_source(shell: Any) -> str | None:
    """The text of the cell that runs now, magics and all; None where no front end asked for it."""
    found = (_request(shell).get("content") or {}).get("code")
    return str(found) if found else None


def execution_count(shell: Any) -> int | None:
    """The number of the cell that runs now, as in In [7]. `shell.execution_count` is that one or the next, by version."""
    return getattr(getattr(shell, "displayhook", None), "prompt_count", None)


def _request(shell: Any) -> Mapping[str, Any]:
    """The message of the front end that the kernel deals with now."""
    get_parent = getattr(shell, "get_parent", None)
    if get_parent is None:
        return {}
    try:
        return get_parent() or {}
    except LookupError:
        return {}


_commits: dict[str, tuple[float, str | None]] = {}


def git_commit(folder: str | None) -> str | None:
    """The commit that `folder`'s work tree stands on; None outside a repository or without git. Cached until HEAD moves."""
    if folder is None:
        return None
    git_dir = _git_dir(folder)
    if git_dir is None:
        return None
    stamp = _head_stamp(git_dir)
    known = _commits.get(git_dir)
    if known is None or known[0] != stamp:
        known = (stamp, environment.git_commit(folder))
        _commits[git_dir] = known
    return known[1]


def _git_dir(folder: str) -> str | None:
    """The .git (a folder, or the file of a worktree) at or above `folder`; looking for it needs no process."""
    here = os.path.abspath(folder)
    while True:
        candidate = os.path.join(here, ".git")
        if os.path.exists(candidate):
            return candidate
        parent = os.path.dirname(here)
        if parent == here:
            return None
        here = parent


def _head_stamp(git_dir: str) -> float:
    """Changes when HEAD does: a commit appends to logs/HEAD, a checkout rewrites HEAD. -1 = cannot tell, ask again."""
    times = []
    for name in ("logs/HEAD", "HEAD"):
        try:
            times.append(os.stat(os.path.join(git_dir, name)).st_mtime_ns)
        except OSError:
            continue
    return float(max(times, default=-1))
