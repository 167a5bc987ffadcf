"""Cards that no cell waits for: they follow their job while the kernel lives."""

from __future__ import annotations

import nbclient
import nbformat
import pytest

from .frontend import CARD, Kernel, Once, eventually
from .test_ends import begun, sleeper


def _updates(kernel: Kernel, cell, state: str) -> None:
    """Run cells, as a user would, until the card of `cell` shows the state."""
    eventually(lambda: kernel.run("pass") and cell.card["state"] == state, f"the card says {state}")


def test_card_of_a_job_that_nobody_waits_for_shows_its_end(kernel: Kernel, tmp_path):
    code, flag = sleeper(tmp_path, "--no-wait --gpus 0 --as job")
    cell = kernel.run(code)
    _updates(kernel, cell, "running")
    flag.touch()
    _updates(kernel, cell, "succeeded")
    assert "succeeded after" in cell.card_text
    assert (cell.stdout, cell.stderr) == ("", "")


def test_every_card_of_several_jobs_is_kept_by_one_thread_which_ends_with_the_last_job(
    kernel: Kernel, tmp_path
):
    code, flag = sleeper(tmp_path, "--no-wait --gpus 0 --as job")
    cells = [kernel.run(code), kernel.run(code), kernel.run("job")]
    count = "import threading; [each.name for each in threading.enumerate()].count('gpucluster-cards')"
    assert kernel.run(count).result == "1"
    flag.touch()
    for cell in cells:
        _updates(kernel, cell, "succeeded")
    eventually(lambda: kernel.run(count).result == "0", "the thread ends")


def test_end_between_two_cells_is_drawn_when_the_next_one_begins(kernel: Kernel, scheduler, tmp_path):
    code, flag = sleeper(tmp_path, "--no-wait --gpus 0 --as job")
    cell = kernel.run(code)
    eventually(lambda: scheduler.client.job(cell.card["number"]).state == "running", "it runs")
    flag.touch()
    eventually(lambda: scheduler.client.job(cell.card["number"]).state == "succeeded", "it ends")
    kernel.run("job.result()")
    assert cell.card["state"] == "succeeded"


def test_card_of_a_job_let_go_says_how_to_come_back_and_goes_on(kernel: Kernel, tmp_path):
    code, flag = sleeper(tmp_path, "--gpus 0")
    cell = kernel.run(code, Once(begun, kernel.interrupt))
    number = cell.card["number"]
    assert f"%attach {number} comes back" in cell.card_text
    assert cell.card["hints"] == [f"let go by this cell; %attach {number} comes back"]
    flag.touch()
    _updates(kernel, cell, "succeeded")
    assert f"%attach {number}" in cell.card_text


@pytest.mark.parametrize("last", ["small.bind()", "small.result()", "small.wait()"])
def test_saved_notebook_says_that_the_job_has_succeeded(scheduler, monkeypatch, tmp_path, last):
    for key, value in scheduler.env.items():
        monkeypatch.setenv(key, value)
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("%load_ext jupyter_gpucluster"),
            nbformat.v4.new_code_cell(
                "%%submit --no-wait --gpus 0 --as small\nimport time\ntime.sleep(1)\nnet = 1"
            ),
            nbformat.v4.new_code_cell("1 + 1"),
            nbformat.v4.new_code_cell(last),
        ]
    )
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    (card,) = notebook.cells[1].outputs
    assert card["data"][CARD]["state"] == "succeeded"
    assert "succeeded after" in card["data"]["text/plain"]
