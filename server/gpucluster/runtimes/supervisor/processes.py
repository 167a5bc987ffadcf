"""Processes as /proc shows them: who is who across restarts, trees, and their surely ended end.

A pid alone names nobody: pids are given again. (pid, start_ticks, boot id) names one process for good. A zombie counts
as dead: it holds no GPU, no memory and no file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_DEAD_STATES = frozenset("ZXx")
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One line of /proc/<pid>/stat. `start_ticks`: clock ticks since boot."""

    pid: int
    state: str
    ppid: int
    pgid: int
    session: int
    start_ticks: int

    @property
    def is_dead(self) -> bool:
        return self.state in _DEAD_STATES


def boot_id() -> str:
    """The identity of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def host_name() -> str:
    """The name of the machine: boot ids of another one tell nothing about this one."""
    return os.uname().nodename


def boot_time_us() -> int:
    """When this boot began, in microseconds since the epoch."""
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return int((time.time() - since_boot_s) * 1e6)


def read_process(pid: int) -> Process | None:
    """The process of that pid, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, so the fields count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def start_ticks(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 when there is no such process."""
    process = read_process(pid)
    return process.start_ticks if process else 0


def is_alive(pid: int, ticks: int) -> bool:
    """True when exactly that process (not a later one of the same pid) still runs on this boot."""
    process = read_process(pid)
    return process is not None and process.start_ticks == ticks and not process.is_dead


def all_processes() -> list[Process]:
    """Every process that /proc shows, zombies too."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def descendants(roots: Iterable[int], processes: Iterable[Process]) -> set[int]:
    """Pids of all processes below `roots` (the roots themselves left out)."""
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.ppid, []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def has_environment_mark(pid: int, name: str, value: str) -> bool:
    """True when the process began with `name=value` in its environment (or had it written over it, see launch.py)."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{name}={value}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; False when the process is gone or not ours to signal."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def kill_exactly(process: Process) -> None:
    """SIGKILL that very process: a later one of the same pid is left alone."""
    if not hasattr(os, "pidfd_open"):
        if is_alive(process.pid, process.start_ticks):
            send_signal(process.pid, signal.SIGKILL)
        return
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        if is_alive(process.pid, process.start_ticks):
            send_signal(process.pid, signal.SIGKILL)
        return
    try:
        # The handle pins the process: if it is the right one now, the signal below reaches it and no other.
        if is_alive(process.pid, process.start_ticks):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(handle)


def kill_round(find: Callable[[list[Process]], set[int]]) -> int:
    """Find living processes among all and kill them, once; returns how many were found.

    All are stopped before the first is killed, so that none can fork away in between.
    """
    processes = all_processes()
    by_pid = {process.pid: process for process in processes}
    victims = [by_pid[pid] for pid in find(processes) if pid in by_pid and not by_pid[pid].is_dead]
    for victim in victims:
        if is_alive(victim.pid, victim.start_ticks):
            send_signal(victim.pid, signal.SIGSTOP)
    for victim in victims:
        kill_exactly(victim)
    return len(victims)


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """From now on every orphan below this process becomes its child, so none is ever out of sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when `parent` dies. Ends at once if it died before the request was in place."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def set_name(name: str) -> None:
    """The short name that ps and top show (15 bytes)."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, buffer, 0, 0, 0)
