"""What a person does in JupyterLab and Notebook 7, as functions of a page: the tests say what, this says how."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from support.jupyter_server import TOKEN, JupyterServer

CARD = "application/vnd.gpucluster.job+json"

_PANEL = """
  const panels = [...window.jupyterapp.shell.widgets('main')];
  const panel = panels.find(each => each.context && each.context.path.endsWith(path));
"""
_OPEN = """async path => {
  const app = window.jupyterapp;
  const open = [...app.shell.widgets('main')].find(each => each.context && each.context.path.endsWith(path));
  const panel = open ?? await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready;
  await panel.revealed;
  app.shell.activateById(panel.id);
}"""
_KERNEL = (
    """async path => {"""
    + _PANEL
    + """
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""
)
_CELLS = (
    """path => {"""
    + _PANEL
    + """
  return panel ? panel.content.widgets.map(cell => cell.model.toJSON()) : [];
}"""
)
_SAVE = (
    """async path => {"""
    + _PANEL
    + """
  // Two saves at once ask whether the file was changed: one that is under way, the extension's own maybe, comes first.
  for (let tries = 0; panel.context.model.dirty && tries < 20; tries++) {
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  if (panel.context.model.dirty) {
    await panel.context.save();
  }
}"""
)
_DIRTY = """path => {""" + _PANEL + """ return panel.context.model.dirty; }"""
_RESTART = (
    """async path => {"""
    + _PANEL
    + """
  await panel.sessionContext.session.kernel.restart();
}"""
)
_SELECT = """([path, index]) => {""" + _PANEL + """ panel.content.activeCellIndex = index; }"""
_ACTIVE = """path => {""" + _PANEL + """ return panel ? panel.content.activeCellIndex : -1; }"""
_PROMPT = (
    """([path, index]) => {""" + _PANEL + """ return panel.content.widgets[index].promptNode.textContent; }"""
)
_STATUS = """path => {""" + _PANEL + """ return panel.sessionContext.session.kernel.status; }"""


def write_notebook(server: JupyterServer, name: str, *sources: str) -> Path:
    """A notebook of code cells with the ids cell-0, cell-1, …; where it stands."""
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
    body = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path = server.folder / "notebooks" / name
    path.write_text(json.dumps(body))
    return path


def text_of(output: dict[str, Any]) -> str:
    """A stream's text, or a display's plain one."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain") or "")


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """The first true value of `condition`; a failure that says what was waited for. The time only guards against hanging."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.1)


class NotebookPage:
    """A notebook open in a browser page, in Lab or in Notebook 7."""

    def __init__(self, page: Any, server: JupyterServer, path: Path) -> None:
        self.page = page
        self.server = server
        self.path = path
        self.name = path.name

    # ---- open

    def in_lab(self) -> NotebookPage:
        open_lab(self.page, self.server)
        self.page.evaluate(_OPEN, self.name)
        return self

    def in_notebook7(self) -> NotebookPage:
        self.page.goto(f"{self.server.url}notebooks/{self.name}?token={TOKEN}")
        _wait_for_app(self.page)
        self.page.wait_for_function(
            "path => [...window.jupyterapp.shell.widgets('main')]"
            ".some(each => each.context && each.context.path.endsWith(path) && each.context.isReady)",
            arg=self.name,
        )
        return self

    def reload(self) -> None:
        """As F5 does, whatever is unsaved."""
        self.page.once("dialog", lambda dialog: dialog.accept())
        self.page.reload()
        _wait_for_app(self.page)
        if "/lab" in self.page.url:
            self.page.evaluate(_OPEN, self.name)

    # ---- use

    def run(self, index: int) -> None:
        """Run one cell, as Shift+Enter does, and not wait for it."""
        self.page.evaluate(_KERNEL, self.name)
        self.page.evaluate(
            """([path, index]) => {"""
            + _PANEL
            + """
  panel.content.deselectAll();
  panel.content.activeCellIndex = index;
  void window.jupyterapp.commands.execute('notebook:run-cell');
}""",
            [self.name, index],
        )

    def run_all(self) -> None:
        """Run all cells, and not wait for them."""
        self.page.evaluate(_KERNEL, self.name)
        self.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def select(self, index: int) -> None:
        self.page.evaluate(_SELECT, [self.name, index])

    def active_cell(self) -> int:
        return int(self.page.evaluate(_ACTIVE, self.name))

    def restart_kernel(self) -> None:
        self.page.evaluate(_RESTART, self.name)

    def is_running(self, index: int) -> bool:
        """Whether a cell is being run: "[*]" beside it. (A kernel that is asked something else meanwhile calls itself idle.)"""
        return "*" in self.page.evaluate(_PROMPT, [self.name, index])

    def kernel_status(self) -> str:
        return str(self.page.evaluate(_STATUS, self.name))

    def save(self) -> None:
        self.page.evaluate(_SAVE, self.name)

    @property
    def is_dirty(self) -> bool:
        return bool(self.page.evaluate(_DIRTY, self.name))

    # ---- look

    def cells(self) -> list[dict[str, Any]]:
        """The cells as the page would save them."""
        return list(self.page.evaluate(_CELLS, self.name))

    def outputs(self, index: int) -> list[dict[str, Any]]:
        cells = self.cells()
        return list(cells[index]["outputs"]) if index < len(cells) else []

    def text(self, index: int) -> str:
        return "".join(text_of(output) for output in self.outputs(index)[1:])

    def card(self, index: int) -> dict[str, Any]:
        """The JSON of the cell's card as it stands in the notebook; empty when there is none."""
        outputs = self.outputs(index)
        return dict(outputs[0].get("data", {}).get(CARD) or {}) if outputs else {}

    def is_whole(self, index: int) -> bool:
        return bool((self.card(index).get("drawing") or {}).get("complete"))

    def saved(self) -> list[dict[str, Any]]:
        """The cells in the file."""
        return list(json.loads(self.path.read_text())["cells"])


def open_lab(page: Any, server: JupyterServer) -> None:
    page.goto(f"{server.url}lab/workspaces/{uuid.uuid4().hex}?reset&token={TOKEN}")
    _wait_for_app(page)
    page.evaluate("async () => { await window.jupyterapp.restored; }")


def _wait_for_app(page: Any) -> None:
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.started; }")


def show_sidebar(page: Any) -> Any:
    page.evaluate("async () => { await window.jupyterapp.shell.activateById('jp-gpucluster-sidebar'); }")
    return page.locator("#jp-gpucluster-sidebar")


def told(outputs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs with what differs from run to run taken out of the card: numbers, times, places."""
    kept = []
    for output in outputs:
        card = output.get("data", {}).get(CARD) if output.get("output_type") == "display_data" else None
        if card is None:
            kept.append(_joined(output))
            continue
        drawing = {key: card["drawing"][key] for key in ("fills_cell", "complete", "rank", "execution_count")}
        kept.append({"card": {"state": card["state"], "name": card["name"], "drawing": drawing}})
    return kept


def _joined(output: dict[str, Any]) -> dict[str, Any]:
    """With each text in one piece: files have lists of lines."""
    made = {key: "".join(value) if key == "text" else value for key, value in output.items()}
    if isinstance(output.get("data"), dict):
        made["data"] = {
            mime: "".join(content) if isinstance(content, list) else content
            for mime, content in output["data"].items()
        }
    return made
