"""What a task may use, and by which means that is kept: control groups where we may make them, else resource limits.

`means` says for each limit how it is kept: "cgroup v1", "cgroup v2", "rlimit", or "none: why". What the rlimits are:
memory is RLIMIT_DATA (private writable memory, of each process by itself; RLIMIT_AS would also count the address space
that CUDA only reserves, and break it); pids is RLIMIT_NPROC (counts all processes of the user, so what runs at the
start is added; root is exempt); CPU cannot be limited so.

CPU is a weight: under contention a task gets its part, idle cores are anybody's. With `cpu_hard` it is a quota too.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import cgroups, processes

_PERIOD_US = 100_000


class Limits(NamedTuple):
    """Of one task; None = no limit. `cpu_milli` in thousandths of a core."""

    memory_bytes: int | None = None
    cpu_milli: int | None = None
    pids: int | None = None
    cpu_hard: bool = False

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Limits:
        return cls(
            spec.get("memory_bytes") or None,
            spec.get("cpu_milli") or None,
            spec.get("pids") or None,
            bool(spec.get("cpu_hard")),
        )

    def wanted(self) -> list[str]:
        amounts = {"memory": self.memory_bytes, "cpu": self.cpu_milli, "pids": self.pids}
        return [name for name, amount in amounts.items() if amount]


class Confinement:
    """The groups and limits of one task. Made before its worker; `remove` it after its last process."""

    def __init__(self, task_id: str, limits: Limits, places: cgroups.Hierarchies | None = None) -> None:
        self._begin(limits)
        self._name = cgroups.PREFIX + task_id
        places = places or cgroups.find_hierarchies()
        for name in limits.wanted():
            self.means[name] = self._limit(name, places)
        self._make_tree_group(places)

    def _begin(self, limits: Limits) -> None:
        self.limits = limits
        self.means: dict[str, str] = {}
        self.groups: list[str] = []
        #: The group that holds the whole tree, to freeze and kill it; None = by pids only.
        self.tree_group: str | None = None
        self._group_of: dict[str, str] = {}  # limit → the group that keeps it

    def tell(self) -> dict[str, Any]:
        """All that the process needs to know that is to enter, as JSON data."""
        return {
            "limits": self.limits._asdict(), "means": self.means, "groups": self.groups, "tree_group": self.tree_group,
            "group_of": self._group_of,
        }  # fmt: skip

    @classmethod
    def told(cls, content: dict[str, Any]) -> Confinement:
        """The same confinement, seen by the one who is to enter it."""
        made = cls.__new__(cls)
        made._begin(Limits(**content["limits"]))
        made.means, made.groups = content["means"], content["groups"]
        made.tree_group, made._group_of = content["tree_group"], content["group_of"]
        return made

    @property
    def how(self) -> str:
        """In a few words, e.g. "cgroup v1", "none: no limit was asked for", "memory: rlimit; cpu: none: why"."""
        different = set(self.means.values())
        if len(different) > 1:
            return "; ".join(f"{name}: {means}" for name, means in self.means.items())
        return different.pop() if different else "none: no limit was asked for"

    def _limit(self, name: str, places: cgroups.Hierarchies) -> str:
        """Put one limit in place (its name is that of the controller) and say how."""
        try:
            if name in places.v1:
                group = self._make(places.v1[name])
                self._write_v1(name, group)
                means = "cgroup v1"
            else:
                wanted = [limit for limit in self.limits.wanted() if limit not in places.v1]
                parent = cgroups.v2_parent(places, wanted) or cgroups.v2_parent(places, [name])
                if parent is None:
                    return self._without_groups(
                        name, "no control group with this controller may be made here"
                    )
                group = self._make(parent)
                self._write_v2(name, group)
                self.tree_group = group
                means = "cgroup v2"
        except OSError as error:
            return self._without_groups(name, f"{error.strerror} ({error.filename or name})")
        self._group_of[name] = group
        return means

    def _without_groups(self, name: str, why: str) -> str:
        if name == "cpu" or (name == "pids" and os.getuid() == 0):
            return f"none: {why}"
        return "rlimit"

    def _make(self, parent: str) -> str:
        group = os.path.join(parent, self._name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(group, 0o755)
        if group not in self.groups:
            self.groups.append(group)
        return group

    def _write_v1(self, name: str, group: str) -> None:
        if name == "memory":
            cgroups.write(f"{group}/memory.limit_in_bytes", str(self.limits.memory_bytes))
            with contextlib.suppress(OSError):  # without swap accounting there is no such file
                cgroups.write(f"{group}/memory.memsw.limit_in_bytes", str(self.limits.memory_bytes))
        elif name == "pids":
            cgroups.write(f"{group}/pids.max", str(self.limits.pids))
        else:
            milli = self.limits.cpu_milli or 0
            cgroups.write(f"{group}/cpu.shares", str(max(milli * 1024 // 1000, 2)))
            if self.limits.cpu_hard:
                cgroups.write(f"{group}/cpu.cfs_period_us", str(_PERIOD_US))
                cgroups.write(f"{group}/cpu.cfs_quota_us", str(max(milli * _PERIOD_US // 1000, 1000)))

    def _write_v2(self, name: str, group: str) -> None:
        if name == "memory":
            cgroups.write(f"{group}/memory.max", str(self.limits.memory_bytes))
            with contextlib.suppress(OSError):
                cgroups.write(f"{group}/memory.swap.max", "0")
        elif name == "pids":
            cgroups.write(f"{group}/pids.max", str(self.limits.pids))
        else:
            milli = self.limits.cpu_milli or 0
            cgroups.write(f"{group}/cpu.weight", str(min(max(milli // 10, 1), 10_000)))
            if self.limits.cpu_hard:
                cgroups.write(f"{group}/cpu.max", f"{max(milli * _PERIOD_US // 1000, 1000)} {_PERIOD_US}")

    def _make_tree_group(self, places: cgroups.Hierarchies) -> None:
        """A group of its own for the tree, limited or not: one that can freeze and kill it as a whole."""
        if self.tree_group is not None:
            return
        for parent in (places.v1.get("freezer"), places.v2):
            if parent is None or not os.access(parent, os.W_OK):
                continue
            with contextlib.suppress(OSError):
                group = self._make(parent)
                if cgroups.can_freeze(group):
                    self.tree_group = group
                    return

    def enter(self) -> list[tuple[str, str]]:
        """Put this process (without threads or children so far) into the groups; returns those that refused it, and why.

        The one who stays behind is told, to `give_up` them too. It is the process itself that enters, by its thread
        where the hierarchy allows that: for any other way in, the kernel waits for every CPU of the machine.
        """
        refused = []
        for group in list(self.groups):
            tasks = f"{group}/tasks"
            try:
                cgroups.write(tasks if os.path.exists(tasks) else f"{group}/cgroup.procs", "0")
            except OSError as error:
                why = f"{error.strerror} ({group})"
                refused.append((group, why))
                self.give_up(group, why)
        return refused

    def give_up(self, group: str, why: str) -> None:
        """The limits that the group was to keep are kept otherwise, or not at all; `means` says so."""
        self.groups.remove(group)
        cgroups.remove([group], patience_s=0)
        if self.tree_group == group:
            self.tree_group = None
        for name in [name for name, own in self._group_of.items() if own == group]:
            del self._group_of[name]
            self.means[name] = self._without_groups(name, why)

    def set_rlimits(self) -> None:
        """In the worker, before it runs anything: the limits that no group keeps."""
        if self.means.get("memory") == "rlimit" and self.limits.memory_bytes:
            _lower(resource.RLIMIT_DATA, self.limits.memory_bytes)
        if self.means.get("pids") == "rlimit" and self.limits.pids:
            _lower(resource.RLIMIT_NPROC, self.limits.pids + _own_thread_count())

    def oom_kills(self) -> int:
        """How many processes of the task the kernel has killed for want of memory under its limit."""
        group = self._group_of.get("memory")
        if group is None:
            return 0
        v1 = cgroups.read_counter(f"{group}/memory.oom_control", "oom_kill")
        return v1 or cgroups.read_counter(f"{group}/memory.events", "oom_kill")

    def freeze(self, frozen: bool) -> bool:
        """Freeze or thaw the tree; False when that takes signals."""
        if self.tree_group is None:
            return False
        try:
            cgroups.freeze(self.tree_group, frozen)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL all that is in the tree's group. A frozen v1 group dies when it is thawed."""
        if self.tree_group is None or cgroups.kill(self.tree_group):
            return
        with contextlib.suppress(OSError):
            cgroups.freeze(self.tree_group, True)
        for pid in cgroups.members(self.tree_group):
            processes.send_signal(pid, 9)
        with contextlib.suppress(OSError):
            cgroups.freeze(self.tree_group, False)

    def remove(self) -> None:
        """Remove the groups; to be called when the last process has ended."""
        cgroups.remove(self.groups)


def _lower(which: int, amount: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        amount = min(amount, hard)
    resource.setrlimit(which, (amount, amount))


def _own_thread_count() -> int:
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count
