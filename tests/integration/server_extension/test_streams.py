"""The page's WebSocket on a real Jupyter server, under an odd base URL: channels, their windows, claims, and who gets in."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
import websocket
from support.jupyter_server import JupyterServer
from support.page import Page

API = "gpucluster/api/v1/"


def submit(server: JupyterServer, script: str, **fields: Any) -> dict[str, Any]:
    submission = {
        "kind": "command", "source": script, "command": ["/bin/sh", "-c", script],
        "idempotency_key": uuid.uuid4().hex, "roles": [{"gpus": 0}], **fields,
    }  # fmt: skip
    status, job = server.request("POST", API + "jobs", submission)
    assert status == 201, job
    return job


def printed(items: list[dict[str, Any]]) -> str:
    payloads = [item["payload"] for item in items if item.get("kind") == "stdout"]
    return b"".join(map(base64.b64decode, payloads)).decode()


def test_page_is_greeted_with_protocol_and_version(server: JupyterServer) -> None:
    with Page(server) as page:
        hello = page.receive()
    assert hello["type"] == "hello"
    assert hello["page_protocol"] == 1
    assert hello["version"]


def test_channel_carries_a_jobs_output_to_its_end(server: JupyterServer) -> None:
    job = submit(server, "echo a; echo b; echo c")
    with Page(server) as page:
        channel = page.open(f"jobs/{job['id']}/output")
        assert page.until_over(channel) == {"type": "ended", "channel": channel}
        items = page.items(channel)
    assert printed(items) == "a\nb\nc\n"
    assert [items[0]["type"], items[-2]["type"], items[-1]["type"]] == ["job", "job", "end"]
    assert items[-2]["job"]["state"] == "succeeded"


def test_two_channels_run_side_by_side(server: JupyterServer) -> None:
    with Page(server) as page:
        events = page.open("events")
        page.until(lambda message: message["type"] == "items")  # where the events stand now
        job = submit(server, "echo a")
        output = page.open(f"jobs/{job['id']}/output")
        states: list[str] = []
        while "succeeded" not in states or not any(item["type"] == "end" for item in page.items(output)):
            page.receive()
            states = [
                event["data"]["state"]
                for event in page.items(events)
                if event["kind"] == "job.state" and event["data"]["number"] == job["number"]
            ]
    assert states == ["pending", "starting", "running", "succeeded"]
    assert printed(page.items(output)) == "a\n"


def test_stranger_gets_no_connection(server: JupyterServer) -> None:
    for token in (None, "gpk-wrong"):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            Page(server, token=token)
        assert refused.value.status_code == 403
