from __future__ import annotations

from typing import Any

import pytest

from gpucluster.model.jobs import StopCause
from gpucluster.runtimes.supervisor.ending import STOP_CAUSES, Ending, describe, human_bytes

KILLED, TERMINATED = 9, 15


def exited(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("ending", "code", "number", "oom", "reason"),
    [
        (Ending(exited(0)), 0, None, False, None),
        (Ending(exited(3)), 3, None, False, "ended with exit code 3"),
        (Ending(KILLED), 137, 9, False, "killed by signal 9 (SIGKILL)"),
        (Ending(11), 139, 11, False, "killed by signal 11 (SIGSEGV)"),
        (
            Ending(KILLED, machine_oom=True),
            137,
            9,
            False,
            "killed by signal 9 (SIGKILL); the machine ran out of memory meanwhile",
        ),
        (Ending(KILLED, oom_kills=1, memory_limit=8 << 30), 137, 9, True, "out of memory: limit 8 GiB"),
        (Ending(exited(0), oom_kills=1, memory_limit=8 << 30), 0, None, False, None),
        (
            Ending(
                exited(1),
                memory_by_rlimit=True,
                memory_limit=1 << 30,
                error_name="MemoryError",
                error_value="",
            ),
            1,
            None,
            True,
            "out of memory: limit 1 GiB",
        ),
        (
            Ending(exited(1), memory_by_rlimit=True, memory_limit=1 << 30, last_words="MemoryError"),
            1,
            None,
            True,
            "out of memory: limit 1 GiB",
        ),
        (Ending(TERMINATED, stop_cause="cancel"), 143, 15, False, "stopped (cancel): ended within the grace"),
        (
            Ending(KILLED, stop_cause="evict", grace_s=2.5, killed_after_grace=True),
            137,
            9,
            False,
            "stopped (evict): killed after a grace of 2.5 s",
        ),
        (Ending(exited(1), error_name="KeyError", error_value="'x'"), 1, None, False, "KeyError: 'x'"),
        (
            Ending(exited(1), was_up=False, last_words="boom"),
            1,
            None,
            False,
            "the worker ended with exit code 1 before it was up: boom",
        ),
        (Ending(None, start_problem="cannot run x: no"), 127, None, False, "cannot run x: no"),
        (
            Ending(exited(0), lost_output_bytes=5, lost_output_reason="disk full"),
            0,
            None,
            False,
            "5 bytes of output were lost: disk full",
        ),
    ],
)
def test_end_is_described_in_one_sentence(
    ending: Ending, code: int, number: int | None, oom: bool, reason: str | None
) -> None:
    described: dict[str, Any] = describe(ending, None)
    assert (described["code"], described["signal"], described["oom"]) == (code, number, oom)
    assert described["reason"] == reason


def test_what_a_cell_raises_is_made_fit_to_be_stored() -> None:
    described = describe(Ending(exited(1), error_name="E", error_value="\ud800" + "x" * 10_000), None)
    assert len(described["error_value"]) < 5000
    described["error_value"].encode()


def test_stop_causes_of_supervisor_and_engine_are_the_same_in_the_same_order() -> None:
    assert ("signal", *(cause.label for cause in sorted(StopCause))) == STOP_CAUSES


@pytest.mark.parametrize(
    ("amount", "text"), [(8 << 30, "8 GiB"), (3 << 29, "1.5 GiB"), (64 << 20, "64 MiB"), (5, "5 bytes")]
)
def test_bytes_for_people(amount: int, text: str) -> None:
    assert human_bytes(amount) == text
