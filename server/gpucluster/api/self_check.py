"""The scheduler checks its own books while it serves (engine/audit.py): at its start, and again every few minutes.

What is found is logged and stands in the notes of `gpucluster status` until it is gone. It must never be anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ..engine.audit import CHECKS, Finding
from ..engine.state import ClusterState

FIRST_S = 1.0
INTERVAL_S = 300.0
#: Findings that are shown; more of them say no more.
SHOWN = 5
#: Rules that a change of nodes or of cluster.yaml may break for a while without any fault: the policy tolerates it.
TOLERATED = frozenset({"over_max", "node_overcommitted"})

log = logging.getLogger("gpucluster.engine")


class SelfCheck:
    """`notes`: what is wrong, one sentence each; empty when all is well."""

    def __init__(self, first_s: float = FIRST_S, interval_s: float = INTERVAL_S) -> None:
        self._first_s = first_s
        self._interval_s = interval_s
        self._checking: asyncio.Task[None] | None = None
        self._found: list[Finding] = []

    @property
    def notes(self) -> list[str]:
        notes = [_told(finding) for finding in self._found[:SHOWN]]
        if len(self._found) > SHOWN:
            notes.append(f"and {len(self._found) - SHOWN} more of these; the scheduler's log has all")
        return notes

    def start(self, state: Callable[[], ClusterState]) -> None:
        """`state`: the engine's memory of the moment; read on the loop, between its steps."""
        self._checking = asyncio.create_task(self._run(state))

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._checking

    async def _run(self, state: Callable[[], ClusterState]) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            await self.check(state)
            await asyncio.sleep(self._interval_s)

    async def check(self, state: Callable[[], ClusterState]) -> None:
        """One check. Each rule is a walk of its own, and the loop serves in between: the books stand still in one only."""
        found: list[Finding] = []
        for rule in CHECKS:
            try:
                found += [finding for finding in rule(state()) if finding.rule not in TOLERATED]
            except Exception as error:
                log.exception("the books could not be checked")
                found.append(Finding("check", f"{rule.__name__.strip('_')}: {type(error).__name__}: {error}"))
            await asyncio.sleep(0)
        for finding in found:
            if finding not in self._found:
                log.error("%s", _told(finding))
        self._found = found


def _told(finding: Finding) -> str:
    return f"the scheduler's books are wrong, please report it: {finding.rule}: {finding.text}"
