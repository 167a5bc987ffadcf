"""The service's clock: wall time for people, boot time for durations."""

from __future__ import annotations

from gpucluster.api.clock import SLEW, SystemClock

SECOND = 1_000_000_000


class Hands:
    """A wall clock and a boot clock that a test sets."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000 * SECOND
        self.boot = 500 * SECOND
        self.clock = SystemClock(lambda: self.wall, lambda: self.boot)

    def pass_time(self, seconds: float) -> int:
        """Both go on; the microseconds that our clock counted."""
        before = self.clock.now_us()
        self.wall += int(seconds * SECOND)
        self.boot += int(seconds * SECOND)
        return self.clock.now_us() - before


def test_time_passes_as_on_the_wall() -> None:
    hands = Hands()
    assert hands.pass_time(10) == 10_000_000
    assert hands.clock.now_us() == hands.wall // 1000


def test_clock_set_an_hour_forward_does_not_use_up_an_hour_of_a_time_limit() -> None:
    hands = Hands()
    before = hands.clock.now_us()
    hands.wall += 3600 * SECOND
    assert hands.clock.now_us() == before
    assert hands.pass_time(10) == 10_000_000 * (1 + SLEW)


def test_clock_set_back_does_not_stop_time() -> None:
    hands = Hands()
    hands.wall -= 3600 * SECOND
    assert hands.pass_time(10) == 10_000_000 * (1 - SLEW)


def test_time_comes_back_to_the_wall_clock() -> None:
    hands = Hands()
    hands.wall += 1 * SECOND
    for _ in range(100):
        hands.pass_time(1)
    assert hands.clock.now_us() == hands.wall // 1000
