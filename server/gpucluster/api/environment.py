"""What a job takes along from where it is submitted: an environment built from an allow list, and the git commit.

Shared by the command line and the notebook side (DESIGN section 4, *Environment*).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model.errors import InvalidRequest

#: The variables that a job gets without being asked; beside them LC_* and what --env names.
ALLOWED_VARIABLES = (
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "PYTHONPATH",
)  # fmt: skip
#: What the scheduler sets for each task (runtimes/environment.py), beside everything that begins with GPUCLUSTER_. Nobody
#: else may: a task would take GPUs that are not its own, or another rank's place. TMPDIR is not among them: it has a
#: default, and who has a scratch disk may name it.
RESERVED_VARIABLES = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
})  # fmt: skip
RESERVED_PREFIX = "GPUCLUSTER_"
GIT_TIMEOUT_S = 2.0

_CREDENTIAL_WORD = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|PRIVATE_?KEY|ACCESS_?KEY|API_?KEY|AUTH|PWD)"
    r"(?:_|$|S$)|_KEY$|_PAT$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class JobEnvironment:
    """`open` may be stored and shown; `secret` travels beside the job and only its names are kept."""

    open: dict[str, str] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)


def looks_secret(name: str) -> bool:
    """Whether the name of an environment variable sounds like that of a credential."""
    return _CREDENTIAL_WORD.search(name) is not None


def refuse_reserved(field: str, names: Iterable[str]) -> None:
    """Raises InvalidRequest for the first name that is the scheduler's own to set."""
    for name in names:
        if name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIX):
            raise InvalidRequest(
                field,
                f"{name} is set by the scheduler for each task",
                "Leave it out. GPUs are asked for with --gpus, tasks with --tasks.",
            )


def job_environment(
    requested: Iterable[tuple[str, str | None]] = (), source: Mapping[str, str] | None = None
) -> JobEnvironment:
    """Allowed variables of `source` (default: this process's) and the `requested` pairs of --env.

    A pair (K, None) takes its value from `source`. Raises InvalidRequest when it is not there, or K is reserved.
    """
    requested = list(requested)
    refuse_reserved("--env", (key for key, _ in requested))
    here = os.environ if source is None else source
    environment = JobEnvironment(
        {key: value for key, value in here.items() if key in ALLOWED_VARIABLES or key.startswith("LC_")}
    )
    for key, value in requested:
        if value is None and key not in here:
            raise InvalidRequest("--env", f"{key} is not set here", f"Write --env {key}=VALUE.")
        into, other = environment.open, environment.secret
        if looks_secret(key):
            into, other = other, into
        into[key] = here[key] if value is None else value
        other.pop(key, None)
    return environment


def git_commit(folder: str) -> str | None:
    """The commit that `folder`'s work tree stands on; None outside a repository or without git."""
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
