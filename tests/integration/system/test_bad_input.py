"""Bad input on every way in: the command line, the magic, the client. Each time the text names the field and says what to
do, the exit code is right, and nothing is left: no job, no blob, no secret, no task folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.place import Place, eventually, place

from gpucluster.api.errors import InvalidRequest, NeverAsAsked, TooLarge
from gpucluster.api.schemas import CHUNK_BYTES, JobSubmission, RoleSubmission
from gpucluster.model.jobs import InputManifest

from .kernels import Cell, Kernel, start_kernel

SECRET = "not-to-be-kept-4711"

#: Options as typed, the field that the text must name, and what else it must say.
BAD_OPTIONS = [
    ("--queue nowhere", "queue", ["no queue 'nowhere'", "research", "batch"]),
    ("--gpus -1", "gpus", ["-1", "0 or"]),
    ("--gpus nan", "gpus", ["nan"]),
    ("--gpus many", "gpus", ["many"]),
    ("--gpus 0.5", "gpus", ["later version", "whole"]),
    ("--gpus 9", "gpus", ["no node has 9 GPUs", "The most you can ask is 8 GPUs per task"]),
    ("--gpus 1e300", "gpus", ["1e300"]),
    ("--gpu-type H900", "gpu-type", ["H900", "GPU types here"]),
    ("--cpus -2", "cpus", ["-2", "0 or"]),
    ("--cpus 99999", "cpus", ["The most you can ask is"]),
    ("--memory=-1G", "memory", ["-1G"]),
    ("--memory 900000G", "memory", ["The most you can ask is"]),
    ("--tasks 0", "tasks", ["at least 1"]),
    ("--tasks 1000000000", "tasks", ["at most"]),
    (
        "--tasks 3 --gpus 8",
        "tasks",
        ["at most 16 GPUs, the job needs 24", "The most you can ask is 16 GPUs in all"],
    ),
    ("--tasks 5 --gpus 3", "tasks", ["5 tasks of 3 GPUs", "The most you can ask is 4 tasks of this size"]),
    ("--tasks 2:4", "tasks", ["later version"]),
    ("--time -5", "time", ["-5"]),
    ("--time 0", "time", ["'0' is not a duration", "30m"]),
    ("--time 0s", "time", ["'0s' is not a duration"]),
    ("--retries -1", "retries", ["0 or more"]),
    ("--tier 0", "tier", ["later version"]),
    ("--after 99999", "after", ["no job '99999'"]),
    ("--name ''", "name", ["characters are needed"]),
    ("--env 1X=y", "env", ["'1X'", "NAME=VALUE"]),
    ("--env NOT_SET_ANYWHERE", "env", ["NOT_SET_ANYWHERE is not set", "NOT_SET_ANYWHERE=VALUE"]),
    ("--image some/image", "image", ["later version"]),
    ("--share all", "share", ["owner, queue, everyone"]),
]


@pytest.fixture(scope="module")
def calm() -> Iterator[Place]:
    """A scheduler on which no job ever succeeds in being submitted."""
    with place() as made:
        yield made.serve()


@pytest.fixture(scope="module")
def kernel(calm: Place) -> Kernel:
    kernel = start_kernel(calm, API_TOKEN=SECRET)
    kernel.run("value = 41")
    return kernel


@pytest.fixture(autouse=True)
def _nothing_is_left(calm: Place) -> Iterator[None]:
    yield
    assert calm.contents() == {"jobs": [], "files": set()}
    assert calm.holders(SECRET) == []


def assert_says(text: str, field: str, wanted: list[str]) -> None:
    lines = text.strip().splitlines()
    assert "Traceback" not in text
    assert "bug" not in text
    assert len(lines) <= 3, text
    assert f"{field}:" in text
    for each in wanted:
        assert each in text


@pytest.mark.parametrize(("options", "field", "wanted"), BAD_OPTIONS, ids=[case[0] for case in BAD_OPTIONS])
def test_command_line_refuses_and_leaves_nothing(
    calm: Place, options: str, field: str, wanted: list[str]
) -> None:
    arguments = ["submit", *shlex.split(options), "--env", f"API_TOKEN={SECRET}", "--", "true"]
    out, err = calm.cli(*arguments, code=2)
    assert out == ""
    assert_says(err, field, wanted)
    assert SECRET not in err


@pytest.mark.parametrize(("options", "field", "wanted"), BAD_OPTIONS, ids=[case[0] for case in BAD_OPTIONS])
def test_magic_refuses_and_leaves_nothing(
    kernel: Kernel, options: str, field: str, wanted: list[str]
) -> None:
    cell = kernel.run(f"%%submit {options} --env API_TOKEN\nvalue + 1")
    assert cell.status == "error", cell.describe()
    told = cell.error + cell.stderr
    assert_says(told, field, wanted)
    assert SECRET not in told
    assert kernel.run("value").result == "41"


def client_submission(**fields: Any) -> JobSubmission:
    fields = {"kind": "cell", "source": "value + 1", "idempotency_key": uuid.uuid4().hex, **fields}
    return JobSubmission(secret_env={"API_TOKEN": SECRET}, **fields)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"queue": "nowhere"}, InvalidRequest, "queue"),
        ({"roles": [RoleSubmission(count=5, gpus=3)]}, NeverAsAsked, "tasks"),
        ({"roles": [RoleSubmission(memory_bytes=-1)]}, InvalidRequest, "memory"),
        ({"after": ["99999"]}, InvalidRequest, "after"),
        ({"cwd": "not/absolute"}, InvalidRequest, "cwd"),
        ({"interpreter": "python"}, InvalidRequest, "interpreter"),
        ({"source": "x" * (5 << 20)}, TooLarge, "source"),
    ],
)
def test_client_refuses_and_takes_neither_blobs_nor_secrets(
    calm: Place, fields: dict[str, Any], error: type[Exception], field: str
) -> None:
    data = os.urandom(100)
    name = hashlib.sha256(data).hexdigest()
    inputs = InputManifest(pickle=name, names=("value",), total_bytes=len(data))
    with calm.client() as client, pytest.raises(error) as refused:
        client.submit(client_submission(inputs=inputs, **fields), {name: data})
    assert refused.value.field == field  # type: ignore[attr-defined]


CANNOT_TRAVEL = [
    ("import threading\nthing = threading.Lock()", "lock", "inside the cell"),
    ("thing = open('/etc/hostname')", "open file (/etc/hostname)", "open it inside the cell"),
    ("thing = (n for n in range(3))", "generator", "list"),
    ("import socket\nthing = socket.socket()", "network connection", "connect inside the cell"),
    (
        "import sqlite3\nthing = {'deep': [sqlite3.connect(':memory:')]}",
        "['deep'][0]: an open connection to a database",
        "connect inside the cell",
    ),
    (
        "class Odd:\n    def __reduce__(self):\n        raise RuntimeError('not me')\nthing = Odd()",
        "not me",
        "",
    ),
]


@pytest.mark.parametrize(("made", "why", "advice"), CANNOT_TRAVEL, ids=[case[1] for case in CANNOT_TRAVEL])
def test_what_cannot_travel_is_stopped_before_sending(
    kernel: Kernel, made: str, why: str, advice: str
) -> None:
    kernel.run(made)
    cell = kernel.run("%%submit --env API_TOKEN\nprint(thing)")
    assert cell.status == "error", cell.describe()
    told = cell.error + cell.stderr
    assert_says(told, "thing", [why, advice])


@pytest.mark.parametrize(("made", "why", "advice"), CANNOT_TRAVEL, ids=[case[1] for case in CANNOT_TRAVEL])
def test_argument_of_a_function_that_cannot_travel_is_stopped_before_sending(
    kernel: Kernel, made: str, why: str, advice: str
) -> None:
    kernel.run(made)
    cell = kernel.run("import jupyter_gpucluster\njupyter_gpucluster.submit(print, thing)")
    assert cell.ename == "InvalidRequest", cell.describe()
    told = "\n".join(cell.error.splitlines()[-3:])
    assert "InvalidRequest: args" in told
    assert "<args>" not in told
    assert why in told
    assert advice in told


def test_input_over_the_budget_is_said_with_name_and_sizes_before_anything_is_sent(kernel: Kernel) -> None:
    kernel.run("import numpy as np\nbig = np.zeros(3_000_000)\nsmall = [1]")
    kernel.run("%config GPUClusterMagics.input_limit = 20_000_000")
    cell = kernel.run("%%submit --env API_TOKEN\nbig.sum() + small[0]")
    assert cell.status == "error", cell.describe()
    assert_says(
        cell.error + cell.stderr,
        "big",
        ["22.9 MiB", "19.1 MiB", "small", "from a file", "%config GPUClusterMagics.input_limit"],
    )


def test_job_that_is_refused_sends_none_of_its_big_inputs(calm: Place, kernel: Kernel) -> None:
    kernel.run("large = bytes(30_000_000)")
    kernel.run("%config GPUClusterMagics.input_limit = 4_000_000_000")
    cell = kernel.run("%%submit --queue nowhere\nlen(large)")
    assert "no queue 'nowhere'" in cell.error + cell.stderr
    assert calm.contents()["files"] == set()
    told = kernel.run(
        "import jupyter_gpucluster\njupyter_gpucluster.submit(len, large, queue='nowhere')"
    ).error
    assert "no queue 'nowhere'" in told
    assert calm.contents()["files"] == set()


def test_input_over_the_servers_budget_is_refused(calm: Place) -> None:
    """Whatever a client thinks it may send: the budget is looked at before anything is taken for granted."""
    inputs = InputManifest(pickle="0" * 64, names=("value",), total_bytes=5 << 30)
    with calm.client() as client, pytest.raises(TooLarge, match=r"5.00 GiB, the limit is 4.00 GiB"):
        client.dry_run(client_submission(inputs=inputs))


# ---- connections that break


def speak(calm: Place, *parts: bytes) -> bytes:
    """Send the parts over a connection of our own; what was answered, or b"" when the other side hung up."""
    return _speak(calm, parts, hang_up=False)


def cut_off(calm: Place, *parts: bytes) -> None:
    """Send the parts and hang up."""
    _speak(calm, parts, hang_up=True)


def _speak(calm: Place, parts: tuple[bytes, ...], *, hang_up: bool) -> bytes:
    info = calm.info()
    assert info is not None
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(30)
        raw.connect(info.socket)
        for part in parts:
            raw.sendall(part)
        if hang_up:
            raw.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            return raw.recv(1 << 16)
    return b""


def test_upload_cut_off_in_the_middle_of_a_chunk_leaves_nothing_and_is_resumed(calm: Place) -> None:
    data = os.urandom(CHUNK_BYTES + 1000)
    name = hashlib.sha256(data).hexdigest()
    head = f"PUT /v1/blobs/{name}?offset={{}}&total={len(data)} HTTP/1.1\r\nHost: x\r\nContent-Length: {{}}\r\n\r\n"
    with calm.client() as client:
        cut_off(calm, head.format(0, CHUNK_BYTES).encode(), data[: CHUNK_BYTES // 2])
        assert client.blob_status(name).received_bytes == 0
        assert calm.contents()["files"] == set()
        answer = speak(calm, head.format(0, CHUNK_BYTES).encode(), data[:CHUNK_BYTES])
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert client.blob_status(name).received_bytes == CHUNK_BYTES
        cut_off(calm, head.format(CHUNK_BYTES, 1000).encode(), data[CHUNK_BYTES:-1])
        assert client.blob_status(name).received_bytes == CHUNK_BYTES
        assert client.upload({name: data}) == 1000
        assert client.fetch_blob(name) == data
    for path in [calm.data / each for each in calm.contents()["files"]]:
        path.unlink()  # the blob is nobody's yet; what the check after each test looks for is anything else


def test_submission_cut_off_in_the_middle_is_none(calm: Place) -> None:
    import msgspec

    body = msgspec.json.encode(client_submission(kind="command", command=["true"]))
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    cut_off(calm, head, body[:-5])
    with calm.client() as client:
        assert client.jobs().jobs == []
        assert client.hello().protocol


def test_garbage_on_the_socket_hurts_nobody(calm: Place) -> None:
    cut_off(calm, b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    cut_off(calm, b"GET /v1/status HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n")
    cut_off(calm, b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\n")
    with calm.client() as client:
        assert client.status().jobs is not None


def test_bad_cell_of_each_kind_shows_no_card(kernel: Kernel) -> None:
    """A card would say that there is a job."""
    cell: Cell = kernel.run("%%submit --queue nowhere\nvalue")
    assert not [output for output in cell.outputs if output["output_type"] == "display_data"]


def test_several_tries_in_a_row_leave_the_scheduler_as_it_was(calm: Place, kernel: Kernel) -> None:
    before = len(calm.processes())
    for _ in range(5):
        kernel.run("%%submit --gpus 9\nvalue")
    eventually(lambda: len(calm.processes()) <= before, "no process more than before")
