"""The command line with a real scheduler: embedded, started by the first submission, its jobs real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpucluster.api.client import connect
from gpucluster.api.schemas import JobView

TIMEOUT_S = 60.0
ENDED = ("succeeded", "failed", "cancelled")


class Cli:
    """`gpucluster …` as a process, on folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("GPUCLUSTER_", "JUPYTER_"))
        }
        self.data = folder / "data"
        self.env = {
            **kept,
            "GPUCLUSTER_DATA": str(self.data),
            "GPUCLUSTER_RUNTIME": str(folder / "run"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "COLUMNS": "100",
            "PYTHONIOENCODING": "utf-8",
        }

    def start(self, *arguments: str, **changes: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "gpucluster", *arguments],
            env=changes.pop("env", self.env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **changes,
        )

    def run(self, *arguments: str, code: int = 0, **changes: Any) -> tuple[str, str]:
        """Standard output and standard error; the exit code must be `code`."""
        with self.start(*arguments, **changes) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == code, (process.returncode, out, err)
        return out.decode(), err.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json")[0])

    def submit(self, *arguments: str) -> str:
        return self.run("submit", *arguments)[0].strip()

    def ended(self, number: str) -> JobView:
        """The job when it has ended; asked without a process for each look."""
        with connect(start=False, data_dir=self.data) as client:
            return wait_for(lambda: job if (job := client.job(number)).state in ENDED else None)


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    folder = Path(tempfile.mkdtemp(prefix="gpc-"))  # short: a socket's path has to fit
    cli = Cli(folder)
    yield cli
    with cli.start("stop") as process:
        process.communicate(timeout=TIMEOUT_S)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails half-way leaves no job that takes the GPUs of the next one."""
    yield
    if "cli" not in request.fixturenames:
        return
    cli = request.getfixturevalue("cli")
    live = [job["number"] for job in cli.json("jobs", "--state", "pending,starting,running")["jobs"]]
    if live:
        with cli.start("cancel", *map(str, live)) as process:
            process.communicate(timeout=TIMEOUT_S)
    for number in live:
        cli.ended(str(number))


def test_first_submission_starts_the_scheduler_and_prints_the_number_alone(cli):
    out, err = cli.run("submit", "--gpus", "0", "--", "true")
    assert re.fullmatch(r"\d+\n", out)
    assert "Its log: gpucluster logs" in err
    assert cli.ended(out.strip()).state == "succeeded"


def test_followed_job_prints_its_log_where_it_was_written_and_gives_its_exit_code(cli):
    out, err = cli.run("submit", "--follow", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert out == "out\n"
    assert "err\n" in err
    assert "failed" in err


def test_log_comes_back_byte_by_byte(cli):
    number = cli.submit("--gpus", "0", "--", "printf", r"\377\000a\r\nb")
    cli.ended(number)
    with cli.start("logs", number) as process:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert out == b"\xff\x00a\r\nb"


def test_log_of_each_rank_and_attempt_can_be_asked_for(cli):
    number = cli.submit("--gpus", "0", "--tasks", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    cli.ended(number)
    assert cli.run("logs", number, "--rank", "1")[0] == "rank 1 of 2\n"
    assert cli.run("logs", number, "--attempt", "1", "--tail", "1")[0] == "rank 0 of 2\n"
    lines = [json.loads(line) for line in cli.run("logs", number, "--json")[0].splitlines()]
    assert any(line["type"] == "record" for line in lines)


def test_job_sees_the_gpus_it_was_given_and_the_views_say_who_holds_them(cli):
    number = cli.submit("--gpus", "2", "--queue", "batch", "--name", "holder", "--", "sleep", "600")
    wait_for(lambda: cli.json("status")["jobs"].get("running"))
    topology, _ = cli.run("topology")
    assert topology.count(f"#{number}") == 3  # two GPUs and the legend
    assert f"#{number} holder  2 GPUs, yours" in topology
    assert "all simulated (no hardware behind them)" in topology
    (batch,) = [queue for queue in cli.json("queues") if queue["name"] == "batch"]
    assert batch["used"]["gpu"] == 2000
    assert "holder" in cli.run("jobs", "--state", "running")[0]
    assert "simulated" in cli.run("status")[0]
    assert sum(node["used"].get("gpu", 0) for node in cli.json("nodes")) == 2000

    out, _ = cli.run("cancel", number, "--reason", "enough")
    assert f"job {number} holder" in out
    assert cli.ended(number).state == "cancelled"
    assert "cancelled" in cli.run("why", number)[0]


def test_waiting_job_says_why_with_numbers(cli):
    holders = [cli.submit("--gpus", "8", "--", "sleep", "600") for _ in range(2)]
    waiting = cli.submit("--gpus", "8", "--", "true")
    why, _ = cli.run("why", waiting)
    assert "pending" in why
    assert "8 GPUs" in why
    assert cli.json("why", waiting)["verdict"] == "starts_when"
    cli.run("cancel", *holders)
    assert cli.ended(waiting).state == "succeeded"


def test_cancel_of_several_tries_all_and_tells_which_could_not_be(cli):
    number = cli.submit("--gpus", "0", "--", "sleep", "600")
    out, err = cli.run("cancel", "99999", number, code=4)
    assert f"job {number}" in out
    assert "99999" in err
    assert cli.ended(number).state == "cancelled"
    cli.run("cancel", number)  # once more does no harm
    done = cli.submit("--gpus", "0", "--name", "quick", "--", "true")
    cli.ended(done)
    out, _ = cli.run("cancel", done)
    assert out == f"job {done} quick had succeeded already; there is nothing to cancel\n"
    (view,) = cli.json("cancel", done)
    assert view["state"] == "succeeded"


def test_job_that_is_asked_for_by_name_is_told_by_number(cli):
    numbers = [cli.submit("--gpus", "0", "--name", "prep", "--", "true") for _ in range(2)]
    _, err = cli.run("why", "prep", code=4)
    assert "jobs are named by number, and 'prep' is none" in err
    assert f"Your jobs called prep are {numbers[1]}, {numbers[0]}." in err
    _, err = cli.run("cancel", "nobody", code=4)
    assert "`gpucluster jobs` lists your jobs" in err
    assert f"Job {numbers[0]} prep" in cli.run("why", f"#{numbers[0]}")[0]


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (["logs", "99999"], 4, "99999"),
        (["why", "99999"], 4, "99999"),
        (["nodes", "set", "nowhere", "cordoned"], 4, "nowhere"),
        (["submit", "--queue", "nope", "--", "true"], 2, "nope"),
        (["submit", "--gpus", "40", "--", "true"], 2, "8 GPUs"),
        (["submit", "--gpu-type", "H900", "--", "true"], 2, "H900"),
        (["submit", "--gpus", "40", "--", "true"], 2, "--gpus: no node has 40 GPUs"),
        (["logs", "1", "--rank", "7"], 2, "--rank: job 1 has ranks"),
        (["jobs", "--state", "asleep"], 2, "--state: 'asleep' is not one of"),
        (
            ["jobs", "--queue", "bacth"],
            2,
            "--queue: 'bacth' is not one of root, research, batch\nDid you mean batch?",
        ),
    ],
)
def test_failure_has_its_exit_code_and_a_text_without_traceback(cli, arguments, code, wanted):
    out, err = cli.run(*arguments, code=code)
    assert out == ""
    assert wanted in err
    assert "Traceback" not in err


def test_dry_run_submits_nothing(cli):
    before = len(cli.json("jobs", "--all", "-n", "500")["jobs"])
    out, _ = cli.run("submit", "--gpus", "4", "--dry-run", "--", "true")
    assert "4 GPUs" in out
    assert "Nothing was submitted." in out
    assert len(cli.json("jobs", "--all", "-n", "500")["jobs"]) == before


def test_node_is_cordoned_and_put_back(cli):
    assert "cordoned" in cli.run("nodes", "set", "node-1", "cordoned", "--reason", "new fan")[0]
    assert {node["name"]: node["health"] for node in cli.json("nodes")} == {
        "node-0": "ready",
        "node-1": "cordoned",
    }
    cli.run("nodes", "set", "node-1", "ready")


def test_interrupted_follower_leaves_the_job_alone_and_says_how_to_come_back(cli):
    process = cli.start("submit", "--gpus", "0", "--follow", "--", "sh", "-c", "echo up; sleep 600")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    text = err.decode()
    assert "goes on" in text
    number = re.search(r"gpucluster cancel (\d+)", text)[1]
    assert cli.json("jobs", "-n", "1")["jobs"][0]["state"] == "running"
    assert cli.json("jobs", "--state", "running")["jobs"][0]["number"] == int(number)


def test_reader_that_goes_away_ends_the_command_quietly(cli):
    number = cli.submit("--gpus", "0", "--", "sh", "-c", "yes | head -c 3000000")
    cli.ended(number)
    with cli.start("logs", number) as process:
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read().decode()
        process.wait(timeout=TIMEOUT_S)
    assert process.returncode in (141, -signal.SIGPIPE)
    assert "Traceback" not in err
    assert "Exception" not in err


def test_names_that_the_encoding_lacks_do_not_end_the_command(cli):
    number = cli.submit("--gpus", "0", "--name", "größe ✓", "--", "true")
    cli.ended(number)
    out, _ = cli.run("jobs", env={**cli.env, "PYTHONIOENCODING": "ascii"})
    assert "gr??e ?" in out
    cli.run("topology", env={**cli.env, "PYTHONIOENCODING": "ascii"})


def test_colours_of_a_log_go_into_a_pipe_only_when_asked_for(cli):
    number = cli.submit("--gpus", "0", "--", "printf", r"\033[31mred\033[0m\n")
    cli.ended(number)
    assert cli.run("logs", number)[0] == "red\n"
    assert cli.run("logs", number, "--tail", "1")[0] == "red\n"
    assert cli.run("logs", number, "--color", "always")[0] == "\x1b[31mred\x1b[0m\n"


def test_submission_that_has_to_wait_says_so_in_one_sentence(cli):
    first = cli.submit("--gpus", "0", "--", "sleep", "600")
    _, err = cli.run("submit", "--gpus", "0", "--after", first, "--", "true")
    assert f"Waits for job {first} " in err
    assert ".." not in err
    cli.run("cancel", first)


def test_no_colours_go_into_a_pipe(cli):
    for command in ("status", "queues", "nodes", "topology", "jobs"):
        assert "\x1b" not in cli.run(command)[0]


def test_stop_ends_the_scheduler_and_jobs_go_on_until_the_next_one(cli):
    number = cli.submit("--gpus", "0", "--", "sh", "-c", "sleep 2; echo done")
    assert "Running jobs go on" in cli.run("stop")[0]
    _, err = cli.run("status", code=3)
    assert err == "gpucluster: no scheduler is running; the first submit starts one\n"
    assert cli.run("stop")[0] == "No scheduler is running.\n"
    cli.submit("--gpus", "0", "--", "true")  # starts the next one
    assert cli.ended(number).state == "succeeded"
    assert cli.run("logs", number)[0] == "done\n"


def test_without_a_scheduler_its_store_is_read(cli):
    ended = cli.submit("--gpus", "0", "--name", "early", "--", "sh", "-c", "seq 30; exit 3")
    cli.ended(ended)
    number = cli.submit("--gpus", "1", "--name", "late", "--", "sh", "-c", "sleep 600")
    wait_for(lambda: cli.json("jobs", "--state", "running")["jobs"])
    asked_live = cli.run("logs", ended)[0], cli.run("why", ended)[0]
    cli.run("stop")

    out, err = cli.run("jobs")
    assert err == "no scheduler is running; this is what its store holds\n"
    assert "ended with" in out
    assert "late" in out
    assert [job["number"] for job in cli.json("jobs", "-n", "2")["jobs"]] == [int(number), int(ended)]
    assert {job["state"] for job in cli.json("jobs", "--state", "failed", "-q", "research")["jobs"]} == {
        "failed"
    }
    assert (cli.run("logs", ended)[0], cli.run("why", ended)[0]) == asked_live
    assert cli.run("logs", ended, "--tail", "2", "--follow")[0] == "29\n30\n"
    assert "was running when the last scheduler ended" in cli.run("why", number)[0]
    assert f"Your job called late is {number}." in cli.run("why", "late", code=4)[1]
    assert "there is no job 99999" in cli.run("logs", "99999", code=4)[1]
    cli.run("cancel", number, code=3)
    cli.submit("--gpus", "0", "--", "true")  # the next scheduler finds all as it was
    assert cli.json("jobs", "--state", "running")["jobs"][0]["number"] == int(number)


def test_serve_with_a_configuration_runs_its_cluster(tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="gpc-"))
    cli = Cli(folder)
    (folder / "cluster.yaml").write_text(
        "cluster: lab\n"
        "nodes:\n"
        '- {names: "gpu[1-3]", gpus: 4, gpu_type: A100, rack: r1}\n'
        "queues:\n"
        "- name: team\n"
        "  guaranteed: 8\n"
        "  children: [{name: vision, guaranteed: 4}, {name: speech}]\n"
        "- {name: spare, max: 4}\n"
        "default_queue: spare\n"
    )
    serving = cli.start("serve", "--config", "cluster.yaml")
    try:
        wait_for(lambda: (folder / "data" / "scheduler.json").exists() or serving.poll() is not None)
        assert cli.json("status")["gpus"] == 12
        queues, _ = cli.run("queues")
        assert "spare *" in queues
        assert "vision" in queues
        assert "4 × A100" in cli.run("topology")[0]
    finally:
        serving.terminate()
        serving.communicate(timeout=TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)
    assert serving.returncode == 0
