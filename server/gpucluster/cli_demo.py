"""`gpucluster demo`: copies the example notebooks out and runs the first one headless, through a real Jupyter kernel.

What its cells print is shown as it comes. The job cards change in place in a notebook; here each change of their text is
a line of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.rule import Rule
from rich.text import Text

from .api.client import connect
from .cli_output import EXIT_FAILED, EXIT_OK, Output
from .cli_render import queues
from .cli_topology import topology
from .model.errors import Conflict, InvalidRequest, NotFound, Unavailable

if TYPE_CHECKING:
    from nbformat import NotebookNode

EXAMPLE = "01_first_cell.ipynb"
CELL_TIMEOUT_S = 600


def run_demo(arguments: argparse.Namespace, output: Output) -> int:
    folder = Path(arguments.to).expanduser().resolve()
    copied = copy_examples(examples_folder(), folder)
    executed = folder / f"{Path(EXAMPLE).stem}.executed.ipynb"
    output.line(f"{', '.join(path.name for path in copied)} copied to {folder}")
    failure = execute(folder / EXAMPLE, executed, output)
    with connect(arguments.address, start=True, data_dir=arguments.data) as client:
        views, drawn = client.queues(), client.topology()
        default = client.hello().default_queue
    if output.as_json:
        output.json({"notebook": str(executed), "failure": failure, "queues": views, "topology": drawn})
        return EXIT_FAILED if failure else EXIT_OK
    for title, shown in (
        ("queues", queues(views, default, output.width, output.glyphs)),
        ("topology", topology(drawn, output.width, output.glyphs)),
    ):
        output.console.print(Rule(title, style="dim", align="left"))
        output.console.print(shown)
    output.console.print(Rule(style="dim"))
    output.line(f"The executed notebook: {executed}")
    output.line(f"The same by hand:      jupyter lab {folder / EXAMPLE}")
    if failure:
        output.line(f"It failed: {failure}")
        return EXIT_FAILED
    output.line("The scheduler goes on until it has been idle for a while; `gpucluster stop` ends it now.")
    return EXIT_OK


# ---- the examples


def examples_folder() -> Path:
    """Where the installed examples are; in a source tree, its own. Raises NotFound."""
    roots = (sysconfig.get_path("data"), sysconfig.get_path("data", "posix_user"))
    candidates = [Path(root) / "share" / "jupyter-gpucluster" / "examples" for root in roots]
    candidates.append(Path(__file__).resolve().parents[2] / "examples")
    for candidate in candidates:
        if (candidate / EXAMPLE).is_file():
            return candidate
    raise NotFound(
        f"{EXAMPLE} is not installed", hint="Install the package again, or run this in its source tree."
    )


def copy_examples(source: Path, folder: Path) -> list[Path]:
    """Copies every example that is not there yet. Raises Conflict when one there was changed: it may be somebody's work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_copy(path, folder / path.name) for path in sorted(source.iterdir()) if path.is_file()]
    except OSError as error:
        raise InvalidRequest("--to", f"{folder} cannot be written: {error.strerror or error}") from None


def _copy(path: Path, target: Path) -> Path:
    if not target.exists():
        shutil.copyfile(path, target)
    elif target.read_bytes() != path.read_bytes():
        raise Conflict(
            f"{target} differs from the example", hint="Move it away, or name another folder with --to."
        )
    return target


# ---- the run


def execute(notebook: Path, executed: Path, output: Output) -> str | None:
    """Runs the notebook in its folder and writes it with its outputs to `executed`, also when a cell fails.

    Returns what failed in one line, None when all went well.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError as error:
        raise Unavailable(
            f"the demo needs {error.name}", hint="Install jupyter-gpucluster with its dependencies."
        ) from None

    class Runner(NotebookClient):
        """Shows outputs while they come."""

        def output(
            self, outs: list[NotebookNode], msg: dict[str, Any], display_id: str, cell_index: int
        ) -> Any:
            show.message(msg)
            return super().output(outs, msg, display_id, cell_index)

        def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
            if msg["msg_type"] == "update_display_data":
                show.message(msg)
            return super().process_message(msg, cell, cell_index)

    show = _Show(output)
    book = nbformat.read(notebook, as_version=4)
    client = Runner(
        book,
        timeout=CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(notebook.parent)}},
        on_cell_execute=lambda cell, cell_index: show.cell(cell),
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error).strip().splitlines()[-1]
    finally:
        show.end()
        nbformat.write(book, executed)
    return None


class _Show:
    """Prints a cell's first lines of code, then its outputs as text."""

    SHOWN_LINES = 3

    def __init__(self, output: Output) -> None:
        self._output = output
        self._at_line_start = True
        self._cards: dict[str, str] = {}

    def cell(self, cell: Any) -> None:
        if self._output.as_json or cell.cell_type != "code":
            return
        self.end()
        lines = cell.source.splitlines()
        for line in lines[: self.SHOWN_LINES]:
            self._output.console.print(Text(f"> {line}", "cyan"), soft_wrap=True)
        if len(lines) > self.SHOWN_LINES:
            self._output.console.print(Text("> …", "cyan"))

    def message(self, message: dict[str, Any]) -> None:
        if self._output.as_json:
            return
        for text in self._texts(message):
            self._output.console.out(text, end="", highlight=False)
            self._at_line_start = text.endswith("\n")

    def _texts(self, message: dict[str, Any]) -> Iterator[str]:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            yield content["text"]
        elif kind in ("display_data", "execute_result", "update_display_data"):
            yield from self._display(content)

    def _display(self, content: dict[str, Any]) -> Iterator[str]:
        """The text of a display, once for as long as it stays the same."""
        text = content["data"].get("text/plain", "")
        display = content.get("transient", {}).get("display_id")
        if not text or (display and self._cards.get(display) == text):
            return
        if display:
            self._cards[display] = text
        yield f"{'' if self._at_line_start else chr(10)}{text}\n"

    def end(self) -> None:
        if not self._at_line_start:
            self._output.console.out("")
            self._at_line_start = True
