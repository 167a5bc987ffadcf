"""Disk, database, folders, configuration or scheduler in trouble, as the user of a notebook or a terminal meets it: said
clearly and soon, nothing half done, what runs goes on, and all is well once the trouble is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.place import Place, eventually, place

from gpucluster.api.schemas import JobSubmission, RoleSubmission

from .kernels import run_until_begun, start_kernel, waiting_cell

SECRET = "not-to-be-kept-4712"
SUBMIT = ("submit", "--gpus", "0", "--env", f"API_TOKEN={SECRET}", "--", "true")


# ---- disk


@pytest.fixture
def small() -> Iterator[Place]:
    """A place whose data folder is a file system of 32 MiB of its own."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount")
    with place() as made:
        made.data.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0700", "tmpfs", str(made.data)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("mounting is not allowed here")
        try:
            yield made
            made.end()
        finally:
            subprocess.run(["umount", "-l", made.data], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    return filler


def test_full_disk_refuses_a_submission_whole_and_running_jobs_live_through_it(small: Place) -> None:
    small.serve()
    flag = small.work / "go"
    script = f"echo before; until [ -e {flag} ]; do sleep 0.05; done; echo after"
    number = small.cli("submit", "--gpus", "1", "--", "sh", "-c", script)[0].strip()
    eventually(lambda: small.cli("logs", number)[0] == "before\n", "the first line")
    kernel = start_kernel(small, API_TOKEN=SECRET)
    kernel.run("payload = bytes(3_000_000)")
    before = small.contents()
    filler = fill(small.data)

    _, err = small.cli(*SUBMIT, code=3)
    assert "full" in err
    assert "Traceback" not in err
    cell = kernel.run("%%submit --env API_TOKEN\nlen(payload)")
    assert cell.status == "error"
    assert "full" in cell.error, cell.error
    assert "Traceback" not in cell.error
    assert small.json("status")["gpus"] == 16, "what needs no disk is answered"
    assert small.json("jobs", "--state", "running")["jobs"][0]["number"] == int(number)
    filler.unlink()
    assert small.contents() == before
    assert small.holders(SECRET) == []
    again = kernel.run("%%submit --env API_TOKEN\nlen(payload)")
    assert (again.status, again.result) == ("ok", "3000000"), again.describe()
    flag.touch()
    assert small.ended(number).state == "succeeded"
    assert small.cli("logs", number)[0] == "before\nafter\n"
    with small.client() as client:
        assert client.job(number).attempts_made == 1


def test_job_that_ends_while_the_disk_is_full_is_told_of_when_there_is_space_again(small: Place) -> None:
    small.serve()
    flag = small.work / "go"
    script = f"echo before; until [ -e {flag} ]; do sleep 0.05; done; echo after; exit 3"
    number = small.cli("submit", "--gpus", "1", "--", "sh", "-c", script)[0].strip()
    eventually(lambda: small.cli("logs", number)[0] == "before\n", "the first line")
    filler = fill(small.data)
    flag.touch()
    time.sleep(2)
    filler.unlink()
    job = small.ended(number)
    assert (job.state, job.attempts_made) == ("failed", 1)
    with small.client() as client:
        assert client.result(number).exit_code == 3


def test_scheduler_that_dies_on_a_full_disk_comes_back_when_there_is_space(small: Place) -> None:
    small.serve()
    flag = small.work / "go"
    script = f"until [ -e {flag} ]; do sleep 0.05; done; echo done"
    number = small.cli("submit", "--gpus", "1", "--", "sh", "-c", script)[0].strip()
    eventually(lambda: small.json("jobs", "--state", "running")["jobs"], "the job to run")
    assert small.serving is not None
    small.serving.kill()
    small.serving.wait()
    filler = fill(small.data)
    out, err = small.cli("submit", "--gpus", "0", "--", "true", code=None)
    assert out or "full" in err or "No space left" in err, (
        "taken, for a little space was left, or refused; no third way"
    )
    assert "Traceback" not in err
    filler.unlink()
    later = small.cli("submit", "--gpus", "0", "--", "true")[0]
    flag.touch()
    for each in filter(None, (number, out, later)):
        job = small.ended(each.strip())
        assert job.state == "succeeded", job
    with small.client() as client:
        assert client.job(number).attempts_made == 1


# ---- database


def test_write_lock_held_too_long_refuses_whole_and_the_same_submission_goes_through_later(
    here: Place,
) -> None:
    here.serve()
    kernel = start_kernel(here)
    kernel.run("%submit --gpus 0 1")
    before = here.contents()
    holder = sqlite3.connect(here.data / "gpucluster.sqlite3", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    _, err = here.cli(*SUBMIT, code=3)
    assert "lock" in err.lower()
    cell = kernel.run("%%submit --gpus 0\n2")
    assert cell.status == "error"
    assert "lock" in cell.error.lower(), cell.error
    assert time.monotonic() - began < 60
    holder.execute("ROLLBACK")
    holder.close()
    assert here.contents() == before
    assert here.holders(SECRET) == []
    assert kernel.run("%submit --gpus 0 3").result == "3"


def test_data_folder_of_a_newer_version_is_left_alone_with_one_sentence(here: Place) -> None:
    here.serve()
    here.cli("stop")
    version = here.data / "version"
    newer = json.dumps({**json.loads(version.read_text()), "schema": 9999, "product": "99.0"})
    version.write_text(newer)
    _, err = here.cli("submit", "--gpus", "0", "--", "true", code=3)
    assert "99.0" in err
    assert "Traceback" not in err
    with here.popen(here.python, "-m", "gpucluster", "serve") as serving:
        _, said = serving.communicate(timeout=60)
    assert serving.returncode == 3
    assert b"99.0" in said
    cell = start_kernel(here).run("%%submit --gpus 0\n1")
    assert "99.0" in cell.error
    assert "Traceback" not in cell.error
    assert version.read_text() == newer


# ---- folders


def test_data_folder_that_may_not_be_written_is_named(here: Place) -> None:
    if os.getuid() != 0:
        here.data.mkdir(mode=0o500)
        refused(here, str(here.data))
        return
    here.data.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(here.data)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        refused(here, str(here.data))
        assert list(here.data.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", here.data], check=True)


def refused(where: Place, path: str, code: int = 3) -> None:
    """Command line, foreground and notebook each name the path and say no more than is needed."""
    _, err = where.cli("submit", "--gpus", "0", "--", "true", code=code)
    assert path in err
    assert "Traceback" not in err
    assert "bug" not in err
    with where.popen(where.python, "-m", "gpucluster", "serve") as serving:
        _, said = serving.communicate(timeout=60)
    assert serving.returncode == code, said
    assert path in said.decode()
    assert b"Traceback" not in said
    cell = start_kernel(where).run("%%submit --gpus 0\n1")
    assert cell.status == "error"
    assert path in cell.error + cell.stderr
    assert "Traceback" not in cell.error


def test_runtime_folder_that_cannot_be_made_is_named(here: Place) -> None:
    (here.folder / "file").write_text("in the way")
    here.env["GPUCLUSTER_RUNTIME"] = str(here.folder / "file" / "run")
    refused(here, str(here.folder / "file" / "run"), code=2)


@pytest.mark.parametrize("length", [75, 150])
def test_runtime_folder_with_a_long_path_still_runs_jobs(length: int) -> None:
    """Sockets have short paths only; both the scheduler's and those of the tasks have to go elsewhere then."""
    with place() as made:
        long = made.folder / ("x" * (length - len(str(made.folder)) - 1))
        made.env["GPUCLUSTER_RUNTIME"] = str(long)
        elsewhere = made.folder / "tmp"
        elsewhere.mkdir()
        made.env["TMPDIR"] = str(elsewhere)
        out, err = made.cli("submit", "--gpus", "1", "--follow", "--", "echo", "works")
        assert out == "works\n", err
        kernel = start_kernel(made)
        assert kernel.run("%%submit\n6 * 7").result == "42"
        number = made.cli("submit", "--gpus", "1", "--", "sleep", "600")[0].strip()
        eventually(lambda: made.json("jobs", "--state", "running")["jobs"], "the job to run")
        made.cli("cancel", number)
        assert made.ended(number).state == "cancelled"
        assert [path for path in elsewhere.rglob("*") if path.is_socket()]
        made.end()
        assert [path for path in elsewhere.rglob("*") if path.is_socket()] == []


# ---- configuration

BROKEN = """\
cluster: lab
nodes:
- {names: "gpu[1-2]", gpus: -4}
- {names: other, gpus: many}
queues:
- {name: team, guaranteed: 99, colour: red}
- {name: team}
default_queue: nowhere
idle_stop: soon
"""


def test_broken_configuration_is_told_whole_with_line_and_field(here: Place) -> None:
    path = here.work / "cluster.yaml"
    path.write_text(BROKEN)
    with here.popen(here.python, "-m", "gpucluster", "serve", "--config", "cluster.yaml") as serving:
        _, said = serving.communicate(timeout=60)
    text = said.decode()
    assert serving.returncode == 2, text
    assert "Traceback" not in text
    for line, field in ((3, "gpus"), (4, "gpus"), (6, "colour"), (9, "idle_stop")):
        assert f"cluster.yaml:{line}" in text, text
        assert field in text, text
    assert not here.data.exists() or not any(here.data.iterdir())


def test_broken_configuration_is_told_in_the_notebook_and_nothing_starts(here: Place) -> None:
    (here.work / "cluster.yaml").write_text(BROKEN)
    kernel = start_kernel(here, GPUCLUSTER_CONFIG=str(here.work / "cluster.yaml"))
    cell = kernel.run("%%submit --gpus 0\n1")
    assert cell.status == "error"
    told = cell.error + cell.stderr
    assert "cluster.yaml:3" in told
    assert "cluster.yaml:9" in told
    assert "Traceback" not in told
    assert here.schedulers() == []


def test_configuration_that_is_not_there_is_named(here: Place) -> None:
    _, err = here.cli("serve", "--config", "nowhere.yaml", code=2)
    assert "nowhere.yaml" in err
    assert "Traceback" not in err


# ---- scheduler away


def test_command_line_without_a_scheduler_fails_at_once_with_what_to_do(here: Place) -> None:
    gone = f"unix:{here.folder}/none.sock"
    for arguments in (["status"], ["jobs"], ["queues"], ["nodes"], ["topology"], ["logs", "1"], ["why", "1"],
                      ["cancel", "1"]):  # fmt: skip
        _, err = here.cli(*arguments, code=3)
        assert "no scheduler is running" in err, arguments
    out, _ = here.cli("stop", code=0)
    assert "No scheduler is running" in out, "that is what was wanted"
    _, err = here.cli("submit", "--address", gone, "--", "true", code=3)
    assert f"no scheduler answers at {gone}" in err
    assert "gpucluster serve" in err
    assert here.schedulers() == [], "only looking starts nothing"
    assert not here.data.exists()


def test_scheduler_that_does_not_answer_is_said_to_be_stuck_and_gets_no_second_one(here: Place) -> None:
    here.serve()
    assert here.serving is not None
    here.serving.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        _, err = here.cli(*SUBMIT, code=3)
        assert "does not answer" in err
        assert "scheduler.log" in err
        assert time.monotonic() - began < 45
    finally:
        here.serving.send_signal(signal.SIGCONT)
    eventually(lambda: here.json("status"), "the scheduler to answer")
    assert here.contents() == {"jobs": [], "files": set()}
    assert len(here.schedulers()) == 1


def test_scheduler_stopped_while_a_cell_waits_leaves_the_cell_with_the_truth(here: Place) -> None:
    """It was stopped on purpose, so the waiting cell does not start it again; the job goes on, and %attach finds it."""
    here.serve()
    flag = here.work / "go"
    kernel = start_kernel(here)
    number = run_until_begun(kernel, waiting_cell(flag), lambda: here.cli("stop"))
    assert here.info() is None
    flag.touch()
    here.serve()
    other = start_kernel(here)
    cell = other.run(f"%attach {number}")
    assert (cell.status, cell.stdout, cell.result) == ("ok", "begun\nended\n", "42"), cell.describe()


# ---- what the job needs and the node lacks


def submission(**fields: object) -> JobSubmission:
    merged = {"kind": "cell", "source": "1", "roles": [RoleSubmission(gpus=1)], **fields}
    return JobSubmission(idempotency_key=uuid.uuid4().hex, **merged)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"interpreter": "/no/such/python"}, "the interpreter /no/such/python does not exist on node-"),
        ({"interpreter": "/etc/passwd"}, "the interpreter /etc/passwd is not executable on node-"),
        ({"interpreter": "/bin/true"}, "/bin/true"),
        ({"cwd": "/no/such/folder"}, "the working directory /no/such/folder does not exist on node-"),
        ({"kind": "command", "command": ["no-such-program-4711"]}, "no-such-program-4711"),
        ({"kind": "command", "command": ["/etc/passwd"]}, "/etc/passwd"),
    ],
)
def test_job_that_cannot_start_fails_with_the_reason_and_gives_its_gpu_back(
    cluster: Place, fields: dict[str, object], wanted: str
) -> None:
    with cluster.client() as client:
        job = client.submit(submission(retries=2, **fields))
        view = cluster.ended(job.id)
        assert view.state == "failed"
        assert wanted in str(view.reason), (view, client.history(job.id))
        assert not any(queue.used.get("gpu") for queue in client.queues())


def test_interpreter_that_is_no_program_fails_the_job_at_once(cluster: Place) -> None:
    odd = cluster.work / "odd"
    odd.write_text("not a program\n")
    odd.chmod(0o755)
    with cluster.client() as client:
        view = cluster.ended(client.submit(submission(interpreter=str(odd), retries=2)).id)
    assert (view.state, view.attempts_made) == ("failed", 1)
    assert f"the interpreter {odd} cannot be run: Exec format error" in str(view.reason)


def test_missing_working_directory_is_told_at_the_command_line_and_in_the_notebook(cluster: Place) -> None:
    _, err = cluster.cli("submit", "--cwd", "/no/such/folder", "--", "true", code=2)
    assert "--cwd: /no/such/folder is not a folder" in err
    cell = start_kernel(cluster).run("%%submit --cwd /no/such/folder\n1")
    assert cell.status == "error"
    assert "/no/such/folder" in cell.error + cell.stderr
    assert "Traceback" not in cell.error


def test_result_that_cannot_come_back_leaves_its_name_unbound_and_the_rest_bound(cluster: Place) -> None:
    kernel = start_kernel(cluster)
    kernel.run("bad = 'as before'")
    cell = kernel.run(
        "%%submit --gpus 0\nimport threading\ngood = 1\nbad = threading.Lock()\nprint('said')\nbad"
    )
    assert (cell.status, cell.stdout) == ("ok", "said\n"), cell.describe()
    assert "bad did not come back" in cell.stderr
    assert "lock" in cell.stderr
    assert kernel.run("good, bad").result == "(1, 'as before')"


def test_temporary_files_of_the_start_are_not_left(here: Place) -> None:
    before = {path.name for path in Path(tempfile.gettempdir()).glob("gpucluster-*")}
    here.cli("submit", "--gpus", "0", "--follow", "--", "true")
    here.end()
    assert {path.name for path in Path(tempfile.gettempdir()).glob("gpucluster-*")} <= before
    assert list(here.runtime.glob("*.sock")) == []
