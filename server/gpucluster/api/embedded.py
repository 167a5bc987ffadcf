"""Brings up the user's own scheduler when none runs: detached from kernel, Jupyter server and terminal.

Safe when several start at the same moment: one holds the start lock and starts, the others wait for it and use what it
started. A scheduler that somebody starts by hand meanwhile is found as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..model.errors import Unavailable
from ..model.private import why_not_private
from . import discovery
from .discovery import ENV_CONFIG, ENV_DATA, ENV_RUNTIME, RuntimeInfo

START_TIMEOUT_S = 60.0
START_LOG = "scheduler.start.log"
_POLL_S = 0.02
_LOG_TAIL_LINES = 15

#: What the scheduler keeps of the environment it is started from. A job's own environment comes with the job.
_KEPT = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
    | {
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "COVERAGE_PROCESS_START",
    }
    | {"CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_KEPT_PREFIXES = ("LC_", "XDG_", "GPUCLUSTER_")


class StartFailed(Unavailable):
    """The scheduler was started and did not come up: trying again at once will not help."""


def ensure_scheduler(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> RuntimeInfo:
    """The running scheduler of this data folder, started now if there is none.

    `config`: a cluster.yaml (else $GPUCLUSTER_CONFIG, else the built-in cluster). Raises StartFailed (an Unavailable),
    with the end of the scheduler's own words, when it does not come up.
    """
    found = discovery.find_scheduler(data_dir)
    if found:
        return found
    folder = discovery.data_folder(data_dir)
    runtime = discovery.runtime_folder()
    deadline = time.monotonic() + timeout_s
    with _start_lock(runtime / f"{discovery.scheduler_key(folder)}.start.lock", deadline):
        found = discovery.find_scheduler(folder)
        return found or _start(folder, runtime, config, deadline)


def revive_scheduler(
    data_dir: str | os.PathLike[str] | None = None, *, config: str | os.PathLike[str] | None = None
) -> RuntimeInfo:
    """The running scheduler, started again if the last one crashed. Who waits for a job calls this: a scheduler that
    somebody stopped must not come back because of them. Raises Unreached then, and StartFailed.
    """
    found = discovery.find_scheduler(data_dir)
    if found is None and discovery.has_crashed(data_dir):
        return ensure_scheduler(data_dir, config=config)
    return found or discovery.require_scheduler(data_dir)


@contextlib.contextmanager
def _start_lock(path: Path, deadline: float) -> Iterator[None]:
    """Held while one process starts a scheduler. The runtime folder is local, so flock can be trusted there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StartFailed(
                        "another process has been starting the scheduler for too long"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _start(
    folder: Path, runtime: Path, config: str | os.PathLike[str] | None, deadline: float
) -> RuntimeInfo:
    log = _start_log(folder)
    before = log.stat().st_size
    pid = _spawn_detached(log, folder, runtime, config)
    ticks = discovery.start_ticks(pid)
    while True:
        info = discovery.find_scheduler(folder)
        if info:
            return info
        if ticks is None or discovery.start_ticks(pid) != ticks:
            # It ended. Perhaps because another one was quicker: look once more before calling it a failure.
            info = _wait_for_other(folder)
            if info:
                return info
            raise StartFailed(
                f"the scheduler did not start\n{_tail(log, before)}".rstrip(), hint=f"Its log is {log}."
            )
        if time.monotonic() > deadline:
            raise StartFailed(
                f"the scheduler (pid {pid}) did not come up in time\n{_tail(log, before)}".rstrip(),
                hint=f"Its log is {log}.",
            )
        time.sleep(_POLL_S)


def _wait_for_other(folder: Path) -> RuntimeInfo | None:
    for _ in range(25):
        info = discovery.find_scheduler(folder)
        if info:
            return info
        time.sleep(_POLL_S)
    return None


def _start_log(folder: Path) -> Path:
    """Takes what the process writes before its own log is open, and what the interpreter says when it cannot run."""
    log = folder / START_LOG
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trouble = why_not_private(folder, os.stat(folder), os.geteuid())
        if trouble is not None:
            hint = trouble.hint or f"Set {ENV_DATA} to a folder of yours."
            raise StartFailed(f"{trouble.reason}: it cannot be the data folder", hint=hint)
        if log.exists() and log.stat().st_size > 1 << 20:
            log.unlink()
        log.touch(mode=0o600)
    except OSError as error:
        raise StartFailed(
            f"the data folder {folder} cannot be written: {error.strerror}",
            hint=f"Set {ENV_DATA} to a folder of yours with free space.",
        ) from None
    return log


def _spawn_detached(log: Path, folder: Path, runtime: Path, config: str | os.PathLike[str] | None) -> int:
    """Start the scheduler in a session of its own, as a child of init; returns its pid.

    A shell in between forks it and ends, so that no kernel or server has it among its children: neither as a zombie
    nor where a clean-up ends all children of a kernel.
    """
    if not sys.executable:
        raise StartFailed("this Python does not know its own interpreter, so it cannot start a scheduler")
    command = [sys.executable, "-m", "gpucluster", "serve", "--embedded"]
    script = f"{shlex.join(command)} </dev/null >>{shlex.quote(str(log))} 2>&1 & echo $!"
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            env=_environment(folder, runtime, config),
            start_new_session=True,
            check=True,
            timeout=30,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StartFailed(f"the scheduler could not be started: {error}") from None


def _environment(folder: Path, runtime: Path, config: str | os.PathLike[str] | None) -> dict[str, str]:
    """A clean environment. JPY_PARENT_PID above all must not reach the scheduler: it would end with the kernel."""
    kept = {key: value for key, value in os.environ.items() if key in _KEPT or key.startswith(_KEPT_PREFIXES)}
    kept[ENV_DATA] = str(folder)
    kept[ENV_RUNTIME] = str(runtime)
    kept.pop(discovery.ENV_ADDRESS, None)
    if config is not None:
        kept[ENV_CONFIG] = os.path.abspath(os.fspath(config))
    elif ENV_CONFIG in kept:
        kept[ENV_CONFIG] = os.path.abspath(kept[ENV_CONFIG])
    root = str(Path(__file__).resolve().parents[2])
    if root not in _site_folders():
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH")]))
    return kept


def _site_folders() -> set[str]:
    folders = (
        [*site.getsitepackages(), site.getusersitepackages()] if hasattr(site, "getsitepackages") else []
    )
    return {os.path.realpath(folder) for folder in folders}


def _tail(log: Path, start: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - (16 << 10)))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
