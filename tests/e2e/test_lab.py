"""The first day in JupyterLab: the panel before there is a job, and the example notebook from its first cell to its last."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from pages import NotebookPage, open_lab, text_of, wait_for
from panel_pages import Sidebar
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer

EXAMPLE = Path(__file__).parents[2] / "examples/01_first_cell.ipynb"


def test_panel_says_what_there_is_and_how_to_begin(page: Any, lab: JupyterServer) -> None:
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    expect(sidebar.root).to_contain_text("0 of 16 GPUs in use · 2 nodes")
    expect(sidebar.root.get_by_text("simulated").first).to_be_visible()
    expect(sidebar.queue("research").item).to_contain_text("0 used of 10 guaranteed")
    expect(sidebar.queue("batch").item).to_contain_text("0 used of 6 guaranteed")
    expect(sidebar.gpus("free")).to_have_count(16)
    expect(sidebar.root).to_contain_text("You have no jobs yet.")
    expect(sidebar.root.get_by_text("%%submit --gpus 1")).to_be_visible()


def test_example_runs_from_top_to_bottom_and_the_sidebar_moves_with_it(page: Any, lab: JupyterServer) -> None:
    path = lab.folder / "notebooks/example.ipynb"
    shutil.copy(EXAMPLE, path)
    notebook = NotebookPage(page, lab, path).in_lab()
    sidebar = Sidebar(page).show()
    expect(sidebar.queue("batch").item).to_be_visible()
    sidebar.remember_movements()
    notebook.run_all()

    code = [at for at, cell in enumerate(notebook.cells()) if cell["cell_type"] == "code"]
    submits = [at for at in code if "%%submit" in "".join(notebook.cells()[at]["source"])]
    for at in submits:
        wait_for(lambda at=at: notebook.card(at).get("state") == "succeeded", f"the end of cell {at}", 180)
    wait_for(lambda: notebook.outputs(code[-1]) and not notebook.is_running(code[-1]), "the last cell")
    saved = notebook.cells()
    assert not [
        output for cell in saved for output in cell.get("outputs", []) if output["output_type"] == "error"
    ]

    wide = saved[submits[1]]["outputs"]
    assert any("image/png" in output.get("data", {}) for output in wide), (
        "the plot that was drawn inside the job"
    )
    assert any(re.search(r"epoch 30/30  loss 0\.\d+", text_of(output)) for output in wide)
    told = "".join(text_of(output) for cell in saved for output in cell.get("outputs", []))
    assert re.search(r"small net: [\d.]+% right, wide net: 9[\d.]+% right", told)

    moved = sidebar.movements()
    assert any(re.search(r"[1-9] used of 10 guaranteed", text) for text in moved["queues"]), moved["queues"]
    assert "wide-net" in moved["gpus"]
    assert "small-net" in moved["gpus"]
    assert moved["wide-net"], "a progress bar"
    assert moved["wide-net"] == sorted(moved["wide-net"])
    for name in ("small-net", "wide-net"):
        expect(sidebar.job(name).row).to_contain_text("succeeded after")
    expect(sidebar.gpus("free")).to_have_count(16)
