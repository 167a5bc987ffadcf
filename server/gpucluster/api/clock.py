"""The clocks of the live service (engine/protocols.py Clock)."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time that never goes back, and boot time, which goes on while the machine is suspended."""

    def __init__(self) -> None:
        self._last_us = 0

    def now_us(self) -> int:
        """Microseconds since the epoch. When the system's clock is set back, time stands still until it is caught up
        with: steps of the engine stay in order.
        """
        self._last_us = max(self._last_us, time.time_ns() // 1000)
        return self._last_us

    def boot_s(self) -> float:
        """Seconds of the boot-time clock, for durations."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()
