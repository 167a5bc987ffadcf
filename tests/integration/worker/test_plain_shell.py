"""Without IPython, and with nothing but the standard library, a cell still runs."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from .harness import INTERPRETER, Run, Workers


@pytest.fixture
def run_plain(workers: Workers) -> Any:
    ask = [INTERPRETER, "-S", "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    paths = json.loads(subprocess.run(ask, capture_output=True, check=True).stdout)

    def run(source: str, **changes: Any) -> Run:
        return workers.run_cold(source, "-S", sys_path=["", *paths], **changes)

    return run


def test_values_prints_and_displays_arrive(run_plain: Any) -> None:
    run = run_plain(
        "import os\nprint('one')\ndisplay('two')\nos.system('echo three')\nx = [1]\nx", outputs=["x"]
    )
    assert run.story() == ["one\n", "<display 'two'>", "three\n", "<display [1]>"]
    assert run.result() == {"x": [1], "<value>": [1]}
    assert run.code == 0


def test_rich_representations_are_asked_for(run_plain: Any) -> None:
    run = run_plain("class Rich:\n    def _repr_html_(self): return '<b>rich</b>'\nRich()")
    assert run.displays[0]["data"]["text/html"] == "<b>rich</b>"


def test_a_semicolon_suppresses_the_value(run_plain: Any) -> None:
    assert run_plain("1;").displays == []


def test_top_level_await_works_in_the_plain_shell(run_plain: Any) -> None:
    run = run_plain("import asyncio\nawait asyncio.sleep(0)\nx = await asyncio.sleep(0, 5)\nx")
    assert run.result() == {"<value>": 5}


def test_an_error_shows_the_cells_lines(run_plain: Any) -> None:
    run = run_plain("def f():\n    return 1 / 0  # here\nf()")
    assert run.code == 1
    assert run.error["ename"] == "ZeroDivisionError"
    assert '"<cell of job 12>", line 2, in f' in run.traceback
    assert "# here" in run.traceback
    assert "plain.py" not in run.traceback


def test_a_magic_is_explained(run_plain: Any) -> None:
    run = run_plain("%env A=1")
    assert run.error["ename"] == "SyntaxError"
    assert "IPython is not installed" in run.stderr


def test_exits_and_input_are_as_in_the_other_shell(run_plain: Any) -> None:
    assert run_plain("import sys; sys.exit(4)").code == 4
    run = run_plain("input()")
    assert "nobody to ask" in run.error["evalue"]
    assert '"<cell of job 12>", line 1' in run.traceback
    assert "asking.py" not in run.traceback
