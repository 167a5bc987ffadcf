"""What a job needs to know of where it was submitted (DESIGN section 4, *Environment*): notebook, cell, commit,
interpreter, working directory, import path and an environment built from an allow list.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The variables of the notebook that a job gets; beside them LC_* and what --env names.
ALLOWED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
GIT_TIMEOUT_S = 2.0

_CREDENTIAL_WORD = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|PRIVATE_?KEY|ACCESS_?KEY|API_?KEY|AUTH|PWD)"
    r"(?:_|$|S$)|_KEY$|_PAT$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Environment:
    """`open` may be stored and shown; `secret` travels beside the job and is named only."""

    open: dict[str, str] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)


def looks_secret(name: str) -> bool:
    """Whether the name of an environment variable sounds like that of a credential."""
    return _CREDENTIAL_WORD.search(name) is not None


def environment(
    requested: Iterable[tuple[str, str | None]] = (), source: Mapping[str, str] | None = None
) -> Environment:
    """The job's environment: allowed variables of `source` (default: this process's) and the `requested` (K, V) pairs.

    V = None takes the value from `source`. Raises KeyError(K) when it is not there.
    """
    here = os.environ if source is None else source
    plain = {key: value for key, value in here.items() if key in ALLOWED_VARIABLES or key.startswith("LC_")}
    secret: dict[str, str] = {}
    for key, value in requested:
        value = here[key] if value is None else value
        (secret if looks_secret(key) else plain)[key] = value
        (plain if looks_secret(key) else secret).pop(key, None)
    return Environment(plain, secret)


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
    get_parent = getattr(shell, "get_parent", None)
    if get_parent is None:
        return None
    try:
        parent = get_parent() or {}
    except LookupError:
        return None
    found = (parent.get("metadata") or {}).get("cellId")
    return str(found) if found else None


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
        known = (stamp, _ask_git(folder))
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


def _ask_git(folder: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", folder, "rev-parse", "--verify", "HEAD"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    commit = done.stdout.strip()
    return commit if done.returncode == 0 and re.fullmatch(r"[0-9a-f]{40,64}", commit) else None
