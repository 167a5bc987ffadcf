"""Looks at this machine's GPUs again and again, and tells the engine what changed: a stranger on a GPU, a fault, a driver.

NVML calls block, so they run on a thread. What an administrator set (cordoned, lost) the engine lays over what is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from ..engine.events import EngineEvent, NodeChanged
from ..engine.state import ClusterState
from ..model.topology import Node
from ..nodes.inventory import Inventory
from ..worker.protocol import ENV_TASK_ID
from .config import ClusterConfig

INTERVAL_S = 5.0

log = logging.getLogger("gpucluster.nodes")


class NodeWatch:
    """The inventory of a running scheduler. `open` first, then `start`, at the end `close`."""

    def __init__(
        self, config: ClusterConfig, interval_s: float = INTERVAL_S, inventory: Inventory | None = None
    ) -> None:
        self._interval_s = interval_s
        # What is ours, as of the start of a look: read by the thread while the loop goes on. None = not known yet.
        self._attempts: frozenset[str] | None = None
        self._held: frozenset[str] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._inventory = inventory or Inventory(config.nodes, is_ours=self.is_ours, holds=self.holds)

    def open(self) -> list[Node]:
        """The nodes as found. Before the first look the attempts are not known yet: whatever bears a task's mark
        counts as ours then.
        """
        return self._inventory.open()

    @property
    def inventory(self) -> Inventory:
        return self._inventory

    @property
    def notes(self) -> list[str]:
        return self._inventory.notes

    def start(self, state: Callable[[], ClusterState], post: Callable[[EngineEvent], None]) -> None:
        """Begin to look. `state` is read and `post` is called on the loop only. Declared nodes do not change."""
        if self._inventory.detected is not None:
            self._looking = asyncio.create_task(self._run(state, post))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await asyncio.to_thread(self._inventory.close)

    async def _run(self, state: Callable[[], ClusterState], post: Callable[[EngineEvent], None]) -> None:
        while True:
            self._know(state())
            try:
                changed = await asyncio.to_thread(self._inventory.refresh)
            except Exception:
                log.exception("the GPUs could not be looked at; it is tried again")
                changed = []
            for node in changed:
                post(NodeChanged(node))
            await asyncio.sleep(self._interval_s)

    def _know(self, state: ClusterState) -> None:
        self._attempts = frozenset(state.by_attempt)
        self._held = frozenset(_held_gpus(state))

    # ---- asked by the inventory, on its thread

    def is_ours(self, pid: int) -> bool:
        """Whether the process belongs to a running attempt of this scheduler: tasks hand their mark down to children."""
        attempt = task_attempt(pid)
        return attempt is not None and (self._attempts is None or attempt in self._attempts)

    def holds(self, uuid: str) -> bool:
        return self._held is None or uuid in self._held


def _held_gpus(state: ClusterState) -> Iterable[str]:
    for job_id in state.by_attempt.values():
        attempt = state.jobs[job_id].attempt
        if attempt is not None:
            yield from (uuid for placement in attempt.placements for uuid in placement.gpus)


def task_attempt(pid: int) -> str | None:
    """The attempt that a process says it belongs to; None for one without a mark or of another user."""
    prefix = f"{ENV_TASK_ID}=".encode()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(prefix):
                return entry[len(prefix) :].decode(errors="replace").rpartition(".")[0] or None
    return None
