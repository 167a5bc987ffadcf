"""What comes back after a cell: names, changed inputs, the last value; and why something does not."""

from __future__ import annotations

import sys

import msgspec
import numpy as np
import pytest

from gpucluster.model.jobs import ResultManifest
from gpucluster.worker import pickling
from gpucluster.worker.frames import Kind

from .harness import INTERPRETER, STOP, Workers

#: Code that travels by value runs in the version of Python that compiled it.
same_python = pytest.mark.skipif(sys.executable != INTERPRETER, reason="the workers are of another Python")


def test_inputs_are_there_and_outputs_come_back(workers: Workers) -> None:
    run = workers.run("total = a + b\nother = [total]", {"a": 1, "b": 2}, outputs=["total", "other"])
    assert run.result() == {"total": 3, "other": [3]}
    assert run.manifest["names"] == ["total", "other"]
    assert run.manifest["missing"] == {}


def test_the_manifest_is_what_the_model_says(workers: Workers) -> None:
    run = workers.run("x = 1\nx", outputs=["x", "y"])
    manifest = msgspec.json.decode((run.task_dir / "result.json").read_bytes(), type=ResultManifest)
    assert set(run.manifest) == {field.name for field in msgspec.structs.fields(ResultManifest)}
    assert manifest.names == ("x",)
    assert manifest.has_value


def test_big_arrays_travel_beside_the_pickle_and_can_be_written_to(workers: Workers) -> None:
    array = np.arange(1_000_000, dtype=np.float64)
    run = workers.run("array[0] = 5\nbig = array * 2", {"array": array}, outputs=["big"])
    assert len(run.manifest["buffers"]) == 1
    np.testing.assert_array_equal(run.result()["big"][1:], array[1:] * 2)
    assert run.result()["big"][0] == 10


def test_aliases_stay_aliases(workers: Workers) -> None:
    shared: list[int] = [1]
    run = workers.run("same = a[0] is b[0]\nc = a\nc", {"a": [shared], "b": [shared]}, outputs=["same", "c"])
    result = run.result()
    assert result["same"] is True
    assert result["c"] is result["<value>"]


def test_an_input_changed_in_place_comes_back_and_is_named(workers: Workers) -> None:
    run = workers.run("changed.append(4)", {"changed": [1], "same": [2]}, mutable_inputs=["changed", "same"])
    assert run.manifest["changed"] == ["changed"]
    assert run.result() == {"changed": [1, 4]}


def test_an_input_over_the_digest_budget_is_said_loudly(workers: Workers) -> None:
    run = workers.run(
        "a[0] = 1", {"a": np.zeros(1_000_000)}, mutable_inputs=["a"], digest_budget_bytes=1 << 20
    )
    assert run.manifest["changed"] == []
    (note,) = run.manifest["notes"]
    assert note.startswith("a is over the budget of 1 MiB")


def test_a_deleted_input_is_named_when_the_cell_went_well(workers: Workers) -> None:
    run = workers.run("del a\nb = 1", {"a": 1, "b": 2}, outputs=["a", "b"], mutable_inputs=["a"])
    assert run.manifest["deleted"] == ["a"]
    assert (run.result(), run.manifest["missing"]) == ({"b": 1}, {})
    assert workers.run("del a\nb = 1\n1 / 0", {"a": 1}, outputs=["b"]).manifest["deleted"] == []


def test_a_small_digest_budget_is_told_in_bytes(workers: Workers) -> None:
    run = workers.run("a.sum()", {"a": np.zeros(1000)}, mutable_inputs=["a"], digest_budget_bytes=1000)
    assert "over the budget of 1,000 bytes" in run.manifest["notes"][0]


def test_a_function_that_comes_back_leaves_the_arrays_it_uses(workers: Workers) -> None:
    source = "def scaled(x):\n    return x * data.sum() + made\nmade = 5"
    run = workers.run(source, {"data": np.ones(1_000_000)}, outputs=["scaled", "made"])
    assert run.manifest["buffers"] == []
    assert run.manifest["total_bytes"] < 10_000
    assert run.manifest["names"] == ["scaled", "made"]


def test_a_name_that_cannot_come_back_gets_a_reason_and_the_others_come(workers: Workers) -> None:
    run = workers.run(
        "lock = __import__('threading').Lock()\nx = 1\n(n for n in x_s)",
        {"x_s": [1]},
        outputs=["lock", "x", "never"],
    )
    assert run.result() == {"x": 1}
    assert run.manifest["names"] == ["x"]
    assert run.manifest["has_value"] is False
    missing = run.manifest["missing"]
    assert set(missing) == {"lock", "never", "<value>"}
    assert missing["never"] == "the cell did not assign it"
    assert "lock" in missing["lock"]


def test_what_a_cell_did_before_it_raised_comes_back(workers: Workers) -> None:
    run = workers.run(
        "x = 1\na.append(1)\nx\n1 / 0\ny = 2",
        {"a": [], "b": []},
        outputs=["x", "y"],
        mutable_inputs=["a", "b"],
    )
    assert run.code == 1
    assert run.error["ename"] == "ZeroDivisionError"
    assert run.result() == {"x": 1, "a": [1]}
    assert run.manifest["changed"] == ["a"]
    assert not run.manifest["has_value"]
    assert run.manifest["missing"] == {"y": "the cell did not assign it"}
    assert run.manifest["notes"] == ["the cell failed; these are the names it had assigned before"]


@pytest.mark.parametrize("last_line", ["import sys; sys.exit(3)", "raise KeyboardInterrupt", "await boom()"])
def test_names_come_back_however_the_cell_failed(workers: Workers, last_line: str) -> None:
    source = f"x = 1\nasync def boom(): raise OSError('boom')\n{last_line}"
    run = workers.run(source, outputs=["x"])
    assert run.code in (1, 3, 130)
    assert run.result() == {"x": 1}


def test_names_that_cannot_come_back_do_not_hide_why_the_cell_failed(workers: Workers) -> None:
    run = workers.run("lock = __import__('threading').Lock()\nx = 1\n1 / 0", outputs=["lock", "x"])
    assert run.error["ename"] == "ZeroDivisionError"
    assert run.result() == {"x": 1}
    assert "lock" in run.manifest["missing"]["lock"]


def test_a_failed_cell_whose_names_cannot_be_stored_keeps_its_own_error(workers: Workers) -> None:
    task_dir = workers.prepare("x = 1\n1 / 0", outputs=["x"])
    (task_dir / "result.json").mkdir()
    run = workers.start_in(task_dir).wait()
    assert run.error["ename"] == "ZeroDivisionError"
    assert run.stderr.startswith("what the cell had assigned could not be stored: ")


@pytest.mark.parametrize("source", ["x = 1\nx = = 2", "1 / 0\nx = 1"])
def test_a_cell_that_failed_before_it_did_anything_gives_nothing_back(workers: Workers, source: str) -> None:
    run = workers.run(source, {"x": 0}, outputs=["y"])
    assert run.code == 1
    assert not (run.task_dir / "result.json").exists()


def test_a_cell_that_is_not_python_gives_no_input_back(workers: Workers) -> None:
    run = workers.run("x = = 2", {"x": 0}, outputs=["x"])
    assert run.code == 1
    assert not (run.task_dir / "result.json").exists()


def test_a_cell_that_was_told_to_stop_gives_nothing_back(workers: Workers) -> None:
    task = workers.start("x = 1\nprint('ready')\nimport time\ntime.sleep(600)", outputs=["x"])
    task.until(lambda run: "ready" in run.stdout)
    run = task.end_by(STOP)
    assert run.code == 143
    assert run.json_of(Kind.ERROR) == []
    assert not (run.task_dir / "result.json").exists()


@same_python
def test_functions_of_the_notebook_live_in_the_cells_namespace(workers: Workers) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec("def helper(x): return x + 1\ndef outer(x): return helper(x) * 10", namespace)
    task_dir = workers.prepare(
        "print(outer(1))\ndef helper(x): return 100\nprint(outer(1))",
        inputs={},
    )
    functions = {name: namespace[name] for name in ("helper", "outer")}
    pickled = pickling.dump(functions, ns=namespace)
    (task_dir / "inputs" / "pickle").write_bytes(pickled.pickle)
    assert workers.start_in(task_dir).wait().stdout == "20\n1000\n"


def test_an_object_that_holds_its_stdout_comes_back(workers: Workers) -> None:
    run = workers.run("import sys\nholder = {'out': sys.stdout, 'n': 1}", outputs=["holder"])
    assert run.result()["holder"] == {"out": sys.stdout, "n": 1}


def test_inputs_that_cannot_be_loaded_are_a_clear_error(workers: Workers) -> None:
    task_dir = workers.prepare("1", inputs={"a": 1})
    (task_dir / "inputs" / "pickle").write_bytes(b"\x80\x05cno_such_module\nThing\n.")
    run = workers.start_in(task_dir).wait()
    assert run.code == 1
    assert "could not be loaded on node-1" in run.error["evalue"]
    assert "no_such_module" in run.error["evalue"]


def test_a_missing_input_file_is_a_clear_error(workers: Workers) -> None:
    task_dir = workers.prepare("1", inputs={"a": 1})
    (task_dir / "inputs" / "pickle").unlink()
    run = workers.start_in(task_dir).wait()
    assert run.code == 1
    assert "could not be loaded" in run.error["evalue"]


def test_a_full_disk_leaves_a_manifest_with_the_reason(workers: Workers) -> None:
    # A folder that cannot be written into, as root may write anywhere: a file stands in its place.
    task_dir = workers.prepare("x = 1", outputs=["x"])
    (task_dir / "result").write_text("in the way")
    run = workers.start_in(task_dir).wait()
    assert run.code == 0
    assert run.manifest["names"] == []
    assert run.manifest["missing"]["x"].startswith("the result could not be written: ")


def test_a_result_that_cannot_even_be_noted_fails_the_job(workers: Workers) -> None:
    task_dir = workers.prepare("x = 1", outputs=["x"])
    (task_dir / "result.json").mkdir()
    run = workers.start_in(task_dir).wait()
    assert run.code == 1
    assert "its result could not be stored" in run.error["evalue"]


@same_python
def test_a_function_is_called_and_gives_its_value(workers: Workers) -> None:
    def add(a: int, b: int = 0) -> int:
        print("adding")
        return a + b

    inputs = {"<function>": add, "<args>": (1,), "<kwargs>": {"b": 2}}
    run = workers.run("add(1, b=2)", inputs, kind="function")
    assert run.result() == {"<value>": 3}
    assert run.stdout == "adding\n"
    assert run.displays == []


def test_a_function_that_returns_none_has_that_value(workers: Workers) -> None:
    inputs = {"<function>": print, "<args>": ("hello",), "<kwargs>": {}}
    run = workers.run("print('hello')", inputs, kind="function")
    assert run.result() == {"<value>": None}


@same_python
def test_a_coroutine_function_is_awaited(workers: Workers) -> None:
    async def later() -> str:
        return "done"

    inputs = {"<function>": later, "<args>": (), "<kwargs>": {}}
    assert workers.run("later()", inputs, kind="function").result() == {"<value>": "done"}


@same_python
def test_a_function_that_raises_shows_its_traceback(workers: Workers) -> None:
    def fail() -> None:
        raise KeyError("missing piece")

    run = workers.run("fail()", {"<function>": fail, "<args>": (), "<kwargs>": {}}, kind="function")
    assert run.code == 1
    assert run.error["ename"] == "KeyError"
    assert "missing piece" in run.traceback
    assert "shell.py" not in run.traceback
    assert not (run.task_dir / "result.json").exists()


@same_python
def test_figures_of_a_function_come_back(workers: Workers) -> None:
    def plot() -> int:
        import matplotlib.pyplot as plt

        plt.plot([1, 2])
        return 1

    run = workers.run("plot()", {"<function>": plot, "<args>": (), "<kwargs>": {}}, kind="function")
    assert "image/png" in run.displays[0]["data"]
