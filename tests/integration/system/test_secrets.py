"""A secret of a job is seen by the job and by nobody else: not in rows, write-ahead log, events, logs of ours, blobs, task
folders, command lines or environments of other processes; and when the job has ended, nowhere at all.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.place import Place, all_processes, eventually, place

from .kernels import ServerKernel, start_jupyter, start_kernel

#: Tells the hash of what it was given, then waits for a file, then ends as it is told.
SCRIPT = (
    'printf %s "$API_TOKEN" | sha256sum; n=${GPUCLUSTER_ATTEMPT}; until [ -e go.$n ]; do sleep 0.05; done; '
    "exit $(cat go.$n)"
)


@pytest.fixture
def secret() -> str:
    return f"hidden-{uuid.uuid4().hex}"


@pytest.fixture
def quiet() -> Iterator[Place]:
    with place() as made:
        yield made.serve()


def fingerprint(secret: str) -> str:
    import hashlib

    return hashlib.sha256(secret.encode()).hexdigest()


def assert_hidden(where: Place, secret: str, *, while_it_runs: bool) -> None:
    """While the job runs its file in secrets/ (for further attempts) may hold it, and the environment of its own processes."""
    holders = where.holders(secret)
    allowed = [path for path in holders if path.startswith("data/secrets/")]
    assert holders == (allowed if while_it_runs else []), holders
    for path in allowed:
        assert os.stat(where.folder / path).st_mode & 0o777 == 0o600
        assert os.stat((where.folder / path).parent).st_mode & 0o777 == 0o700
    for process in all_processes():
        assert secret.encode() not in process.command, process.says()
    knowing = [process for process in all_processes() if secret.encode() in process.environment]
    marked = [process for process in knowing if b"GPUCLUSTER_TASK_ID=" in process.environment]
    assert knowing == (marked if while_it_runs else []), [process.says() for process in knowing]


def test_secret_of_a_command_is_in_its_environment_alone(quiet: Place, secret: str) -> None:
    number = quiet.cli(
        "submit", "--gpus", "1", "--env", "API_TOKEN", "--retries", "1", "--", "sh", "-c", SCRIPT,
        env={"API_TOKEN": secret},
    )[0].strip()  # fmt: skip
    eventually(lambda: fingerprint(secret) in quiet.cli("logs", number)[0], "the job to tell what it sees")
    assert_hidden(quiet, secret, while_it_runs=True)
    for shown in (["jobs"], ["why", number], ["status"], ["logs", number]):
        assert secret not in "".join(quiet.cli(*shown, "--json"))
    (quiet.work / "go.1").write_text("1")
    eventually(
        lambda: quiet.cli("logs", number)[0].count(fingerprint(secret)) == 2, "the second attempt sees it too"
    )
    assert_hidden(quiet, secret, while_it_runs=True)
    (quiet.work / "go.2").write_text("0")
    assert quiet.ended(number).state == "succeeded"
    eventually(lambda: not list((quiet.data / "secrets").iterdir()), "the secret to be forgotten")
    assert_hidden(quiet, secret, while_it_runs=False)


def test_secret_survives_a_kill_of_the_scheduler_and_goes_with_the_job(quiet: Place, secret: str) -> None:
    number = quiet.cli(
        "submit", "--gpus", "1", "--env", "API_TOKEN", "--retries", "1", "--", "sh", "-c", SCRIPT,
        env={"API_TOKEN": secret},
    )[0].strip()  # fmt: skip
    eventually(lambda: fingerprint(secret) in quiet.cli("logs", number)[0], "the job to run")
    assert quiet.serving is not None
    quiet.serving.kill()
    quiet.serving.wait()
    assert_hidden(quiet, secret, while_it_runs=True)
    (quiet.work / "go.1").write_text("1")
    quiet.serve()
    eventually(lambda: quiet.cli("logs", number)[0].count(fingerprint(secret)) == 2, "the second attempt")
    quiet.cli("cancel", number)
    assert quiet.ended(number).state == "cancelled"
    eventually(lambda: not list((quiet.data / "secrets").iterdir()), "the secret to be forgotten")
    assert_hidden(quiet, secret, while_it_runs=False)


def test_secret_of_a_job_that_never_ran_goes_with_it(quiet: Place, secret: str) -> None:
    holder = quiet.cli("submit", "--tasks", "2", "--gpus", "8", "--", "sleep", "600")[0].strip()
    number = quiet.cli("submit", "--env", "API_TOKEN", "--", "true", env={"API_TOKEN": secret})[0].strip()
    assert_hidden(quiet, secret, while_it_runs=True)
    assert len(list((quiet.data / "secrets").iterdir())) == 1
    quiet.cli("cancel", number, holder)
    quiet.ended(number)
    eventually(lambda: not list((quiet.data / "secrets").iterdir()), "the secret to be forgotten")
    assert_hidden(quiet, secret, while_it_runs=False)


def test_secret_of_a_cell_behind_a_jupyter_server(secret: str) -> None:
    """Through kernel, Jupyter server, scheduler, fork server and worker; the kernel's own environment knows it, of course."""
    with place() as where:
        server = start_jupyter(where)
        kernel = ServerKernel(server)
        mine = Path(f"/proc/{kernel.pid}/environ").read_bytes()
        assert secret.encode() not in mine
        kernel.run(f"import os\nos.environ['API_TOKEN'] = ''.join({list(secret)!r})")
        flag = where.work / "go"
        kernel.run(
            "%%submit --gpus 1 --env API_TOKEN --no-wait --as job\nimport hashlib, os, time\n"
            "seen = hashlib.sha256(os.environ['API_TOKEN'].encode()).hexdigest()\nprint(seen, flush=True)\n"
            f"while not os.path.exists({str(flag)!r}): time.sleep(0.02)\nseen"
        )
        eventually(lambda: fingerprint(secret) in kernel.run("%logs job").stdout, "the cell to run")
        assert_hidden(where, secret, while_it_runs=True)
        flag.touch()
        assert kernel.run("job.result()").result == repr(fingerprint(secret))
        eventually(lambda: not list((where.data / "secrets").iterdir()), "the secret to be forgotten")
        assert_hidden(where, secret, while_it_runs=False)


def test_secret_typed_with_its_value_is_not_stored_either(quiet: Place, secret: str) -> None:
    """The notebook and the shell's history have it then; nothing of ours does."""
    kernel = start_kernel(quiet)
    look = "import os\nprint(len(os.environ['API_TOKEN']))"
    for code in (f"%%submit --gpus 0 --env API_TOKEN={secret}\n{look}",
                 f"%submit --gpus 0 --env API_TOKEN={secret} print(len(__import__('os').environ['API_TOKEN']))"):  # fmt: skip
        cell = kernel.run(code)
        assert cell.stdout == f"{len(secret)}\n", cell.describe()
        assert secret not in cell.describe()
    told = quiet.cli("submit", "--gpus", "0", "--follow", "--env", f"API_TOKEN={secret}", "--", "true")
    assert secret not in "".join(told)
    eventually(lambda: not list((quiet.data / "secrets").iterdir()), "the secret to be forgotten")
    assert [path for path in quiet.holders(secret) if path.startswith(("data/", "run/", "serve.log"))] == []


def test_secret_that_a_dry_run_is_given_goes_nowhere(quiet: Place, secret: str) -> None:
    out, err = quiet.cli("submit", "--env", "API_TOKEN", "--dry-run", "--", "true", env={"API_TOKEN": secret})
    assert secret not in out + err
    out, err = quiet.cli(
        "submit", "--env", "API_TOKEN", "--dry-run", "--json", "--", "true", env={"API_TOKEN": secret}
    )
    assert secret not in out + err
    assert_hidden(quiet, secret, while_it_runs=False)


def test_environment_that_is_not_asked_for_does_not_travel(quiet: Place, secret: str) -> None:
    """Neither what the submitter happens to have, nor what the scheduler was started with."""
    kernel = start_kernel(quiet, SOME_TOKEN=secret, AWS_SECRET_ACCESS_KEY=secret)
    cell = kernel.run(
        "%%submit --gpus 0\nimport os\nsorted(k for k in os.environ if 'TOKEN' in k or 'SECRET' in k)"
    )
    assert cell.result == "[]", cell.describe()
    kernel.close()
    quiet.cli(
        "submit", "--gpus", "0", "--follow", "--", "sh", "-c", "env > env.txt", env={"SOME_TOKEN": secret}
    )
    assert "SOME_TOKEN" not in (quiet.work / "env.txt").read_text()
    assert_hidden(quiet, secret, while_it_runs=False)


def test_task_folder_is_closed_to_others_and_keeps_no_secret(quiet: Place, secret: str) -> None:
    number = quiet.cli(
        "submit", "--gpus", "0", "--env", "API_TOKEN", "--", "sh", "-c", SCRIPT, env={"API_TOKEN": secret}
    )[0].strip()
    eventually(lambda: fingerprint(secret) in quiet.cli("logs", number)[0], "the job to run")
    specs = list((quiet.data / "tasks").glob("*/*/spec.json"))
    assert specs
    for spec in specs:
        assert os.stat(spec.parent).st_mode & 0o077 == 0
        assert secret not in json.dumps(json.loads(spec.read_text()))
    (quiet.work / "go.1").write_text("0")
    quiet.ended(number)
