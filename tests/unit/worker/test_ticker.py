"""What is asked for runs soon, seldom, and again after a pause or a rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from gpucluster.worker import ticker
from gpucluster.worker.ticker import Ticker


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_many_requests_make_few_runs_and_the_last_is_served() -> None:
    asked, seen = [0], [0]
    runs = []

    def note() -> None:
        runs.append(1)
        seen[0] = asked[0]

    ticker = Ticker(0.005, note)
    for number in range(20_000):
        asked[0] = number + 1
        ticker.arm()
    wait_until(lambda: seen[0] == 20_000)
    ticker.pause()
    assert len(runs) < 2_000


def test_a_paused_ticker_has_no_thread_and_starts_again() -> None:
    ran = threading.Event()
    ticker = Ticker(0.001, ran.set)
    ticker.start()
    ticker.pause()
    assert not ticker.is_started
    ticker.arm()
    assert ran.wait(30)
    ticker.pause()


def test_a_resting_ticker_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticker, "_IDLE_TICKS", 1)
    runs: list[int] = []
    resting = Ticker(0.001, lambda: runs.append(1))
    for number in range(20):
        resting.arm()
        wait_until(lambda count=number: len(runs) > count)  # type: ignore[misc]
        wait_until(lambda: resting._running.is_idle)
    resting.pause()
    assert len(runs) == 20


def test_pausing_twice_or_unstarted_is_harmless() -> None:
    ticker = Ticker(0.001, lambda: None)
    ticker.pause()
    ticker.start()
    ticker.pause()
    ticker.pause()
