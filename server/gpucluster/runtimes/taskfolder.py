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
from ..worker.files import read_json, remove_tree
from .supervisor import cgroups, folder, processes

#: exit.json with the description of a result is the largest that is read here.
_MAX_BYTES = 16 << 20
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
    ELSEWHERE = "elsewhere"  # another machine claimed it: whether it lives there cannot be told from here


class Finding(NamedTuple):
    state: State
    supervisor: int | None = None  # pid
    exit: dict[str, Any] | None = None
    host: str | None = None  # for ELSEWHERE


def inspect(task_dir: str) -> Finding:
    """Find out how it stands with the task, from its folder alone. Raises OSError when it cannot be read.

    The folder is the task's own, so what it holds may be forged; the lock cannot be. Locked first, read then: a
    supervisor holds the lock before it creates `started`, and until exit.json stands there.
    """
    if folder.is_locked(task_dir):
        return Finding(
            State.ALIVE, supervisor=folder.lock_holder(task_dir) or _pid(_read(task_dir, protocol.STARTED))
        )
    started = _read(task_dir, protocol.STARTED)
    outcome = _read(task_dir, protocol.EXIT)
    if outcome is not None:
        return Finding(State.ENDED, exit=outcome)
    if not os.path.lexists(os.path.join(task_dir, protocol.STARTED)):
        return Finding(_unclaimed(task_dir))
    if started.get("by") == "agent":
        return Finding(State.REVOKED)
    pid = _pid(started)
    boot = _boot_of(started, os.path.join(task_dir, protocol.STARTED))
    if boot is not State.ALIVE:
        return Finding(boot, pid, host=str(started.get("host")))
    if supervisor(task_dir) is not None:  # its lock was taken from under it
        return Finding(State.ALIVE, pid)
    return Finding(State.DEAD if _has_worker(task_dir) else State.NEVER_RAN, pid)


def _read(task_dir: str, name: str) -> Any:
    """A JSON object of the folder; an exit that is none is None, of other files it is an empty one."""
    content = read_json(os.path.join(task_dir, name), _MAX_BYTES)
    if isinstance(content, dict):
        return content
    return None if name == protocol.EXIT else {}


def _pid(record: dict[str, Any]) -> int | None:
    pid = record.get("pid")
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and 1 < pid < 2**31 else None


def _has_worker(task_dir: str) -> bool:
    return os.path.lexists(os.path.join(task_dir, protocol.WORKER))


def _unclaimed(task_dir: str) -> State:
    if _has_worker(task_dir):  # so there was a claim, and somebody has removed it
        return State.DEAD
    spec_path = os.path.join(task_dir, protocol.SPEC)
    boot = _boot_of(_read(task_dir, protocol.SPEC), spec_path)
    return State.BEFORE_BOOT if boot is State.BEFORE_BOOT else State.UNCLAIMED


def _boot_of(record: dict[str, Any], path: str) -> State:
    """ALIVE when the file was written in this boot of this machine, else BEFORE_BOOT or ELSEWHERE.

    Its time counts only where it does not say: clocks are set, boot ids are not.
    """
    boot_id, host = record.get("boot_id"), record.get("host")
    if boot_id == processes.boot_id():
        return State.ALIVE
    if boot_id is not None:
        is_ours = host is None or host == processes.host_name()
        return State.BEFORE_BOOT if is_ours else State.ELSEWHERE
    try:
        written_us = os.lstat(path).st_mtime_ns // 1000
    except OSError:
        return State.ALIVE
    return State.BEFORE_BOOT if written_us < processes.boot_time_us() - 2_000_000 else State.ALIVE


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
    started = _read(task_dir, protocol.STARTED)
    pid = _pid(started)
    if pid is None or started.get("by") != "supervisor" or started.get("boot_id") != processes.boot_id():
        return None
    process = processes.read_process(pid)
    if process is None or process.is_dead or process.start_ticks != started.get("start_ticks"):
        return None
    return process


def kill_supervisor(task_dir: str) -> None:
    """SIGKILL for the folder's supervisor, if it still runs."""
    holder = folder.lock_holder(task_dir)
    process = processes.read_process(holder) if holder is not None else supervisor(task_dir)
    if process is not None and process.pid != os.getpid():
        processes.kill_exactly(process)


def forget_secrets(task_dir: str) -> None:
    """Delete the secret part of the environment, which nobody needs any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(task_dir, protocol.SECRETS))


#: What stays when the task's end was told: its log, its course, its end, and what is small.
_KEPT = frozenset(
    {
        protocol.SPEC, protocol.STARTED, protocol.LOCK, protocol.WORKER, protocol.LOG, protocol.STEPS, protocol.RESULT,
        protocol.EXIT, "supervisor.err",
    }
)  # fmt: skip


def tidy(task_dir: str) -> None:
    """Remove what nobody needs once the task's end was told: inputs, a taken result, scratch. Raises OSError."""
    try:
        with os.scandir(task_dir) as entries:
            rest = [
                one.path for one in entries if one.name not in _KEPT or not one.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return
    for path in rest:
        remove_tree(path)


def kill_leftovers(task_dir: str, task_id: str) -> int:
    """One round against what a task left running; returns how many processes were found. Then removes its groups."""
    record = _read(task_dir, protocol.WORKER)
    if record.get("boot_id") != processes.boot_id():
        record = {}
    recorded = record.get("cgroups")
    groups = cgroups.own(recorded if isinstance(recorded, list) else [], task_id)
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
    """By the mark in their environment, by the groups, and by the worker's session, which is that of its own pid."""
    found = {
        process.pid
        for process in every
        if processes.has_environment_mark(process.pid, protocol.ENV_TASK_ID, task_id)
    }
    pid = _pid(record)
    leader = next((process for process in every if process.pid == pid), None)
    # A leader without the mark belongs to a later session of the same number, or the record is forged.
    if pid is not None and (leader is None or pid in found):
        found.update(process.pid for process in every if process.session == pid)
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
