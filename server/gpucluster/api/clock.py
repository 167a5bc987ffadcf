"""The clocks of the live service (engine/protocols.py Clock)."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How fast our time follows a system clock that was set: this share of the time that passes.
SLEW = 0.05


def _boot_ns() -> int:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class SystemClock:
    """Wall-clock time that runs at the speed of the boot-time clock.

    Time limits and back-offs are counted in it, so a system clock that is set forward must not end jobs early and one
    that is set back must not stop time: ours follows a step slowly (SLEW). While the machine sleeps both clocks go on.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, boot_ns: Callable[[], int] = _boot_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        self._last_boot_ns = boot_ns()
        self._now_ns = wall_ns()

    def now_us(self) -> int:
        """Microseconds since the epoch; never less than the time before."""
        boot_ns = self._boot_ns()
        elapsed_ns = max(0, boot_ns - self._last_boot_ns)
        self._last_boot_ns = boot_ns
        straight_ns = self._now_ns + elapsed_ns
        most_ns = int(elapsed_ns * SLEW)
        off_ns = self._wall_ns() - straight_ns
        self._now_ns = straight_ns + max(-most_ns, min(most_ns, off_ns))
        return self._now_ns // 1000

    def boot_s(self) -> float:
        """Seconds of the boot-time clock, for durations."""
        return self._boot_ns() / 1e9
