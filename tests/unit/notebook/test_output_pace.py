"""At what pace a kernel shows a job's output."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpucluster import output
from jupyter_gpucluster.output import Allowance, ShellOutput


class Clock:
    """Time that passes only where it is waited for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept_s += seconds


class Shell:
    """A shell of a kernel, as far as an output looks at it."""

    kernel = None
    displayhook = None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(output, "time", made)
    return made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Displays and updates that were sent."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(output, "publish_display_data", lambda **said: found.append(said))
    return found


def cell() -> ShellOutput:
    return ShellOutput(Shell(), None, "id")  # type: ignore[arg-type]


def test_first_output_is_shown_at_once_and_what_follows_together(clock: Clock, capsys):
    shown = cell()
    shown.text("stdout", "first\n")
    shown.flush_if_due()
    assert capsys.readouterr().out == "first\n"
    for number in range(5):
        shown.text("stdout", f"{number}\n")
        shown.flush_if_due()
    assert capsys.readouterr().out == ""
    assert 0 < shown.due_in_s <= 0.2
    clock.now += shown.due_in_s
    shown.flush_if_due()
    assert capsys.readouterr().out == "0\n1\n2\n3\n4\n"
    assert shown.due_in_s is None


def test_the_more_is_shown_the_longer_are_the_pauses_up_to_half_a_second(clock: Clock):
    shown = cell()
    pauses = []
    for _ in range(20):
        shown.text("stdout", "x" * 60_000)
        shown.flush()
        shown.text("stdout", "more")
        pauses.append(shown.due_in_s)
        shown.flush()
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.2
    assert pauses[-1] == pytest.approx(0.5)


def test_newest_update_of_a_display_is_shown(clock: Clock, sent):
    shown = cell()
    shown.display({"text/plain": "0"}, {}, "plot")
    shown.flush()
    for number in range(1, 1000):
        shown.update({"text/plain": str(number)}, {}, "plot")
        shown.flush_if_due()
    shown.flush()
    assert [each["data"]["text/plain"] for each in sent] == ["0", "999"]


def test_kernel_sends_no_more_than_a_jupyter_server_lets_through(clock: Clock):
    """Over any three seconds 1,000 messages/s and 1 MB/s of text."""
    for text_bytes in (0, 10, 200_000):
        allowance = Allowance()
        times = []
        for _ in range(5000):
            clock.sleep(allowance.take(text_bytes, clock.now))
            times.append(clock.now)
        most = max(sum(1 for other in times if at <= other < at + 3) for at in times[::97])
        assert most <= 3000
        assert most * (text_bytes + 500 if text_bytes else 0) <= 3_000_000


def test_terminal_is_not_held_up(clock: Clock, capsys):
    class Terminal:
        displayhook = None

    shown = ShellOutput(Terminal(), None, "id")  # type: ignore[arg-type]
    for text in ("first\n", "second\n"):
        shown.text("stdout", text)
        shown.flush_if_due()
        assert capsys.readouterr().out == text
    for _ in range(100):
        shown.text("stdout", "x" * 100_000)
    assert clock.slept_s == 0
    assert len(capsys.readouterr().out) == 10_000_000
