"""The task folder as the agent makes, reads and claims it (layout: worker/protocol.py). Blocking; called on threads."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

from ..worker import protocol
from .supervisor import cgroups, folder, processes

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def attempt_folder(data_dir: str, attempt_id: str) -> str:
    """The folder of all tasks of an attempt. Raises ValueError for what is no attempt id."""
    if not _SAFE_NAME.fullmatch(attempt_id):
        raise ValueError(f"{attempt_id!r} is no attempt id")
    return os.path.join(data_dir, "tasks", attempt_id)


def task_folder(data_dir: str, attempt_id: str, role: str, rank: int) -> str:
    """The folder of one task. Raises ValueError when the role's name cannot be part of a path."""
    if not _SAFE_NAME.fullmatch(role):
        raise ValueError(f"{role!r} is no name of a task role")
    return os.path.join(attempt_folder(data_dir, attempt_id), f"{role}.{rank}")


def create(task_dir: str, spec: dict[str, Any], secrets: dict[str, str], fill: Callable[[str], None]) -> None:
    """Make the folder with all that the task needs, or nothing of it. `fill(inputs)` places the inputs. Raises OSError.

    One that stands there already is left as it is: the task was prepared before.
    """
    if os.path.exists(os.path.join(task_dir, protocol.SPEC)):
        return
    parent, name = os.path.split(task_dir)
    _make(parent)
    building = os.path.join(parent, f".{name}.{os.getpid()}.new")
    shutil.rmtree(building, ignore_errors=True)
    try:
        for path in (building, *(os.path.join(building, part) for part in ("inputs", "result", "scratch"))):
            os.mkdir(path, 0o700)
        folder.write_json(os.path.join(building, protocol.SPEC), spec)
        if secrets:
            folder.write_json(os.path.join(building, protocol.SECRETS), secrets)
        fill(os.path.join(building, "inputs"))
        os.rename(building, task_dir)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _make(path: str) -> None:
    """Make one folder, and none above it: a data folder that was deleted under us must not come back."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


class State(enum.Enum):
    """What a task folder says about its task."""

    UNCLAIMED = "unclaimed"  # nothing has run; a supervisor may still come
    REVOKED = "revoked"  # nothing has run and nothing will
    ALIVE = "alive"  # its supervisor lives
    ENDED = "ended"  # exit.json is there
    NEVER_RAN = "never ran"  # its supervisor died before the worker was let go
    DEAD = "dead"  # its supervisor died; what it started may live
    BEFORE_BOOT = "before boot"  # the machine was restarted since: nothing lives, whatever the folder lacks


class Finding(NamedTuple):
    state: State
    supervisor: int | None = None  # pid
    exit: dict[str, Any] | None = None


def inspect(task_dir: str) -> Finding:
    """Find out how it stands with the task, from its folder alone."""
    outcome = folder.read_json(os.path.join(task_dir, protocol.EXIT))
    if outcome is not None:
        return Finding(State.ENDED, exit=outcome)
    started_path = os.path.join(task_dir, protocol.STARTED)
    if not os.path.exists(started_path):
        if _is_before_boot(os.path.join(task_dir, protocol.SPEC)):
            return Finding(State.BEFORE_BOOT)
        return Finding(State.UNCLAIMED)
    # Locked first, read then: a supervisor holds the lock before it creates `started`.
    is_locked = folder.is_locked(task_dir)
    started = folder.read_json(started_path)
    if not isinstance(started, dict):
        started = {}
    if started.get("by") == "agent":
        return Finding(State.REVOKED)
    if is_locked:
        return Finding(State.ALIVE, supervisor=started.get("pid"))
    outcome = folder.read_json(os.path.join(task_dir, protocol.EXIT))
    if outcome is not None:  # written between the two looks
        return Finding(State.ENDED, exit=outcome)
    pid = started.get("pid")
    if started.get("boot_id", processes.boot_id()) != processes.boot_id() or _is_before_boot(started_path):
        return Finding(State.BEFORE_BOOT, pid)
    if not os.path.exists(os.path.join(task_dir, protocol.WORKER)):
        return Finding(State.NEVER_RAN, pid)
    return Finding(State.DEAD, pid)


def _is_before_boot(path: str) -> bool:
    try:
        return os.stat(path).st_mtime_ns // 1000 < processes.boot_time_us() - 2_000_000
    except OSError:
        return False


def make_empty(task_dir: str) -> None:
    """Make the folder of a task that was never prepared, for `revoke`: a scheduler that was thought dead and prepares
    it late then meets the claim. Without `tasks/` above it nothing is made: the data folder is gone. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        _make(os.path.dirname(task_dir))
        _make(task_dir)


def revoke(task_dir: str) -> bool:
    """See to it that no supervisor ever runs this folder; False when one was quicker. Raises OSError.

    A folder that was deleted stays deleted: nobody can claim what is gone.
    """
    try:
        if not folder.create_started(task_dir, "agent"):
            return False
    except FileNotFoundError:
        return True
    forget_secrets(task_dir)
    return True


def supervisor(task_dir: str) -> processes.Process | None:
    """The supervisor that claimed the folder, if that very process still runs."""
    started = folder.read_json(os.path.join(task_dir, protocol.STARTED))
    if not isinstance(started, dict) or started.get("by") != "supervisor":
        return None
    process = processes.read_process(int(started.get("pid") or 0))
    if process is None or process.is_dead or process.start_ticks != started.get("start_ticks"):
        return None
    return process


def kill_supervisor(task_dir: str) -> None:
    """SIGKILL for the folder's supervisor, if it still runs."""
    process = supervisor(task_dir)
    if process is not None:
        processes.kill_exactly(process)


def forget_secrets(task_dir: str) -> None:
    """Delete the secret part of the environment, which nobody needs any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(task_dir, protocol.SECRETS))


def kill_leftovers(task_dir: str, task_id: str) -> int:
    """One round against what a dead supervisor left running; returns how many processes were found. Then removes its groups."""
    record = folder.read_json(os.path.join(task_dir, protocol.WORKER))
    if not isinstance(record, dict) or record.get("boot_id") != processes.boot_id():
        record = {}
    groups = [group for group in record.get("cgroups", ()) if isinstance(group, str)]
    for group in groups:
        with contextlib.suppress(OSError):
            cgroups.freeze(group, False)  # what is frozen takes no signal
    found = processes.kill_round(lambda every: _leftovers(every, record, groups, task_id))
    if not found:
        cgroups.remove(groups or _possible_groups(task_id))
    return found


def _leftovers(
    every: list[processes.Process], record: dict[str, Any], groups: list[str], task_id: str
) -> set[int]:
    by_pid = {process.pid: process for process in every}
    pid, ticks, session = record.get("pid"), record.get("start_ticks"), record.get("session")
    found = {process.pid for process in every if process.pid == pid and process.start_ticks == ticks}
    leader = by_pid.get(session) if isinstance(session, int) else None
    if session and (
        leader is None or leader.start_ticks == ticks
    ):  # else the number belongs to a later session
        found.update(process.pid for process in every if process.session == session)
    for process in every:
        if processes.has_environment_mark(process.pid, protocol.ENV_TASK_ID, task_id):
            found.add(process.pid)
    for group in groups:
        found.update(cgroups.members(group))
    found |= processes.descendants(found, every)
    return found - {os.getpid(), 1}


def _possible_groups(task_id: str) -> list[str]:
    """Where a supervisor of ours would have made groups, if it died before it could write down that it did."""
    places = cgroups.find_hierarchies()
    parents = [*places.v1.values(), *([places.v2] if places.v2 else [])]
    parent = cgroups.v2_parent(places, ["memory"])
    if parent:
        parents.append(parent)
    return [os.path.join(parent, cgroups.PREFIX + task_id) for parent in dict.fromkeys(parents)]
