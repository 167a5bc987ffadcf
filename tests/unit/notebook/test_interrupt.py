"""■ while a cell waits: an item of the inbox, never an exception in the middle of something."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest

from jupyter_gpucluster.interrupt import Interrupted, Keyboard


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_interrupt_ends_a_wait_without_an_end():
    with Keyboard() as keyboard:
        threading.Timer(0.05, press).start()
        with pytest.raises(Interrupted):
            keyboard.next()


def test_interrupt_does_not_cut_what_runs():
    done = []
    with Keyboard() as keyboard:
        press()
        done.append("whole")
        with pytest.raises(Interrupted):
            keyboard.next()
    assert done == ["whole"]


def test_items_that_came_before_the_interrupt_are_not_lost():
    with Keyboard() as keyboard:
        keyboard.inbox.put("first")
        press()
        assert keyboard.next() == "first"
        with pytest.raises(Interrupted):
            keyboard.next()


def test_second_interrupt_before_the_first_was_dealt_with_raises_at_once():
    with Keyboard() as keyboard:
        press()
        with pytest.raises(KeyboardInterrupt):
            press()
        with pytest.raises(Interrupted):
            keyboard.next()


def test_second_interrupt_after_the_first_was_dealt_with_is_a_first_one_again():
    with Keyboard() as keyboard:
        for _ in range(3):
            press()
            with pytest.raises(Interrupted):
                keyboard.next()
            keyboard.handled()


def test_interrupt_that_nobody_saw_still_stops_what_follows():
    with pytest.raises(KeyboardInterrupt), Keyboard():
        press()


def test_handler_of_before_is_back_afterwards():
    before = signal.getsignal(signal.SIGINT)
    with Keyboard():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_wait_has_a_time_limit():
    with Keyboard() as keyboard, pytest.raises(queue.Empty):
        keyboard.next(0.01)


def test_slow_call_can_be_interrupted_and_its_outcome_is_not_lost():
    go_on = threading.Event()
    outcomes = []
    with Keyboard() as keyboard:
        call = keyboard.start(lambda: go_on.wait(10) and "value")
        press()
        with pytest.raises(Interrupted):
            keyboard.wait_for(call)
        told = threading.Event()
        call.afterwards(lambda call: (outcomes.append(call.outcome()), told.set()))
        go_on.set()
        assert told.wait(10)
    assert outcomes == ["value"]


def test_call_raises_what_its_function_raised():
    def fail():
        raise ValueError("there")

    with Keyboard() as keyboard, pytest.raises(ValueError, match="there"):
        keyboard.call(fail)


def test_thread_that_gets_no_signals_waits_all_the_same():
    values = []

    def wait():
        with Keyboard() as keyboard:
            values.append(keyboard.call(lambda: 3))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(10)
    assert values == [3]
