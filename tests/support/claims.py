"""Claims with a clock that tests turn, and what pages were told."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpucluster.server_extension.claims import Claims
from jupyter_gpucluster.server_extension.messages import Claimed


class _Timer:
    def __init__(self, bench: Bench, due_s: float, function: Callable[[], None]) -> None:
        self._bench = bench
        self.due_s = due_s
        self.function = function

    def cancel(self) -> None:
        self._bench.timers.remove(self)


class Bench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[_Timer] = []
        self.told: list[tuple[str, Claimed]] = []
        self.claims = Claims(tell=lambda page, claimed: self.told.append((page, claimed)), later=self._later)

    def pass_time(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer.due_s <= end_s]:
            timer = min(due, key=lambda each: each.due_s)
            self.timers.remove(timer)
            self.now_s = timer.due_s
            timer.function()
        self.now_s = end_s

    def take_told(self) -> dict[str, tuple[bool, str | None]]:
        """What each page was told since the last time; no page twice."""
        told = {page: (claimed.granted, claimed.holder) for page, claimed in self.told}
        assert len(told) == len(self.told), f"told twice: {self.told}"
        self.told.clear()
        return told

    def _later(self, delay_s: float, function: Callable[[], None]) -> _Timer:
        timer = _Timer(self, self.now_s + delay_s, function)
        self.timers.append(timer)
        return timer
