"""A cell as a job where there is no Jupyter server: nbclient, papermill, a terminal, a script, VS Code."""

from __future__ import annotations

import json
import re
import sys

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from support.place import TIMEOUT_S, Place

from .kernels import start_kernel

CARD = "application/vnd.gpucluster.job+json"
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


def notebook(*cells: str) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


CELLS = (
    "%load_ext jupyter_gpucluster\nbase = 20",
    "%%submit --gpus 2\nimport os\nanswer = 2 * base + 2\nprint('rank', os.environ['RANK'])\nanswer",
    "print('the answer is', answer)",
)


def check_executed(made: nbformat.NotebookNode) -> None:
    """What stands in the file afterwards, for whoever opens it without our extension as well."""
    submitted, last = made.cells[1].outputs, made.cells[2].outputs
    card = submitted[0]["data"]
    assert card[CARD]["state"] == "succeeded"
    assert "succeeded" in card["text/plain"]
    assert "succeeded" in card["text/html"]
    assert [output["text"] for output in submitted if output["output_type"] == "stream"] == ["rank 0\n"]
    assert [
        output["data"]["text/plain"] for output in submitted if output["output_type"] == "execute_result"
    ] == ["42"]
    assert last[0]["text"] == "the answer is 42\n"
    assert not [output for cell in made.cells for output in cell.outputs if output["output_type"] == "error"]


def test_nbclient_runs_a_notebook_and_brings_the_scheduler_up(here: Place, monkeypatch) -> None:
    made = notebook(*CELLS)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", here.env["JUPYTER_RUNTIME_DIR"])
    client = NotebookClient(made, timeout=TIMEOUT_S, resources={"metadata": {"path": str(here.work)}})
    client.execute(env=here.env)
    check_executed(made)
    assert len(here.schedulers()) == 1


def test_nbclient_stops_at_a_job_that_failed_and_keeps_its_traceback(cluster: Place, monkeypatch) -> None:
    made = notebook(CELLS[0], "%%submit\nbase / 0", "print('never')")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", cluster.env["JUPYTER_RUNTIME_DIR"])
    client = NotebookClient(
        made, timeout=TIMEOUT_S, allow_errors=False, resources={"metadata": {"path": str(cluster.work)}}
    )
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        client.execute(env=cluster.env)
    (error,) = [output for output in made.cells[1].outputs if output["output_type"] == "error"]
    assert "base / 0" in ANSI.sub("", "\n".join(error["traceback"]))
    assert made.cells[2].outputs == []


def test_papermill_runs_a_notebook_with_its_parameters(cluster: Place) -> None:
    made = notebook(CELLS[0], *CELLS[1:])
    made.cells[0].metadata.tags = ["parameters"]
    made.cells[1].source = CELLS[1].replace("base", "given")
    nbformat.write(made, cluster.work / "in.ipynb")
    cluster.run(
        sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-p", "given", "20", "--no-progress-bar"
    )
    done = nbformat.read(cluster.work / "out.ipynb", as_version=4)
    del done.cells[1]  # the one that papermill put in
    check_executed(done)


def test_terminal_shows_state_output_and_result_and_ctrl_c_detaches(cluster: Place) -> None:
    terminal = pexpect.spawn(
        sys.executable, ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=NoColor"],
        env={**cluster.env, "TERM": "dumb"}, cwd=str(cluster.work), timeout=TIMEOUT_S, encoding="utf-8", echo=False,
    )  # fmt: skip
    cluster.exit.callback(lambda: terminal.close(force=True))

    def prompt() -> str:
        terminal.expect(r"In \[\d+\]: ")
        return ANSI.sub("", terminal.before)

    def say(line: str) -> str:
        terminal.sendline(line)
        return prompt()

    prompt()
    say("%load_ext jupyter_gpucluster")
    said = say("word = %submit --gpus 0 'from afar'.upper()")
    assert "succeeded" in said
    assert "'FROM AFAR'" in say("word")
    terminal.sendline("%submit --gpus 0 print('begun', flush=True) or __import__('time').sleep(600)")
    terminal.expect("begun")
    terminal.sendintr()
    left = prompt()
    number = re.search(r"Detached from job (\d+); it goes on", left)[1]
    assert "Traceback" not in left
    assert "stopping" in say(f"%cancel {number}")
    assert cluster.ended(number).state == "cancelled"


def test_ipython_runs_a_file_of_cells(cluster: Place) -> None:
    """`ipython file.ipy`: no terminal, no kernel, the output goes to the streams."""
    (cluster.work / "cells.ipy").write_text(
        "%load_ext jupyter_gpucluster\nbase = 20\nanswer = %submit --gpus 0 print('over there') or base + 22\n"
        "print('the answer is', answer)\n"
    )
    out, err = cluster.run(sys.executable, "-m", "IPython", "--colors=NoColor", "cells.ipy")
    assert "over there\n" in out
    assert out.endswith("the answer is 42\n")
    assert "succeeded" in err
    assert "\x1b" not in out


SCRIPT = """
import json, sys, threading
from jupyter_gpucluster import submit

SCALE = 3

class Point:
    def __init__(self, x): self.x = x

def scaled(point, by=1):
    print("in the job")
    return Point(point.x * SCALE * by)

if __name__ == "__main__":
    job = submit(scaled, Point(7), kwargs={"by": 2}, gpus=1, name="from a script")
    result = job.result(60)
    assert isinstance(result, Point)
    later = submit(sum, [1, 2, 3], gpus=0)
    json.dump({"x": result.x, "log": job.logs(), "number": job.number, "later": later.id}, sys.stdout)
"""


def test_script_submits_functions_and_another_process_fetches_the_result_later(here: Place) -> None:
    (here.work / "script.py").write_text(SCRIPT)
    out, _ = here.run(sys.executable, "script.py")
    told = json.loads(out)
    assert (told["x"], told["log"]) == (42, "in the job\n")
    assert len(here.schedulers()) == 1, "the script's scheduler outlives the script"
    again, _ = here.run(
        sys.executable, "-c", f"from jupyter_gpucluster import Job; print(Job({told['later']!r}).result(60))"
    )
    assert again == "6\n"


def test_scripts_failed_job_ends_with_the_error_of_the_function(cluster: Place) -> None:
    (cluster.work / "script.py").write_text(
        "from jupyter_gpucluster import submit\n"
        "def bad():\n    print('last words')\n    raise LookupError('no such thing')\n"
        "submit(bad, gpus=0).result(60)\n"
    )
    out, err = cluster.run(sys.executable, "script.py", code=1)
    assert out == ""
    assert "LookupError: no such thing" in err
    assert "last words" in err


def test_front_end_without_cell_ids_gets_the_same_job(cluster: Place) -> None:
    """VS Code sends no cellId; it tells the notebook by a variable of its own."""
    kernel = start_kernel(cluster)
    kernel.run("__vsc_ipynb_file__ = '/home/me/train.ipynb'")
    cell = kernel.run("%%submit --gpus 0\nprint('out')\n'value'")
    assert (cell.status, cell.stdout, cell.result) == ("ok", "out\n", "'value'")
    assert "succeeded" in cell.card_text
    assert "succeeded" in cell.outputs[0]["data"]["text/html"]
    with cluster.client() as client:
        job = client.job(cell.card["number"])
        assert (job.notebook_path, job.cell_id) == ("/home/me/train.ipynb", None)
