"""The engine's tunables, each with its unit."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """All durations in seconds."""

    #: Back-off before a failed attempt is tried again: doubles from the first to the last.
    backoff_first_s: float = 1.0
    backoff_last_s: float = 300.0
    #: So many attempts in a row of which a task could not start, and the job fails.
    start_failures: int = 3
    #: At most one published progress event per job in this time.
    progress_interval_s: float = 0.2
    #: How long after the grace period an unanswered stop is asked for again.
    stop_again_s: float = 5.0

    def backoff_us(self, times: int) -> int:
        """Microseconds to wait after something went wrong for the `times`-th time in a row (1, 2, …)."""
        delay_s = min(self.backoff_last_s, self.backoff_first_s * 2.0 ** min(times - 1, 62))
        return round(delay_s * 1e6)


DEFAULT_OPTIONS = EngineOptions()
