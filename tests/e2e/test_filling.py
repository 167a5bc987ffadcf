"""A cell that was submitted ends with the right outputs in its notebook, whatever is closed, reloaded or killed meanwhile:
the same as in a run that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import NotebookPage, text_of, told, wait_for, write_notebook
from support.jupyter_server import JupyterServer

#: Writes in two parts, with a gate between them, in every way in which a cell writes.
CELL = """%%submit --gpus 1 --name steady
import os, sys, time
from IPython.display import HTML, clear_output, display

print("to be cleared")
clear_output(wait=True)
print("begin")
for step in range(3):
    print(f"\\rstep {step}", end="")
print()
print("a warning", file=sys.stderr)
shown = display(HTML("<b>first</b>"), display_id=True)
print("part one")
while not os.path.exists(GATE):
    time.sleep(0.05)
shown.update(HTML("<b>second</b>"))
print("part two")
answer = 6 * 7
answer"""
LOAD = "%load_ext jupyter_gpucluster\nGATE = {gate!r}"


class Steady:
    """The notebook with that cell, its gate, and what an undisturbed run leaves in the file."""

    def __init__(self, server: JupyterServer, page: Any, name: str, *more_cells: str) -> None:
        self.gate = server.folder / f"{name}.gate"
        path = write_notebook(server, f"{name}.ipynb", LOAD.format(gate=str(self.gate)), CELL, *more_cells)
        self.notebook = NotebookPage(page, server, path)

    def run_to_the_gate(self) -> None:
        self.notebook.run(0)
        self.notebook.run(1)
        wait_for(lambda: "part one" in self.notebook.text(1), "the first part of the output")

    def open_gate(self) -> None:
        self.gate.touch()

    def outcome(self) -> list[dict[str, Any]]:
        """The cell's outputs in the file, once all of them are in the page."""
        wait_for(lambda: self.notebook.is_whole(1), f"the whole output, there is {self.notebook.outputs(1)}")
        self.notebook.save()
        saved = self.notebook.saved()[1]
        assert saved["execution_count"] == 2
        return told(saved["outputs"])


@pytest.fixture(scope="module")
def undisturbed(browser: Any, lab: JupyterServer) -> list[dict[str, Any]]:
    page = browser.new_page()
    steady = Steady(lab, page, "undisturbed")
    steady.notebook.in_lab()
    steady.run_to_the_gate()
    steady.open_gate()
    outputs = steady.outcome()
    page.close()
    texts = [output["text"] for output in outputs if output.get("output_type") == "stream"]
    assert texts == ["begin\nstep 2\n", "a warning\n", "part one\npart two\n"]
    assert text_of(outputs[-1]) == "42"
    return outputs


def scheduler_pid(server: JupyterServer) -> int:
    status, body = server.request("GET", "gpucluster/api/v1/status")
    assert status == 200, body
    return int(body["pid"])


OPENERS: dict[str, Callable[[NotebookPage], NotebookPage]] = {
    "lab": NotebookPage.in_lab,
    "notebook7": NotebookPage.in_notebook7,
}


@pytest.fixture(params=sorted(OPENERS))
def steady(request: Any, lab: JupyterServer, page: Any) -> Steady:
    """Open in one of the two front ends, its cell half done."""
    name = f"{request.node.name}".replace("[", "-").replace("]", "")
    made = Steady(lab, page, name)
    OPENERS[request.param](made.notebook)
    made.run_to_the_gate()
    return made


def test_reloaded_page_goes_on_filling_the_cell(steady: Steady, undisturbed: list[dict[str, Any]]) -> None:
    steady.notebook.save()
    steady.notebook.reload()
    wait_for(lambda: "part one" in steady.notebook.text(1), "the first part, drawn anew")
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_page_reloaded_before_anything_was_saved(steady: Steady, undisturbed: list[dict[str, Any]]) -> None:
    steady.notebook.reload()
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_cell_that_waited_in_the_queue_of_its_kernel_is_filled_too(
    lab: JupyterServer, page: Any, undisturbed: list[dict[str, Any]]
) -> None:
    """Run All, and a reload: the kernel goes on with the cells that it was sent, and has no page to draw them in."""
    steady = Steady(lab, page, "kernel-queue", "%%submit --gpus 1 --name next\nprint('next')\nanswer + 1")
    steady.notebook.in_lab()
    steady.run_to_the_gate()
    steady.notebook.run(2)
    page.locator(".jp-InputPrompt", has_text="[*]").nth(1).wait_for()
    steady.notebook.save()
    steady.notebook.reload()
    wait_for(lambda: "part one" in steady.notebook.text(1), "the first part, drawn anew")
    steady.open_gate()
    assert steady.outcome() == undisturbed
    wait_for(lambda: steady.notebook.is_whole(2), "the cell that waited")
    assert steady.notebook.text(2) == "next\n43"


def test_closed_tab_and_a_new_one(
    steady: Steady, undisturbed: list[dict[str, Any]], lab: JupyterServer, page: Any
) -> None:
    in_lab = "/lab" in page.url
    context = page.context
    page.close()
    steady.open_gate()
    other = context.new_page()
    other.set_default_timeout(60_000)
    steady.notebook = NotebookPage(other, lab, steady.notebook.path)
    OPENERS["lab" if in_lab else "notebook7"](steady.notebook)
    assert steady.outcome() == undisturbed


def test_restarted_kernel(steady: Steady, undisturbed: list[dict[str, Any]]) -> None:
    steady.notebook.restart_kernel()
    wait_for(lambda: steady.notebook.kernel_status() == "idle", "the new kernel")
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_killed_kernel(steady: Steady, undisturbed: list[dict[str, Any]], lab: JupyterServer) -> None:
    for pid in kernels_of(lab, steady.notebook.path):
        os.kill(pid, signal.SIGKILL)
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_killed_scheduler(steady: Steady, undisturbed: list[dict[str, Any]], lab: JupyterServer) -> None:
    os.kill(scheduler_pid(lab), signal.SIGKILL)
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_scheduler_killed_while_the_page_fills_the_cell(
    steady: Steady, undisturbed: list[dict[str, Any]], lab: JupyterServer
) -> None:
    steady.notebook.reload()
    wait_for(lambda: "part one" in steady.notebook.text(1), "the first part, drawn anew")
    os.kill(scheduler_pid(lab), signal.SIGKILL)
    steady.open_gate()
    assert steady.outcome() == undisturbed


def test_second_page_leaves_the_cell_to_the_first(
    steady: Steady, undisturbed: list[dict[str, Any]], lab: JupyterServer, page: Any
) -> None:
    steady.notebook.save()
    in_lab = "/lab" in page.url
    other = page.context.new_page()
    other.set_default_timeout(60_000)
    second = NotebookPage(other, lab, steady.notebook.path)
    OPENERS["lab" if in_lab else "notebook7"](second)
    wait_for(lambda: second.card(1), "the second page's card")
    steady.open_gate()
    assert steady.outcome() == undisturbed
    wait_for(lambda: told(second.outputs(1)) == undisturbed, "the second page shows what the first has saved")
    assert not second.is_dirty
    other.close()


def test_cell_that_came_back_to_a_job_goes_on_too(lab: JupyterServer, page: Any) -> None:
    """The cluster knows of another cell as the job's: what the user has saved himself is believed."""
    gate = lab.folder / "attached.gate"
    submit = CELL.replace("--name steady", "--name steady --no-wait")
    path = write_notebook(lab, "attached.ipynb", LOAD.format(gate=str(gate)), submit, "%attach")
    notebook = NotebookPage(page, lab, path).in_lab()
    for index in range(3):
        notebook.run(index)
    wait_for(lambda: "part one" in notebook.text(2), "the first part of the output")
    notebook.save()
    notebook.reload()
    gate.touch()
    wait_for(lambda: notebook.is_whole(2), "the whole output")
    assert "part one\npart two\n" in notebook.text(2)


def test_card_that_somebody_else_put_into_a_notebook_brings_no_output(lab: JupyterServer, page: Any) -> None:
    """Filled and saved, it would tell whoever reads the file what the job has written."""
    steady = Steady(lab, page, "mine")
    steady.notebook.in_lab()
    steady.run_to_the_gate()
    steady.notebook.save()
    card = steady.notebook.saved()[1]["outputs"][0]
    path = write_notebook(lab, "planted.ipynb", CELL)
    body = json.loads(path.read_text())
    body["cells"][0]["outputs"] = [card]
    path.write_text(json.dumps(body))
    planted = NotebookPage(page, lab, path).in_lab()
    shown = page.locator(".jp-gpucluster-card")
    shown.get_by_text("running").first.wait_for()
    steady.open_gate()
    shown.get_by_text("succeeded").first.wait_for()
    assert told(planted.outputs(0)) == told([card])


def kernels_of(server: JupyterServer, path: Path) -> list[int]:
    """Process ids of the kernels of a notebook, found by the session name in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"ipykernel_launcher" in command and str(path.name).encode() in environ:
            found.append(int(entry.name))
    assert found, "the notebook has no kernel"
    return found


def test_restarted_jupyter_server(
    browser: Any, undisturbed: list[dict[str, Any]], tmp_path_factory: Any
) -> None:
    """On a server of its own: the page stays open while Jupyter, and with it the kernel, ends and comes back."""
    server = JupyterServer(tmp_path_factory.mktemp("restart"))
    try:
        server.start()
        context = browser.new_context()
        context.set_default_timeout(60_000)
        steady = Steady(server, context.new_page(), "restart")
        steady.notebook.in_lab()
        steady.run_to_the_gate()
        server.stop_jupyter()
        server.start()
        steady.open_gate()
        assert steady.outcome() == undisturbed
        context.close()
    finally:
        server.stop()
