"""What a user reads when a job does not end well."""

from __future__ import annotations

import pickle
import re

import pytest

from gpucluster.api.errors import InvalidRequest, NotSupported, Unavailable
from jupyter_gpucluster.errors import (
    Detached,
    JobCancelled,
    JobFailed,
    WaitTimeout,
    one_line,
    rendered,
    usage_error,
)

FACTS = {"job_id": "01", "number": 12, "attempt": 1, "node": "node-0"}


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def test_failure_shows_the_workers_traceback_and_where_it_was():
    error = JobFailed(
        "ValueError: no", ename="ValueError", evalue="no", traceback=["the", "traceback"], **FACTS
    )
    assert plain(error._render_traceback_()) == "the\ntraceback\nin job 12 (attempt 1) on node-0 — %logs 12"


def test_failure_without_a_traceback_says_the_reason():
    error = JobFailed("job 12 failed: killed by signal 9", **FACTS)
    assert plain(error._render_traceback_()).splitlines()[0] == "JobFailed: job 12 failed: killed by signal 9"


def test_error_in_a_script_ends_with_the_last_lines_of_the_log():
    error = JobCancelled("job 12 was cancelled", tail="last\nwords", **FACTS)
    assert str(error).endswith("--- last lines of the log of job 12 ---\nlast\nwords")


def test_detached_says_how_to_come_back_and_how_to_end_it():
    text = "Detached from job 12; it goes on. %attach 12 comes back, %cancel 12 ends it."
    assert str(Detached(12, "running")) == text
    assert "it has succeeded" in str(Detached(12, "succeeded"))


@pytest.mark.parametrize(
    "error",
    [
        JobFailed("x", ename="E", evalue="v", traceback=["t"], **FACTS),
        Detached(3, "pending"),
        WaitTimeout("late"),
    ],
)
def test_errors_travel_in_a_pickle(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_wait_timeout_is_a_timeout_error():
    assert issubclass(WaitTimeout, TimeoutError)


def test_usage_error_is_one_line_with_the_hint():
    error = InvalidRequest("--time", "'x' is not a duration", "Write 30m.\nOr 2h.")
    assert str(usage_error(error)) == "--time: 'x' is not a duration. Write 30m. Or 2h."
    assert one_line(NotSupported("--image", "containers come later")) == "--image: containers come later"


def test_parts_own_subclasses_are_shown_by_their_public_name():
    class Unreached(Unavailable):
        pass

    assert (
        plain(rendered(Unreached("nobody there", hint="Start one.")))
        == "Unavailable: nobody there\nStart one."
    )
