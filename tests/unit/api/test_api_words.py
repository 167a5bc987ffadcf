from __future__ import annotations

import pytest
from support.engine_bench import make_job, make_spec

from gpucluster.api.schemas import HistoryView
from gpucluster.api.views import why_ended
from gpucluster.api.visibility import Rights
from gpucluster.api.words import cause_text, duration, happening
from gpucluster.engine.transitions import Trigger
from gpucluster.model.jobs import JobState, StopCause


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-1, "0 ms"),
        (0.024, "24 ms"),
        (0.0999, "0.1 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (42, "42 s"),
        (60, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (86400 * 4 + 3 * 3600, "4 d 03 h"),
    ],
)
def test_durations_show_their_two_largest_units(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


def test_every_cause_of_the_engine_has_words() -> None:
    for cause in (*Trigger, *StopCause):
        assert "_" not in cause_text(cause.value)
    assert cause_text("a_later_cause") == "a later cause"


def entry(to_state: str, cause: str, detail: str | None = None) -> HistoryView:
    return HistoryView(
        time_us=0, from_state=None, to_state=to_state, cause=cause, actor="system", attempt=1, detail=detail
    )


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (entry("pending", "submitted"), "submitted"),
        (entry("running", "all_tasks_up"), "all tasks are up"),
        (entry("failed", "failed", "ended with exit code 3"), "ended with exit code 3"),
        (entry("failed", "time_limit", "reached its time limit of 5 s"), "reached its time limit of 5 s"),
        (entry("stopping", "cancel", "cancelled"), "cancelled"),
        (entry("stopping", "cancel", "wrong data"), "cancelled: wrong data"),
        (entry("cancelled", "cancel", "wrong data"), "wrong data"),
        (entry("cancelled", "cancel", "cancelled"), ""),
        (
            entry("pending", "drain", "node-1 gets a new fan"),
            "its node is being emptied: node-1 gets a new fan",
        ),
        (entry("failed", "", None), ""),
    ],
)
def test_history_says_in_words_what_happened_and_nothing_twice(line: HistoryView, wanted: str) -> None:
    assert happening(line) == wanted


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (JobState.SUCCEEDED, None, "The job has succeeded."),
        (JobState.CANCELLED, "cancelled", "The job has been cancelled."),
        (JobState.CANCELLED, "wrong data", "The job has been cancelled: wrong data."),
        (JobState.FAILED, "ended with exit code 3", "The job has failed: ended with exit code 3."),
    ],
)
def test_end_of_a_job_is_told_in_a_sentence(state: JobState, reason: str | None, sentence: str) -> None:
    job = make_job(make_spec("default", 1, 1), "job-1")
    job.state, job.reason = state, reason
    assert why_ended(job, Rights(see=True, read=True, control=True)).sentence == sentence
    assert "wrong" not in why_ended(job, Rights(see=True, read=False, control=False)).sentence
