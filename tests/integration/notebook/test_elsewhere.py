"""Where there is no Jupyter front end: nbclient, papermill, IPython in a terminal, a plain script."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import nbclient
import nbformat
import pytest

from .frontend import CARD, Kernel, Once


@pytest.fixture
def environment(scheduler, monkeypatch):
    for key in ("GPUCLUSTER_DATA", "GPUCLUSTER_RUNTIME", "IPYTHONDIR"):
        monkeypatch.setenv(key, scheduler.env[key])
    return scheduler.env


def notebook(*cells: str):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])


CELLS = (
    "%load_ext jupyter_gpucluster\nfrom IPython.display import clear_output\nx = 20",
    "%%submit --name headless\nprint('old')\nclear_output()\nprint('new')\ny = x + 1\ny",
    "y",
)


def test_nbclient_stores_card_outputs_and_result(environment, tmp_path):
    book = notebook(*CELLS)
    nbclient.NotebookClient(
        book, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    card, stream, result = book.cells[1].outputs
    assert card.data[CARD]["state"] == "succeeded"
    assert stream.text == "new\n"
    assert result.data["text/plain"] == "21"
    assert book.cells[2].outputs[0].data["text/plain"] == "21"
    nbformat.validate(book)


def test_nbclient_stops_at_a_cell_whose_job_fails(environment, tmp_path):
    book = notebook(CELLS[0], "%%submit\n1 / 0", "reached = True")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        nbclient.NotebookClient(
            book, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    assert book.cells[2].execution_count is None


def test_papermill_runs_submitted_cells(environment, tmp_path):
    import papermill

    nbformat.write(notebook(*CELLS), tmp_path / "in.ipynb")
    papermill.execute_notebook(
        tmp_path / "in.ipynb",
        tmp_path / "out.ipynb",
        kernel_name="python3",
        progress_bar=False,
        cwd=str(tmp_path),
    )
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert done.cells[2].outputs[0].data["text/plain"] == "21"


def test_terminal_shows_text_and_each_state_once(environment, tmp_path):
    script = tmp_path / "session.ipy"
    script.write_text(
        "%load_ext jupyter_gpucluster\nx = 20\n"
        "get_ipython().run_cell('%%submit --name term\\nprint(\"hello\")\\ny = x + 1\\ny')\nprint('y is', y)\n"
        "get_ipython().run_cell('%submit 1 / 0')\n%jobs --limit 3\n"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "hello\n" in done.stdout
    assert "y is 21" in done.stdout
    assert "ZeroDivisionError" in done.stdout
    assert "<div" not in done.stdout + done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("✔ ")]
    assert len(told) == 1, done.stderr
    assert f"{told[0]}\n  in: x · out: y\n" in done.stderr
    assert done.stderr.count("✘ ") == 1


def test_terminal_shows_errors_of_ours_without_our_frames(environment, tmp_path):
    script = tmp_path / "session.ipy"
    script.write_text(
        "%load_ext jupyter_gpucluster\nfrom jupyter_gpucluster import Job, submit\nrun = get_ipython().run_cell\n"
        "run('Job(999999)')\nrun('submit(len, [1], tier=3)')\nrun('%attach 999999')\nrun('%%submit\\nx = = 2')\n"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert shown.count("NotFound: there is no job 999999\n%jobs lists the jobs that you may see.\n") == 2, (
        shown
    )
    assert "InvalidRequest: tier: '3' is not one of 0, 1, 2\n" in shown
    assert ", line 2\n    x = = 2\n        ^\nSyntaxError: invalid syntax\n" in shown
    assert "Traceback" not in shown
    assert "gpucluster/" not in shown


def test_script_without_ipython_submits_functions(environment, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom jupyter_gpucluster import submit\nfactor = 3\n\ndef triple(x):\n    return factor * x\n\n"
        "if __name__ == '__main__':\n    job = submit(triple, 14, gpus=0)\n    print(job.result(60), 'IPython' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("42 "), done.stderr


def test_first_submission_brings_up_a_scheduler_of_ones_own(tmp_path, monkeypatch):
    from gpucluster.api import client as api

    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("GPUCLUSTER_", "JUPYTER_"))
    }
    folders = {"GPUCLUSTER_DATA": str(tmp_path / "d"), "GPUCLUSTER_RUNTIME": str(tmp_path / "r")}
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", folders["GPUCLUSTER_RUNTIME"])
    kernel = Kernel({**kept, **folders, "IPYTHONDIR": str(tmp_path / "i")}, tmp_path)
    try:
        cell = kernel.run("%%submit\n6 * 7")
        assert cell.result == "42", cell.describe()
    finally:
        kernel.close()
        api.connect(start=False, data_dir=tmp_path / "d").stop()


def test_following_a_log_ends_quietly_at_an_interrupt(kernel: Kernel):
    kernel.run(
        "%%submit --no-wait --as job --gpus 0\nimport time\nprint('begun', flush=True)\ntime.sleep(3600)"
    )
    cell = kernel.run("%logs job --follow", Once(lambda cell: "begun" in cell.stdout, kernel.interrupt))
    assert cell.status == "ok"
    assert cell.stdout.endswith("begun\n")
    assert kernel.run("job.state").result == "'running'"
    kernel.run("job.cancel(); job.wait()")
