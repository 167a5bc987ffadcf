"""What output that floods a notebook costs the page: its longest task, and the size of the saved notebook.

`python benchmarks/long_output.py [--limit BYTES] [NAME …]`, with what the tests need installed: a real JupyterLab in Chromium.
Time is processor time of the page's main thread, so that what else the machine does matters little.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.jupyter_server import TOKEN, JupyterServer  # noqa: E402

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
CELLS = {
    "1,000,000 lines": "for n in range(1_000_000):\n    print('line', n)",
    "10 MB/s for 20 s": """
import sys, time
block = ('x' * 99 + '\\n') * 1000
begin, written = time.monotonic(), 0
while time.monotonic() - begin < 20:
    sys.stdout.write(block)
    written += len(block)
    time.sleep(max(0, begin + written / 10e6 - time.monotonic()))""",
    "200,000 coloured lines": "for n in range(200_000):\n    print(f'\\x1b[3{n % 8}mline\\x1b[0m', n)",
    "progress bar": """
import sys, time
end, n = time.monotonic() + 10, 0
while time.monotonic() < end:
    sys.stdout.write(f'\\r{n:8d} ' + '#' * 60)
    n += 1""",
    "60 plots": """
import matplotlib.pyplot as plt, numpy as np
for n in range(60):
    plt.imshow(np.random.rand(200, 200))
    plt.show()""",
}

OPEN = """async path => {
  const panel = await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  window.panel = panel;
}"""
RUN = """async index => {
  const {content} = window.panel;
  content.activeCellIndex = index;
  content.deselectAll();
  await window.jupyterapp.commands.execute('notebook:run-cell');
  await new Promise(resolve => setTimeout(resolve, 1500));
}"""
SAVE = "async () => { await window.panel.context.save(); }"


@contextmanager
def lab() -> Iterator[JupyterServer]:
    folder = Path(tempfile.mkdtemp(prefix="gpb-"))
    server = JupyterServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def notebook(*sources: str) -> str:
    cells = [
        {"id": f"cell-{index}", "cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for index, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    )


def longest_task_ms(trace: Path) -> float:
    """Processor time of the longest task of the page's main thread."""
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"].get("name") == "CrRendererMain"
    }
    return max(
        event.get("tdur", 0) / 1000
        for event in events
        if event.get("ph") == "X" and "RunTask" in event["name"] and (event["pid"], event["tid"]) in main
    )


def measure(server: JupyterServer, browser: Any, code: str, limit: int | None) -> tuple[float, int]:
    """(longest task in ms, bytes of the saved notebook) of one cell."""
    path = server.folder / "notebooks" / "measured.ipynb"
    setup = "%load_ext jupyter_gpucluster"
    if limit is not None:
        setup += f"\n%config GPUClusterMagics.output_limit = {limit}"
    path.write_text(notebook(setup, f"%%submit --gpus 0\n{code.strip()}"))
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(180_000)
    page = context.new_page()
    page.goto(f"{server.url}lab?reset&token={TOKEN}")
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.restored; }")
    page.evaluate(OPEN, path.name)
    page.evaluate(RUN, 0)
    trace = server.folder / "trace.json"
    browser.start_tracing(page=page, path=str(trace), categories=["toplevel"])
    page.evaluate(RUN, 1)
    browser.stop_tracing()
    page.evaluate(SAVE)
    context.close()
    return longest_task_ms(trace), path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CELLS)} (default: all)")
    parser.add_argument("--limit", type=int, help="output_limit in bytes (default: that of a notebook)")
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    print("| a cell that writes | longest task of the page | saved notebook |\n|---|---|---|")
    with lab() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_FLAGS)
        for name in asked.names or CELLS:
            task_ms, size = measure(server, browser, CELLS[name], asked.limit)
            print(f"| {name} | {task_ms:.0f} ms | {size / 1024:,.0f} KiB |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
