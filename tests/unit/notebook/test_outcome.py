"""Which task of a gang explains how a job ended, and whose error is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from unit.notebook.views import attempt, job, task

from gpucluster.api.schemas import StreamItem
from jupyter_gpucluster.outcome import failed_task, failure
from jupyter_gpucluster.replay import RemoteError


class Logs:
    """A client that holds the logs of a gang: rank -> the error that it ends with."""

    def __init__(self, errors: dict[int, str]) -> None:
        self._errors = errors

    def log(self, job: str, rank: int) -> Logs:
        self._rank = rank
        return self

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[StreamItem]:
        said = {"ename": "ValueError", "evalue": self._errors[self._rank], "traceback": []}
        yield StreamItem(type="record", kind="stdout", payload=b"last words\n")
        yield StreamItem(type="record", kind="error", payload=json.dumps(said).encode())


def gang(*tasks: Any) -> Any:
    return job(state="failed", tasks=len(tasks), attempt=attempt(*tasks, outcome="failed"))


def ended(rank: int, at: int, **other: Any) -> Any:
    return task(rank=rank, **{"state": "failed", "exit_code": 1, "ended_us": at, **other})


@pytest.mark.parametrize(
    ("tasks", "rank"),
    [
        ([ended(0, 20), ended(1, 10)], 1),
        ([ended(0, 10, stop_cause="task_failed"), ended(1, 20)], 1),
        ([ended(0, 10), ended(1, 20, state="lost")], 1),
        ([task(rank=0, state="succeeded", ended_us=5), ended(1, 10), ended(2, 10)], 1),
        (
            [
                ended(0, 10, exit_code=143, stop_cause="cancel"),
                ended(1, 9, exit_code=143, stop_cause="cancel"),
            ],
            1,
        ),
    ],
)
def test_first_task_that_failed_by_itself_explains_the_end(tasks, rank):
    assert failed_task(gang(*tasks)).rank == rank


def test_cancelled_job_says_so_once():
    view = job(state="cancelled", reason="cancelled")
    assert failure(Logs({}), view, with_tail=False).reason == "job 12 was cancelled"
    view = job(state="cancelled", reason="too slow")
    assert failure(Logs({}), view, with_tail=False).reason == "job 12 was cancelled: too slow"


def test_error_of_another_rank_is_never_taken_for_the_failing_ones():
    view = gang(ended(0, 20, exit_code=143, stop_cause="task_failed"), ended(1, 10))
    own = RemoteError("SystemExit", "143", ["SystemExit: 143"])
    error = failure(Logs({1: "bad shard"}), view, own, with_tail=False)
    assert error.evalue == "bad shard"
    assert error.where().startswith("in job 12 (attempt 1, rank 1) on node-0")


def test_rank_is_named_whichever_of_a_gang_it_is():
    own = RemoteError("ValueError", "mine", ["ValueError: mine"])
    error = failure(Logs({}), gang(ended(0, 10), ended(1, 20)), own, with_tail=False)
    assert (error.evalue, error.rank) == ("mine", 0)
    assert "(attempt 1, rank 0)" in error.where()
    alone = failure(Logs({}), gang(ended(0, 10)), own, with_tail=False)
    assert "(attempt 1)" in alone.where()
