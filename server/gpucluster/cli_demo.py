"""`gpucluster demo`: copies the example notebooks out and runs the first one headless, through a real Jupyter kernel.

What its cells print is shown as it comes. The job cards change in place in a notebook; here each change of their text is
a line of its own. Queues and topology are drawn while its two trainings run: before and after there is nothing on them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.rule import Rule
from rich.text import Text

from .api import discovery
from .api.client import ApiClient, connect
from .cli_output import EXIT_FAILED, EXIT_OK, Output
from .cli_render import queues
from .cli_topology import topology
from .model.errors import InvalidRequest, NotFound, Unavailable
from .model.jobs import JobState

if TYPE_CHECKING:
    from nbformat import NotebookNode

EXAMPLE = "01_first_cell.ipynb"
CELL_TIMEOUT_S = 600
#: Where the Makefile of a source tree has the notebooks.
CHECKOUT_DEMO = ".demo"
#: So many jobs run at once in the example.
AT_ONCE = 2


def run_demo(arguments: argparse.Namespace, output: Output) -> int:
    folder = Path(arguments.to).expanduser().resolve()
    examples = examples_folder()
    copied = copy_examples(examples, folder)
    executed = folder / f"{Path(EXAMPLE).stem}.executed.ipynb"
    if copied:
        output.line(f"{', '.join(path.name for path in copied)} copied to {folder}")
    glance = _Glance(arguments, output)
    failure = execute(
        examples / EXAMPLE, executed, output, kernel_environment(arguments), meanwhile=glance.look
    )
    if output.as_json:
        with connect(arguments.address, start=True, data_dir=arguments.data) as client:
            views, drawn = client.queues(), client.topology()
        output.json({"notebook": str(executed), "failure": failure, "queues": views, "topology": drawn})
        return EXIT_FAILED if failure else EXIT_OK
    if not glance.has_drawn:
        with connect(arguments.address, start=True, data_dir=arguments.data) as client:
            glance.draw(client, "now")
    output.console.print(Rule(style="dim"))
    output.line(f"The executed notebook:  {executed}")
    output.line(f"The same by hand:       {by_hand(folder)}")
    if failure:
        output.line(f"It failed: {failure}")
        return EXIT_FAILED
    output.line(
        f"To end the scheduler:   {typed('gpucluster')} stop   (or leave it: it ends when idle for long)"
    )
    return EXIT_OK


class _Glance:
    """Draws queues and topology once, at the moment when the example's trainings run side by side."""

    def __init__(self, arguments: argparse.Namespace, output: Output) -> None:
        self._arguments = arguments
        self._output = output
        self.has_drawn = output.as_json

    def look(self) -> None:
        """To be called often: with every message of the kernel."""
        if self.has_drawn:
            return
        try:
            with connect(self._arguments.address, start=False, data_dir=self._arguments.data) as client:
                if client.status().jobs.get(JobState.RUNNING.value, 0) >= AT_ONCE:
                    self.draw(client, "now, while both train")
        except Unavailable:
            """The first submission has yet to start the scheduler."""

    def draw(self, client: ApiClient, when: str) -> None:
        output, self.has_drawn = self._output, True
        views, drawn, default = client.queues(), client.topology(), client.hello().default_queue
        for title, shown in (
            ("queues", queues(views, default, output.width, output.glyphs)),
            ("topology", topology(drawn, output.width, output.glyphs)),
        ):
            output.console.print(Rule(f"{title} {when}", style="dim", align="left"))
            output.console.print(shown)
        output.console.print(Rule(style="dim"))


# ---- what to type next


def typed(program: str) -> str:
    """How a program of this installation is called from here: by its name where the PATH has it, else by its path."""
    installed = Path(sys.executable).parent / program
    found = shutil.which(program)
    if not installed.exists() or (found and os.path.samefile(found, installed)):
        return program
    return shlex.quote(_from_here(installed))


def by_hand(folder: Path) -> str:
    """The command that opens the example in JupyterLab."""
    here = Path.cwd()
    if here == Path(__file__).resolve().parents[2] and folder == here / CHECKOUT_DEMO:
        return "make lab"
    return f"{typed('jupyter')} lab {shlex.quote(_from_here(folder / EXAMPLE))}"


def _from_here(path: Path) -> str:
    """Relative where it lies below the present folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


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
    """Copies every example that is not there yet; returns those. What is there stays: it may be somebody's work."""
    copied = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(path for path in source.iterdir() if path.is_file()):
            if not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
                copied.append(folder / path.name)
    except OSError as error:
        raise InvalidRequest("--to", f"{folder} cannot be written: {error.strerror or error}") from None
    return copied


# ---- the run


def kernel_environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The environment of this process; --data and --address reach the notebook's client by their variables."""
    given = {discovery.ENV_DATA: arguments.data, discovery.ENV_ADDRESS: arguments.address}
    return {**os.environ, **{name: value for name, value in given.items() if value}}


def execute(
    notebook: Path,
    executed: Path,
    output: Output,
    environment: dict[str, str],
    meanwhile: Callable[[], None] = lambda: None,
) -> str | None:
    """Runs the notebook in the folder of `executed` and writes it there with its outputs, also when a cell fails.

    `meanwhile` is called with every message of the kernel. Returns what failed in one line, None when all went well.
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
            self, outs: list[NotebookNode], msg: dict[str, Any], display_id: str | None, cell_index: int
        ) -> Any:
            show.message(msg)
            return super().output(outs, msg, display_id, cell_index)

        def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
            if msg["msg_type"] == "update_display_data":
                show.message(msg)
                meanwhile()
            return super().process_message(msg, cell, cell_index)

    show = _Show(output)
    book = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    client = Runner(
        book,
        timeout=CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(executed.parent)}},
        on_cell_execute=lambda cell, cell_index: show.cell(cell),
    )
    with tempfile.TemporaryFile() as kernel_log:
        try:
            client.execute(env=environment, stderr=kernel_log)
        except (CellExecutionError, CellTimeoutError) as error:
            return str(error).strip().splitlines()[-1]
        except (DeadKernelError, RuntimeError) as error:
            kernel_log.seek(0)
            output.aside(kernel_log.read().decode(errors="replace")[-4000:])
            return f"the kernel did not live: {error}"
        finally:
            show.end()
            nbformat.write(book, executed)  # type: ignore[no-untyped-call]
    return None


class _Show:
    """Prints a cell's first lines of code, then its outputs as text, line by line.

    A line that rewrites itself (a carriage return) appears once, as it was in the end; how far a job is can be seen from
    its card meanwhile.
    """

    SHOWN_LINES = 3

    def __init__(self, output: Output) -> None:
        self._output = output
        self._unfinished = ""
        self._cards: dict[str, list[str]] = {}

    def cell(self, cell: Any) -> None:
        self.end()
        if cell.cell_type != "code":
            return
        lines = [line for line in cell.source.splitlines() if line.strip()]
        shown = lines[: self.SHOWN_LINES] + (["…"] if len(lines) > self.SHOWN_LINES else [])
        for line in shown:
            self._line(f"> {line}", "cyan")

    def message(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self._stream(content["text"])
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._display(content)

    def _stream(self, text: str) -> None:
        *finished, self._unfinished = f"{self._unfinished}{text}".split("\n")
        for line in finished:
            self._line(_as_seen(line))

    def _display(self, content: dict[str, Any]) -> None:
        """The text of a display; of one that changes in place, the lines that are new."""
        lines = content["data"].get("text/plain", "").splitlines()
        display = content.get("transient", {}).get("display_id")
        before = self._cards.get(display, []) if display else []
        for line in lines:
            if line not in before:
                self._line(line)
        if display:
            self._cards[display] = lines

    def end(self) -> None:
        """What was left without a line end is shown as a line."""
        if self._unfinished:
            self._line(_as_seen(self._unfinished))
            self._unfinished = ""

    def _line(self, line: str, style: str = "") -> None:
        if not self._output.as_json:
            self._output.console.print(
                Text.from_ansi(line) if not style else Text(line, style), soft_wrap=True
            )


def _as_seen(line: str) -> str:
    """What a terminal shows of a line in the end: what follows its last carriage return, unless that is nothing."""
    return next((part for part in reversed(line.split("\r")) if part), "")
