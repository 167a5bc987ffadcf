"""What the log's STATUS records tell a reader."""

from __future__ import annotations

import json

import pytest
from unit.notebook.views import job

from gpucluster.api.schemas import StreamItem
from jupyter_gpucluster.happenings import limits_text, status_text
from jupyter_gpucluster.replay import Replay, TextSink

GIB = 1 << 30


@pytest.mark.parametrize(
    ("means", "text"),
    [
        ({"memory": "cgroup v1", "cpu": "cgroup v2"}, "memory 8.0 GiB by cgroup v1, 2 CPU cores by cgroup v2"),
        ({"memory": "rlimit", "cpu": "none: no rights"}, "memory 8.0 GiB by rlimit, 2 CPU cores not enforced (no rights)"),
        ({"pids": "cgroup v1"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_limits_of_one_task_are_told_with_the_means_that_keep_them(means, text):
    assert limits_text(job(tasks=2, cpus=4.0, memory_bytes=16 * GIB), means) == text


def test_what_was_not_asked_for_is_not_told():
    assert limits_text(job(cpus=0, memory_bytes=0), {"memory": "cgroup v1", "cpu": "cgroup v1"}) == ""


def test_log_says_what_happened_to_the_task_where_it_did():
    sink = TextSink()
    view = job(cpus=1.0, memory_bytes=8 * GIB)
    replay = Replay(sink, prefix="", where="", on_status=lambda said: status_text(view, said))
    for said in (
        {"event": "up", "limit_means": {"memory": "cgroup v2"}},
        {"event": "suspended"},
        {"event": "resumed"},
        {"event": "notice", "source": "supervisor", "cause": "task_failed", "grace_s": 10.0},
        {"event": "ended", "code": 143, "reason": None},
        {"event": "of a later version"},
    ):
        replay.record(StreamItem(type="record", kind="status", payload=json.dumps(said).encode()))
    replay.finish()
    assert sink.value.splitlines() == [
        "— limits: memory 8.0 GiB by cgroup v2 —",
        "— suspended —",
        "— resumed —",
        "— told to stop: a task failed —",
    ]
