"""Kernels on one scheduler: two at the same moment, one in another virtual environment, behind a Jupyter server or not,
and what becomes of a job when the kernel or the Jupyter server is killed.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.jupyter_server import JupyterServer
from support.place import ROOT, Place, eventually, place

from .kernels import ServerKernel, run_until_begun, start_jupyter, start_kernel, waiting_cell


@pytest.fixture(scope="module")
def lab() -> Iterator[tuple[Place, JupyterServer]]:
    """A Jupyter server with a scheduler of its own. Tests that kill it start it again."""
    with place() as made:
        yield made, start_jupyter(made)


def test_two_kernels_that_submit_at_the_same_moment_bring_up_one_scheduler(here: Place) -> None:
    kernels = [start_kernel(here) for _ in range(2)]
    assert here.schedulers() == []
    with ThreadPoolExecutor(2) as pool:
        code = "%%submit --gpus 1\nimport os\nos.environ['GPUCLUSTER_JOB_ID']"
        cells = list(pool.map(lambda kernel: kernel.run(code), kernels))
    assert [cell.status for cell in cells] == ["ok", "ok"], [cell.describe() for cell in cells]
    assert {cell.card["number"] for cell in cells} == {1, 2}
    assert len({cell.result for cell in cells}) == 2
    assert len(here.schedulers()) == 1


def make_environment(folder: Path) -> Path:
    """A virtual environment that borrows this one's packages and has a module of its own; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join([*borrowed, str(ROOT), str(ROOT / "server")]) + "\n")
    (packages / "only_there.py").write_text(
        "import sys\nWHERE = sys.prefix\ndef double(n):\n    return 2 * n\n"
    )
    return folder / "bin" / "python"


def add_kernel(jupyter_data: Path, name: str, python: Path) -> None:
    spec = jupyter_data / "kernels" / name
    spec.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))


def test_kernel_of_another_environment_runs_its_cells_with_its_own_interpreter_and_modules(
    lab: tuple[Place, JupyterServer],
) -> None:
    where, server = lab
    python = make_environment(where.folder / "venv")
    add_kernel(server.folder / "jupyter", "other", python)
    kernel = ServerKernel(server, "other")
    code = (
        "%%submit --gpus 1\nimport sys, only_there\ndoubled = only_there.double(base)\n"
        "(sys.executable, sys.prefix, only_there.WHERE, doubled)"
    )
    kernel.run("base = 21")
    cell = kernel.run(code)
    prefix = str(where.folder / "venv")
    assert ast.literal_eval(str(cell.result)) == (str(python), prefix, prefix, 42), cell.describe()
    assert kernel.run("doubled").result == "42"
    (scheduler,) = where.schedulers()
    assert os.fsencode(python) not in scheduler.command
    ours = ServerKernel(server)
    missing = ours.run("%%submit --gpus 0\nimport only_there")
    assert missing.ename == "JobFailed"
    assert "No module named 'only_there'" in missing.error


def test_kernel_of_a_jupyter_server_goes_through_it(lab: tuple[Place, JupyterServer]) -> None:
    where, server = lab
    kernel = ServerKernel(server)
    address = kernel.run("from jupyter_gpucluster import connection\nconnection.client().address").result
    assert "/user/a%40b/lab-1/gpucluster/api" in str(address)
    cell = kernel.run("%%submit --gpus 2\nfor n in range(3):\n    print(n, flush=True)\nn + 1")
    assert (cell.status, cell.stdout, cell.result) == ("ok", "0\n1\n2\n", "3")
    assert cell.card["state"] == "succeeded"
    assert len(where.schedulers()) == 1
    status, jobs = server.request("GET", "gpucluster/api/v1/jobs?limit=1")
    assert (status, jobs["jobs"][0]["number"]) == (200, cell.card["number"])


def attached(server: JupyterServer, number: int) -> None:
    """A new kernel shows the job's output and has its result, as if it had waited itself."""
    kernel = ServerKernel(server)
    cell = kernel.run(f"%attach {number}")
    assert (cell.status, cell.stdout, cell.result) == ("ok", "begun\nended\n", "42"), cell.describe()
    assert cell.card["state"] == "succeeded"
    assert kernel.run("answer").result == "42"


def assert_one_attempt(where: Place, number: int) -> None:
    with where.client() as client:
        assert client.job(number).attempts_made == 1


def test_jupyter_server_killed_while_a_cell_waits_costs_nothing(lab: tuple[Place, JupyterServer]) -> None:
    where, server = lab
    flag = where.work / "server-killed"
    (before,) = [process.pid for process in eventually(where.schedulers, "the scheduler")]
    kernel = ServerKernel(server)
    assert server.process is not None

    def kill() -> None:
        server.process.kill()
        server.process.wait()

    number = run_until_begun(kernel, waiting_cell(flag), kill)
    with where.client() as client:
        assert client.job(number).state == "running"
    server.start()
    flag.touch()
    attached(server, number)
    assert_one_attempt(where, number)
    assert [process.pid for process in where.schedulers()] == [before]


def test_kernel_killed_while_a_cell_waits_costs_nothing(lab: tuple[Place, JupyterServer]) -> None:
    where, server = lab
    flag = where.work / "kernel-killed"
    kernel = ServerKernel(server)
    number = run_until_begun(kernel, waiting_cell(flag), kernel.kill)
    flag.touch()
    attached(server, number)
    assert_one_attempt(where, number)


def test_orderly_restart_of_the_jupyter_server_leaves_jobs_and_scheduler_alone(
    lab: tuple[Place, JupyterServer],
) -> None:
    where, server = lab
    flag = where.work / "restarted"
    (before,) = [process.pid for process in where.schedulers()]
    kernel = ServerKernel(server)

    def restart() -> None:
        server.process.terminate()
        server.process.wait(30)
        server.start()

    number = run_until_begun(kernel, waiting_cell(flag), restart)
    flag.touch()
    attached(server, number)
    assert_one_attempt(where, number)
    assert [process.pid for process in where.schedulers()] == [before]


def test_scheduler_killed_behind_the_jupyter_server_is_brought_back_and_the_cell_goes_on(
    lab: tuple[Place, JupyterServer],
) -> None:
    where, server = lab
    flag = where.work / "scheduler-killed"
    (before,) = [process.pid for process in where.schedulers()]
    kernel = ServerKernel(server)
    killed: list[int] = []

    def kill(cell) -> None:
        if "begun" in cell.stdout and not killed:
            killed.append(before)
            os.kill(before, 9)
            flag.touch()

    cell = kernel.run(waiting_cell(flag), kill)
    assert (cell.status, cell.stdout, cell.result) == ("ok", "begun\nended\n", "42"), cell.describe()
    (after,) = [process.pid for process in where.schedulers()]
    assert after != before
    assert_one_attempt(where, cell.card["number"])
