"""Usage samples: what GPUs and the process trees of tasks use. Simulated GPUs report nothing: nothing is measured there.

Blocking (psutil, NVML); call it from a thread. It never raises: what has ended meanwhile is left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import psutil

from .inventory import Inventory

Key = TypeVar("Key", bound=Hashable)
DEFAULT_INTERVAL_S = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """None = NVML does not say (a vGPU, MIG)."""

    utilization_percent: int | None
    memory_used_bytes: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskUsage:
    """Of the whole tree. `cpu_milli`: thousandths of a core since the sample before; None in the first one."""

    cpu_milli: int | None
    rss_bytes: int
    processes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample(Generic[Key]):
    """`gpus` by UUID, `tasks` by what the caller calls them. `time_s`: monotonic."""

    time_s: float
    gpus: Mapping[str, GpuUsage]
    tasks: Mapping[Key, TaskUsage]


class UsageSampler(Generic[Key]):
    """Samples at most once per `interval_s`; asked sooner, it gives the last sample again."""

    def __init__(
        self,
        inventory: Inventory,
        interval_s: float = DEFAULT_INTERVAL_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inventory = inventory
        self._interval_s = interval_s
        self._monotonic_s = monotonic_s
        self._last: Sample[Key] | None = None
        self._cpu_s: dict[tuple[int, float], float] = {}  # by pid and start time: a pid is used again

    def sample(self, supervisors: Mapping[Key, int]) -> Sample[Key]:
        """`supervisors`: the pid above each task's tree, not counted itself. A tree that is gone has no entry."""
        now = self._monotonic_s()
        if self._last is not None and now - self._last.time_s < self._interval_s:
            return self._last
        elapsed = now - self._last.time_s if self._last else None
        before, self._cpu_s = self._cpu_s, {}
        children = _children() if supervisors else {}
        tasks = {key: self._task(_below(pid, children), before, elapsed) for key, pid in supervisors.items()}
        self._last = Sample(
            time_s=now,
            gpus=self._gpus(),
            tasks={key: usage for key, usage in tasks.items() if usage is not None},
        )
        return self._last

    def _gpus(self) -> dict[str, GpuUsage]:
        detected = self._inventory.detected
        if detected is None:
            return {}
        states = ((gpu.uuid, detected.state(gpu.uuid)) for gpu in detected.node.gpus)
        return {
            uuid: GpuUsage(
                utilization_percent=state.utilization_percent, memory_used_bytes=state.memory_used_bytes
            )
            for uuid, state in states
            if state is not None
        }

    def _task(
        self,
        tree: Iterable[psutil.Process],
        before: Mapping[tuple[int, float], float],
        elapsed_s: float | None,
    ) -> TaskUsage | None:
        cpu_s, rss, count, is_known = 0.0, 0, 0, elapsed_s is not None
        for process in tree:
            try:
                with process.oneshot():
                    key = (process.pid, process.create_time())
                    times = process.cpu_times()
                    rss += process.memory_info().rss
            except psutil.Error:
                continue
            count += 1
            self._cpu_s[key] = times.user + times.system
            if elapsed_s is not None and key not in before and time.time() - key[1] > elapsed_s:
                is_known = False  # an old process that is new here: when it used its CPU is not known
            cpu_s += max(self._cpu_s[key] - before.get(key, 0.0), 0.0)
        if not count:
            return None
        cpu = round(1000 * cpu_s / elapsed_s) if is_known and elapsed_s else None
        return TaskUsage(cpu_milli=cpu, rss_bytes=rss, processes=count)


def _children() -> dict[int, list[psutil.Process]]:
    """All processes by their parent: one walk over the machine serves every task."""
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            children.setdefault(process.ppid(), []).append(process)
        except psutil.Error:
            continue
    return children


def _below(root: int, children: Mapping[int, list[psutil.Process]]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    pending = [root]
    while pending:
        for process in children.get(pending.pop(), ()):
            found.append(process)
            pending.append(process.pid)
    return found
