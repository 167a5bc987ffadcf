"""Step reports: from `report`, from tqdm bars, from children and from scripts."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpucluster.model.jobs import Progress
from gpucluster.worker import protocol
from gpucluster.worker.frames import Kind

from .harness import SERVER, Workers


def test_reports_arrive_and_decode_as_progress(workers: Workers) -> None:
    run = workers.run(
        "from gpucluster.worker import report\nreport(1, total=10, loss=0.5, bad=float('nan'), high=float('inf'))",
        env={"PATH": "/bin", "RANK": "3"},
    )
    (payload,) = [payload for kind, payload in run.events if kind == protocol.PACKET_STEP]
    progress = msgspec.json.decode(payload, type=Progress, strict=False)
    assert (progress.step, progress.total, progress.rank, progress.source) == (1, 10, 3, "report")
    assert progress.metrics["loss"] == 0.5
    assert math.isnan(progress.metrics["bad"])
    assert progress.metrics["high"] == math.inf
    assert progress.time_us > 0


def test_many_reports_are_thinned_and_the_last_is_kept(workers: Workers) -> None:
    run = workers.run(
        "from gpucluster.worker import report\nfor i in range(50_000): report(i, 50_000, loss=1 / (i + 1))\nprint('end')"
    )
    assert run.steps[0]["step"] == 0
    assert run.steps[-1]["step"] == 49_999
    assert len(run.steps) < 1000


def test_the_last_report_arrives_even_if_the_cell_fails(workers: Workers) -> None:
    run = workers.run("from gpucluster.worker import report\nreport(1)\nreport(2)\nraise ValueError")
    assert run.steps[-1]["step"] == 2


def test_a_waiting_report_arrives_while_the_cell_goes_on(workers: Workers) -> None:
    task = workers.start(
        "import pathlib, time\nfrom gpucluster.worker import report\nreport(1)\nreport(2)\n"
        "while not pathlib.Path('go').exists(): time.sleep(.01)"
    )
    task.until(lambda run: run.steps and run.steps[-1]["step"] == 2)
    (task.run.task_dir / "work" / "go").touch()
    assert task.wait().code == 0


def test_a_metric_of_only_some_steps_is_not_lost(workers: Workers) -> None:
    run = workers.run(
        "from gpucluster.worker import report\nreport(0)\nreport(1, score=9)\nreport(2, loss=1)\nreport(3, loss=0.5)"
    )
    assert run.steps[-1]["step"] == 3
    newest: dict[str, float] = {}
    for step in run.steps:  # how many of the four travel depends on how fast they come
        newest.update(step["metrics"])
    assert newest == {"score": 9.0, "loss": 0.5}


def test_threads_may_report(workers: Workers) -> None:
    run = workers.run(
        "import threading\nfrom gpucluster.worker import report\n"
        "ts = [threading.Thread(target=lambda: [report(i) for i in range(500)]) for _ in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; report(1000)"
    )
    assert run.steps[-1]["step"] == 1000
    assert run.code == 0


def test_numpy_numbers_are_numbers(workers: Workers) -> None:
    run = workers.run(
        "import numpy as np\nfrom gpucluster.worker import report\nreport(np.int64(3), loss=np.float32(0.5), n=np.array(2))"
    )
    assert run.steps[-1]["metrics"] == {"loss": 0.5, "n": 2.0}


def test_a_tqdm_bar_becomes_progress(workers: Workers) -> None:
    run = workers.run(
        """
import time
from tqdm.auto import tqdm
bar = tqdm(range(40), desc="Epoch 1")
for i in bar:
    for _ in tqdm(range(3), leave=False): time.sleep(0.002)
    bar.set_postfix(loss=f"{1 / (i + 1):.3f}", lr=0.1, note="text")
"""
    )
    assert run.code == 0
    assert {step["total"] for step in run.steps} == {40}
    assert run.steps[-1]["step"] == 40
    assert run.steps[-1]["source"] == "tqdm"
    assert run.steps[-1]["description"] == "Epoch 1"
    assert run.steps[-1]["metrics"] == {"loss": 0.025, "lr": 0.1}
    assert "Epoch 1: 100%" in run.stderr
    assert "\r" in run.stderr


def test_a_bar_that_vanishes_reports_its_end(workers: Workers) -> None:
    run = workers.run("from tqdm import tqdm\nfor _ in tqdm(range(2000), leave=False): pass")
    assert run.steps[-1]["step"] == 2000


def test_a_bar_of_the_notebook_falls_back_to_text(workers: Workers) -> None:
    run = workers.run(
        "from tqdm.notebook import tqdm, trange, tnrange\nfor _ in tqdm(range(3), display=True): pass\nfor _ in trange(4): pass"
    )
    assert run.code == 0
    assert run.displays == []
    assert "3/3" in run.stderr
    assert run.steps[-1]["step"] == 4


def test_what_stands_in_for_something_comes_back_as_that(workers: Workers) -> None:
    import builtins
    import getpass
    import os

    import tqdm.notebook

    run = workers.run(
        "from tqdm.notebook import tqdm, trange\nfrom os import system\nfrom getpass import getpass\nask = input",
        outputs=["tqdm", "trange", "system", "getpass", "ask"],
    )
    assert run.manifest["missing"] == {}
    assert run.result() == {
        "tqdm": tqdm.notebook.tqdm,
        "trange": tqdm.notebook.trange,
        "system": os.system,
        "getpass": getpass.getpass,
        "ask": builtins.input,
    }


@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_a_bar_comes_back_and_tells_how_far_it_came(workers: Workers, module: str) -> None:
    run = workers.run(
        f"from {module} import tqdm\nbar = tqdm(range(5), desc='Epoch')\nfor i in bar:\n    if i == 3: break",
        outputs=["bar"],
    )
    bar = run.result()["bar"]
    assert (bar.n, bar.total, bar.desc) == (3, 5, "Epoch")
    bar.close()


def test_the_users_own_reports_win_over_bars(workers: Workers) -> None:
    run = workers.run(
        "from tqdm import tqdm\nfrom gpucluster.worker import report\nreport(7, 70)\nfor _ in tqdm(range(30)): pass"
    )
    assert [step["source"] for step in run.steps] == ["report"]


def test_bars_in_a_pool_of_children_say_nothing_about_the_whole(workers: Workers) -> None:
    run = workers.run(
        "import multiprocessing\nfrom tqdm import tqdm\ndef f(n):\n    return sum(tqdm(range(n)))\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: pool.map(f, [10, 20])"
    )
    assert run.steps == []
    assert "20/20" in run.stderr


def fifo_of(task_dir: Path) -> int:
    os.mkfifo(task_dir / protocol.STEPS_FIFO)
    return os.open(task_dir / protocol.STEPS_FIFO, os.O_RDWR | os.O_NONBLOCK)


def lines_in(fifo: int) -> list[dict[str, object]]:
    data = b""
    while True:
        try:
            data += os.read(fifo, 65536)
        except BlockingIOError:
            return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_report_through_the_task_folder(workers: Workers, method: str) -> None:
    task_dir = workers.prepare(
        f"import multiprocessing, child\nprocess = multiprocessing.get_context({method!r}).Process(target=child.train)\n"
        "process.start(); process.join(); print(process.exitcode)"
    )
    (task_dir / "work" / "child.py").write_text(
        "from gpucluster.worker import report\ndef train():\n    for i in range(1000): report(i, 1000, loss=i)\n"
    )
    fifo = fifo_of(task_dir)
    run = workers.start_in(task_dir).wait()
    assert run.stdout == "0\n"
    steps = lines_in(fifo)
    os.close(fifo)
    assert steps[-1]["step"] == 999
    assert len(steps) < 200


SCRIPT = "from gpucluster.worker import report\nfor i in range(100): report(i, 100, loss=i)\n"


def run_script(env: dict[str, str], **settings: object) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SERVER), **env}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, **settings)  # type: ignore[call-overload,no-any-return]


def test_a_script_reports_through_the_task_folder(tmp_path: Path) -> None:
    fifo = fifo_of(tmp_path)
    done = run_script({protocol.ENV_TASK_DIR: str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_in(fifo)[-1]["step"] == 99
    os.close(fifo)


def test_a_script_reports_through_the_socket_it_was_started_with(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            number = theirs.fileno()
            env = {protocol.ENV_TASK_DIR: str(tmp_path), protocol.ENV_MESSAGE_FD: str(number)}
            done = run_script(env, pass_fds=[number])
        assert (done.returncode, done.stderr) == (0, "")
        data = b""
        while more := ours.recv(65536):
            data += more
    length = int.from_bytes(data[:4], "little")
    assert data[4] == protocol.PACKET_STEP
    assert json.loads(data[5 : 5 + length])["step"] == 0
    assert b'"step": 99,' in data


def test_a_number_that_is_no_socket_of_ours_is_left_alone(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        done = run_script({protocol.ENV_MESSAGE_FD: str(file.fileno())}, pass_fds=[file.fileno()])
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "file").read_bytes() == b""


def test_outside_a_job_a_report_does_nothing() -> None:
    done = run_script({})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_script_outlives_a_supervisor_that_is_gone(tmp_path: Path) -> None:
    os.close(fifo_of(tmp_path))
    assert run_script({protocol.ENV_TASK_DIR: str(tmp_path)}).returncode == 0


def test_reports_and_prints_keep_their_order(workers: Workers) -> None:
    run = workers.run("from gpucluster.worker import report\nprint('a')\nreport(1)\nprint('b')")
    kinds = [kind for kind, _ in run.events if kind in (Kind.STDOUT, protocol.PACKET_STEP)]
    assert kinds == [Kind.STDOUT, protocol.PACKET_STEP, Kind.STDOUT]
