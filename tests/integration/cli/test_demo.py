"""`gpucluster demo`: the example notebook through a real kernel, on a scheduler that it starts by itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from .test_commands import TIMEOUT_S, Cli

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.setattr("integration.cli.test_commands.TIMEOUT_S", 300.0)
    cli = Cli(Path(tempfile.mkdtemp(prefix="gpc-")))
    yield cli
    with cli.start("stop") as process:
        process.communicate(timeout=TIMEOUT_S)
    shutil.rmtree(cli.folder, ignore_errors=True)


def test_demo_runs_the_example_and_shows_what_its_cells_printed_and_the_cluster(cli):
    out, _ = cli.run("demo", "--to", "demo")
    assert "epoch 30/30" in out
    assert "succeeded" in out
    assert "% right" in out  # the returned model was used in the notebook
    assert "queues now, while both train" in out
    assert "GUARANTEED" in out
    assert "#2 wide-net  2 GPUs, yours" in out
    assert "switch 0 [0 ·  1 ·]" in out
    assert "\r" not in out
    executed = cli.folder / "demo" / "01_first_cell.executed.ipynb"
    assert str(executed) in out
    assert "jupyter lab demo/01_first_cell.ipynb" in out
    assert "gpucluster stop" in out
    outputs = [
        output for cell in nbformat.read(executed, as_version=4).cells for output in cell.get("outputs", [])
    ]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (cli.folder / "demo" / "01_first_cell.ipynb").is_file()
    assert {job["state"] for job in cli.json("jobs")["jobs"]} == {"succeeded"}
