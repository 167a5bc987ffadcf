"""JupyterLab in a real browser: the extension is there, and a submitted cell fills its output."""

from __future__ import annotations

import json
import uuid
from typing import Any

from support.jupyter_server import TOKEN, JupyterServer

RUN_ALL = """async path => {
  const app = window.jupyterapp;
  const panel = await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  await app.commands.execute('notebook:run-all-cells');
  return panel.content.widgets.map(cell => cell.model.toJSON());
}"""


def notebook(*sources: str) -> dict[str, Any]:
    cells = [
        {
            "id": f"cell-{index}",
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for index, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def open_lab(page: Any, lab: JupyterServer) -> None:
    page.goto(f"{lab.url}lab/workspaces/{uuid.uuid4().hex}?reset&token={TOKEN}")
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.restored; }")


def text_of(output: dict[str, Any]) -> str:
    parts = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return "".join(parts)


def test_sidebar_shows_the_queues_of_the_cluster(page: Any, lab: JupyterServer) -> None:
    open_lab(page, lab)
    page.evaluate("async () => { await window.jupyterapp.shell.activateById('jp-gpucluster-sidebar'); }")
    panel = page.locator("#jp-gpucluster-sidebar")
    panel.get_by_role("heading", name="GPU cluster").wait_for()
    queues = panel.get_by_role("tree", name="Queues").get_by_role("treeitem")
    queues.first.wait_for()
    assert queues.count() >= 2
    assert "guaranteed" in queues.first.inner_text()
    assert "simulated" in panel.inner_text()
    panel.get_by_text("%%submit --gpus 1").wait_for()


def test_submitted_cell_runs_as_a_job_and_its_result_comes_back(page: Any, lab: JupyterServer) -> None:
    body = notebook(
        "%load_ext jupyter_gpucluster\nbase = 20",
        "%%submit --gpus 2 --name from-lab\nimport os\nanswer = 2 * base + 2\nprint('rank', os.environ['RANK'])\nanswer",
        "print('the answer is', answer)",
    )
    (lab.folder / "notebooks" / "cell.ipynb").write_text(json.dumps(body))
    open_lab(page, lab)
    cells = page.evaluate(RUN_ALL, "cell.ipynb")
    submitted = cells[1]["outputs"]
    assert "application/vnd.gpucluster.job+json" in submitted[0]["data"]
    assert any(output["output_type"] == "stream" and "rank 0" in text_of(output) for output in submitted)
    assert any("42" in text_of(output) for output in submitted[1:])
    assert text_of(cells[2]["outputs"][0]) == "the answer is 42\n"
    record = submitted[0]["data"]["application/vnd.gpucluster.job+json"]
    assert record["state"] == "succeeded"
