"""A training as a job, which goes on one step at a time, as the test lets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pages import NotebookPage, wait_for, write_notebook
from support.jupyter_server import JupyterServer

LOAD = "%load_ext jupyter_gpucluster"
#: After {steps} step reports it ends; behind each one it waits for the gate of that step, a file.
CELL = """%%submit {options} --name {name}
import os, time
from jupyter_gpucluster import report

for step in range(1, {steps} + 1):
    report(step, total={steps}, loss=1 / step)
    print("begun step", step)
    while not os.path.exists(f"{gates}.{{step}}"):
        time.sleep(0.05)
print("trained")"""


class Training:
    """A notebook with that cell; `run` takes a job as far as its first step."""

    def __init__(
        self, page: Any, server: JupyterServer, name: str, options: str = "--gpus 2", steps: int = 4
    ) -> None:
        self.name = name
        self.steps = steps
        self.gates = server.folder / name
        self.source = CELL.format(options=options, name=name, steps=steps, gates=self.gates)
        self.path: Path = write_notebook(server, f"{name}.ipynb", LOAD, self.source)
        self.notebook = NotebookPage(page, server, self.path)

    def open(self) -> Training:
        self.notebook.in_lab()
        return self

    def run(self) -> Training:
        self.notebook.run(0)
        self.notebook.run(1)
        wait_for(lambda: self.notebook.card(1), "the card")
        return self

    def wait_for_the_cell(self) -> None:
        """Until it has been run to its end, or to its error."""
        wait_for(lambda: not self.notebook.is_running(1), "the end of the cell")

    def go_on_after(self, step: int) -> None:
        Path(f"{self.gates}.{step}").touch()

    def finish(self) -> None:
        for step in range(1, self.steps + 1):
            self.go_on_after(step)


class Submitted:
    """A job from the command line; without a command it sleeps."""

    def __init__(self, server: JupyterServer, name: str, options: str, *command: str) -> None:
        self.name = name
        self._server = server
        asked = [*options.split(), "--name", self.name, "--", *(command or ("sleep", "600"))]
        done = subprocess.run(
            [sys.executable, "-m", "gpucluster", "submit", "--json", *asked],
            env={key: value for key, value in server.env.items() if key != "GPUCLUSTER_ADDRESS"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.id = str(json.loads(done.stdout)["id"])

    def view(self) -> dict[str, Any]:
        status, answer = self._server.request("GET", f"gpucluster/api/v1/jobs/{self.id}")
        assert status == 200, answer
        return dict(answer)

    def cancel(self) -> None:
        cancel(self._server, self.id)


def stop_scheduler(server: JupyterServer) -> None:
    """As somebody does who means it: it stays away until the next submission."""
    env = {key: value for key, value in server.env.items() if key != "GPUCLUSTER_ADDRESS"}
    subprocess.run([sys.executable, "-m", "gpucluster", "stop"], env=env, check=True, capture_output=True)


def cancel(server: JupyterServer, job: str) -> None:
    """End it; one that has ended already stays as it is."""
    status, answer = server.request("POST", f"gpucluster/api/v1/jobs/{job}/cancel", {})
    assert status in (200, 409), answer


def scheduler_pid(server: JupyterServer) -> int:
    """Of the scheduler that answers, or of the next one that does."""

    def pid() -> int:
        status, body = server.request("GET", "gpucluster/api/v1/status")
        return int(body["pid"]) if status == 200 else 0

    return int(wait_for(pid, "a scheduler"))


def end_all(server: JupyterServer) -> None:
    """Cancel what still waits or runs, so that nothing outlives the tests."""
    if server.process is None or server.process.poll() is not None:
        return
    status, jobs = server.request("GET", "gpucluster/api/v1/jobs?state=open&limit=1000")
    for job in jobs["jobs"] if status == 200 else []:
        cancel(server, job["id"])
