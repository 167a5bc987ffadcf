"""The API below a real Jupyter server: who gets in, what passes, how errors arrive."""

from __future__ import annotations

import http.cookiejar
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import pytest
from support.jupyter_server import BASE_URL, TOKEN, JupyterServer

from jupyter_gpucluster.server_extension.kernel_token import TOKEN_VARIABLE, URL_VARIABLE
from jupyter_gpucluster.server_extension.routes import FORWARDED

from .conftest import kernel_variables

API = "gpucluster/api/v1/"
JOB = "0" * 26
BLOB = "0" * 64


def submission(**changes: object) -> dict[str, object]:
    return {
        "kind": "command", "source": "true", "command": ["true"], "idempotency_key": uuid.uuid4().hex, **changes,
    }  # fmt: skip


def every_route() -> list[tuple[str, str]]:
    """One path for each alternative of each allowed route."""
    found = []
    for method, pattern in FORWARDED:
        concrete = pattern.replace("jobs/[0-9a-z]+", f"jobs/{JOB}").replace(
            "blobs/[0-9a-f]{64}", f"blobs/{BLOB}"
        )
        head, _, group = concrete.partition("(?:")
        choices = group.rstrip(")").split("|") if group else concrete.split("|")
        found += [(method, (head if group else "") + choice) for choice in choices]
    return found


@pytest.mark.parametrize(("method", "path"), every_route())
def test_every_endpoint_refuses_a_stranger(server: JupyterServer, method: str, path: str) -> None:
    body = {} if method in ("POST", "PUT") else None
    status, _ = server.request(method, API + path, body, token=None)
    assert status == 403
    status, _ = server.request(method, API + path, body, token="gpk-wrong")
    assert status == 403


def test_status_passes_through(server: JupyterServer) -> None:
    status, body = server.request("GET", API + "status")
    assert status == 200
    assert body["gpus"] == 16
    assert body["simulated"] is True


def test_cache_buster_of_lab_requests_is_no_unknown_field(server: JupyterServer) -> None:
    status, _ = server.request("GET", API + "queues?1796006900795")
    assert status == 200
    status, body = server.request("GET", API + "queues?nosuch=1&1796006900795")
    assert status == 400
    assert body["error"]["field"] == "nosuch"


def test_error_keeps_its_status_and_says_what_to_do(server: JupyterServer) -> None:
    status, body = server.request("POST", API + "jobs", submission(queue="nosuch"))
    assert status == 400
    assert body["error"]["field"] == "queue"
    assert "research" in body["error"]["reason"] + (body["error"]["hint"] or "")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "stop"), ("POST", "nodes/node-0"), ("GET", "../status"), ("PUT", "jobs")]
)
def test_what_is_not_meant_for_notebooks_does_not_pass(server: JupyterServer, method: str, path: str) -> None:
    status, _ = server.request(method, API + path, {} if method != "GET" else None)
    assert status in (403, 404)


def test_kernel_token_submits_without_xsrf_and_opens_nothing_else(server: JupyterServer) -> None:
    variables = kernel_variables(server)
    assert urllib.parse.urlparse(variables[URL_VARIABLE]).path == BASE_URL + API.rstrip("/")
    token = variables[TOKEN_VARIABLE]
    status, job = server.request("POST", API + "jobs", submission(), token=token)
    assert status == 201, job
    status, _ = server.request("GET", "api/contents", token=token)
    assert status == 403
    status, _ = server.request("GET", "api/kernels", token=token)
    assert status == 403


def test_server_keeps_the_kernel_token_out_of_its_own_environment(server: JupyterServer) -> None:
    assert server.process is not None
    assert TOKEN_VARIABLE.encode() not in Path(f"/proc/{server.process.pid}/environ").read_bytes()


def test_browser_session_needs_the_xsrf_token(server: JupyterServer) -> None:
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"{server.url}lab?token={TOKEN}", timeout=60).close()
    request = urllib.request.Request(
        server.url + API + "jobs", json.dumps(submission()).encode(), method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(request, timeout=60)
    assert refused.value.code == 403
    xsrf = next(cookie.value for cookie in jar if cookie.name == "_xsrf")
    request = urllib.request.Request(
        server.url + API + "jobs", json.dumps(submission()).encode(), method="POST"
    )
    request.add_header("X-XSRFToken", str(xsrf))
    with opener.open(request, timeout=60) as answer:
        assert answer.status == 201


def test_look_does_not_bring_back_a_scheduler_that_was_stopped_and_a_submission_does(
    server: JupyterServer,
) -> None:
    stop = [sys.executable, "-m", "gpucluster", "stop"]
    subprocess.run(stop, env=server.env, check=True, capture_output=True, timeout=60)
    status, body = server.request("GET", API + "status")
    assert status == 502
    assert "no scheduler runs" in body["error"]["reason"]
    status, _ = server.request("POST", API + "jobs", submission())
    assert status == 201
    status, _ = server.request("GET", API + "status")
    assert status == 200


def test_crashed_scheduler_is_brought_back_by_a_look(server: JupyterServer) -> None:
    _, before = server.request("GET", API + "status")
    os.kill(before["pid"], signal.SIGKILL)
    status, after = server.request("GET", API + "status")
    assert status == 200
    assert after["pid"] != before["pid"]
    assert after["data_dir"] == before["data_dir"]


def test_named_scheduler_is_used_and_no_other(server: JupyterServer) -> None:
    """With $GPUCLUSTER_ADDRESS set, the extension neither looks for nor starts another scheduler."""
    _, before = server.request("GET", API + "status")
    folder = Path(tempfile.mkdtemp(prefix="gps-"))
    other = JupyterServer(folder)
    other.env["GPUCLUSTER_ADDRESS"] = before["address"]
    try:
        other.start()
        _, seen = other.request("GET", API + "status")
        assert seen["pid"] == before["pid"]
        assert not (folder / "data").exists()
    finally:
        other.stop()
        shutil.rmtree(folder, ignore_errors=True)
