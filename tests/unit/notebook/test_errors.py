"""What a user reads when a job does not end well."""

from __future__ import annotations

import pickle
import re

import pytest

from gpucluster.api.errors import InvalidRequest, NeverAsAsked, NotFound, NotSupported, Unavailable
from jupyter_gpucluster import errors
from jupyter_gpucluster.errors import (
    CellSyntaxError,
    Detached,
    JobCancelled,
    JobFailed,
    NotBack,
    WaitTimeout,
    as_keyword,
    one_line,
    rendered,
    usage_error,
)
from jupyter_gpucluster.place import Place

FACTS = {"job_id": "01", "number": 12, "attempt": 1, "node": "node-0"}


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


@pytest.fixture
def notebook(monkeypatch):
    """As if IPython ran."""
    monkeypatch.setattr(errors, "_shell", object)


def test_failure_in_a_script_shows_the_remote_traceback_without_colours_and_a_command_of_the_shell():
    error = JobFailed(
        "ValueError: no",
        ename="ValueError",
        evalue="no",
        traceback=["\x1b[31mthe\x1b[0m", "traceback"],
        tail="last",
        **FACTS,
    )
    assert str(error) == (
        "ValueError: no\nthe\ntraceback\nin job 12 (attempt 1) on node-0 — gpucluster logs 12\n"
        "--- last lines of the log of job 12 ---\nlast"
    )


def test_failure_shows_the_workers_traceback_and_where_it_was(notebook):
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
        NotBack("x: a lock cannot travel"),
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


def test_every_error_of_ours_shows_itself_in_words_of_a_notebook():
    error = NotFound("there is no job 9", hint="`gpucluster jobs --all` lists the jobs that you may see.")
    lines = error._render_traceback_()
    assert plain(lines) == "NotFound: there is no job 9\n%jobs --all lists the jobs that you may see."
    assert "`gpucluster serve`" in one_line(Unavailable("away", hint="Start one with `gpucluster serve`."))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidRequest("--tier", "'3' is not one of 0, 1, 2"), "tier: '3' is not one of 0, 1, 2"),
        (NotSupported("--gpu-memory", "comes later"), "gpu_memory: comes later"),
        (
            NeverAsAsked("gpus", "no node has 9 GPUs", "Ask for --gpus 8."),
            "gpus: no node has 9 GPUs\nAsk for gpus=8.",
        ),
        (InvalidRequest("--env", "bad", "Write --env NAME=VALUE."), 'env: bad\nWrite env={"NAME": "VALUE"}.'),
        (InvalidRequest("args[0]", "a lock", "See x--y."), "args[0]: a lock\nSee x--y."),
    ],
)
def test_refusal_of_a_function_names_the_keyword(error, text):
    assert str(as_keyword(error)) == text
    assert type(as_keyword(error)) is type(error)


def syntax_error(source: str) -> SyntaxError:
    with pytest.raises(SyntaxError) as raised:
        compile(source, "<cell>", "exec")
    return raised.value


def test_syntax_error_is_shown_as_ipython_shows_that_of_a_cell():
    error = CellSyntaxError(syntax_error("if x:\n    y = = 2"), Place("Cell In[5]", 1, None))
    assert str(error) == "  Cell In[5], line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax"
    assert plain(error._render_traceback_()) == str(error)
    deep = CellSyntaxError(syntax_error("x = 1\n  y = 2"), None)
    assert str(deep).splitlines()[0] == "  Cell, line 2"
    assert str(deep).endswith("IndentationError: unexpected indent")
