"""The page's WebSocket on a real Jupyter server, under an odd base URL: channels, their windows, claims, and who gets in."""

from __future__ import annotations

import asyncio
import base64
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
import websocket
from support.jupyter_server import TOKEN, JupyterServer
from support.page import STREAMS, Page
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from gpucluster.worker.frames import HEADER
from jupyter_gpucluster.server_extension.kernel_token import TOKEN_VARIABLE
from jupyter_gpucluster.server_extension.messages import WINDOW

from .conftest import kernel_variables, own_server, wait_until

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


def test_live_channel_tells_everything_and_then_what_changes(server: JupyterServer) -> None:
    with Page(server) as page:
        channel = page.open("live", {"topics": "queues,nodes,jobs"})
        page.until(lambda message: message.get("channel") == channel)
        first = page.items(channel)[0]
        assert sorted(first["full"]) == ["jobs", "nodes", "queues"]
        job = submit(server, "true")
        states: list[str] = []
        while "succeeded" not in states:
            page.receive()
            states = [
                each["state"]
                for update in page.items(channel)
                for each in update.get("jobs", [])
                if each["id"] == job["id"]
            ]
        seq = page.items(channel)[-1]["seq"]
        page.break_off()
    with Page(server, page.page_id) as again:
        have = {"topics": "queues,nodes,jobs", "have": "queues,nodes,jobs", "after": seq}
        channel = again.open("live", have)
        submit(server, "true")
        again.until(lambda _: any(update.get("jobs") for update in again.items(channel)))
        assert all(update["seq"] >= seq and "full" not in update for update in again.items(channel))


def test_cell_channel_draws_a_job_to_its_end(server: JupyterServer) -> None:
    job = submit(server, "echo drawn anew")
    with Page(server) as page:
        channel = page.open("cell", cell={"job_id": job["id"]})
        assert page.until_over(channel) == {"type": "ended", "channel": channel}
        steps = page.items(channel)
    assert (steps[0]["op"], steps[-1]["op"]) == ("card", "done")
    assert "drawn anew\n" in "".join(step.get("text", "") for step in steps)


def test_cell_of_a_job_that_is_not_there_is_not_found(server: JupyterServer) -> None:
    with Page(server) as page:
        failed = page.until_over(page.open("cell", cell={"job_id": "0" * 26}))
    assert (failed["type"], failed["status"], failed["error"]["code"]) == ("failed", 404, "not_found")


# ---- who gets in


def test_stranger_gets_no_connection(server: JupyterServer) -> None:
    for token in (None, "gpk-wrong"):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            Page(server, token=token)
        assert refused.value.status_code == 403


@pytest.fixture(scope="module")
def cookies(server: JupyterServer) -> str:
    """Of a browser that logged in: what it sends by itself, on behalf of any page."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"{server.url}lab?token={TOKEN}", timeout=60).close()
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)


def test_page_of_the_server_itself_connects_with_its_cookies_alone(
    server: JupyterServer, cookies: str
) -> None:
    origin = f"http://127.0.0.1:{server.port}"
    with Page(server, token=None, headers={"Cookie": cookies, "Origin": origin}) as page:
        assert page.receive()["type"] == "hello"


def test_foreign_page_cannot_use_the_browsers_cookies(server: JupyterServer, cookies: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        Page(server, token=None, headers={"Cookie": cookies, "Origin": "http://elsewhere.example"})
    assert refused.value.status_code == 403


def test_kernel_connects_with_its_token(server: JupyterServer) -> None:
    with Page(server, token=kernel_variables(server)[TOKEN_VARIABLE]) as page:
        assert page.receive()["type"] == "hello"


@pytest.mark.parametrize("page_id", ["a b", "x" * 65, "../etc"])
def test_odd_page_id_is_refused(server: JupyterServer, page_id: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        Page(server, urllib.parse.quote(page_id))
    assert refused.value.status_code == 400


# ---- bad messages


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"type": "open", "channel": 5, "query": {}}, "path"),
        ({"type": "open", "channel": 5, "path": 3}, "path"),
        ({"type": "open", "channel": 5, "path": "events", "nosuch": 1}, "nosuch"),
        ({"type": "open", "channel": 5, "path": "events", "query": {"after": 3}}, "query[...]"),
        ({"type": "open", "channel": 5, "path": "events", "query": {"nosuch": "1"}}, "nosuch"),
        ({"type": "open", "channel": 5, "path": "cell"}, "cell"),
        ({"type": "open", "channel": 5, "path": "status"}, "path"),
        ({"type": "ack", "channel": 5}, "channel"),
        ({"type": "ack", "channel": 1, "count": 100}, "count"),
        ({"type": "close", "channel": 5}, "channel"),
        ({"type": "nosuch", "channel": 5}, "type"),
    ],
    ids=json.dumps,
)
def test_bad_message_ends_its_channel_by_name_of_the_field_and_nothing_else(
    server: JupyterServer, message: dict[str, Any], field: str
) -> None:
    with Page(server) as page:
        first = page.open("events")
        page.until(lambda message: message["type"] == "items")
        page.send(**message)
        failed = page.until_over(message["channel"])
        assert failed["type"] == "failed"
        assert failed["status"] == (404 if message.get("path") == "status" else 400)
        assert failed["error"]["field"] == field
        submit(server, "true")
        if message["channel"] == first:
            first = page.open("events")
        page.until(lambda message: message["type"] == "items" and message["channel"] == first)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{", "message:"),
        ("[1]", "body:"),
        ('{"type":"nosuch"}', "type:"),
        ('{"type":"open","path":"events"}', "channel:"),
        ('{"type":"claim","key":"k"}', "role:"),
        ('{"type":"claim","key":"k","role":"nosuch"}', "role:"),
        ('{"type":"claim","key":"","role":"log"}', "key:"),
        ('{"type":"release","key":"' + "k" * 2001 + '"}', "key:"),
        ('{"type":"open","cell":{"card":{"a":' + "[" * 100_000, "message:"),
    ],
    ids=lambda text: text[:40],
)
def test_message_without_a_channel_that_means_nothing_ends_the_connection(
    server: JupyterServer, message: str, reason: str
) -> None:
    with Page(server) as page:
        page.receive()
        page.socket.send(message)
        code, said = page.until_closed()
    assert code == 1003
    assert said.startswith(reason)


def test_binary_message_ends_the_connection(server: JupyterServer) -> None:
    with Page(server) as page:
        page.receive()
        page.socket.send_binary(b"\x00\x01")
        assert page.until_closed() == (1003, "message: a message is text, not binary")


def test_message_that_is_too_long_ends_its_channel(server: JupyterServer) -> None:
    with Page(server) as page:
        channel = page.open("cell", cell={"job_id": "0" * 26, "card": {"text": "x" * (4 << 20)}})
        failed = page.until_over(channel)
        assert (failed["type"], failed["status"]) == ("failed", 413)
        assert str(4 << 20) in failed["error"]["reason"]
        page.until_over(page.open("events", {"follow": 0}))


@pytest.mark.parametrize(
    "notes", ['["\\ud83d"]', "[" * 10_000 + "]" * 10_000], ids=["half a pair", "nesting"]
)
def test_card_that_cannot_be_decoded_ends_its_channel_alone(server: JupyterServer, notes: str) -> None:
    """It stands in a notebook: opening that must not cost the page its connection, over and over."""
    with Page(server) as page:
        page.receive()
        cell = f'{{"job_id":"{"0" * 26}","card":{{"notes":{notes}}}}}'
        page.socket.send(f'{{"type":"open","channel":7,"path":"cell","query":{{}},"cell":{cell}}}')
        failed = page.until_over(7)
        assert (failed["type"], failed["status"], failed["error"]["field"]) == ("failed", 400, "message")
        page.socket.send('{"type":"claim","key":"k","role":"log"}')
        page.until(lambda message: message["type"] == "claimed")


# ---- slow pages, much output


def flood(lines: int) -> str:
    """A script that prints so many lines of 1000 bytes as fast as it can."""
    return f'{sys.executable} -c "for n in range({lines}): print(str(n).zfill(999))"'


def memory_bytes(pid: int) -> int:
    fields = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return next(int(words[1]) << 10 for words in fields if words[0] == "VmRSS:")


def test_page_that_does_not_acknowledge_fills_no_memory_and_holds_up_no_other_channel(
    server: JupyterServer,
) -> None:
    assert server.process is not None
    lines = 15_000
    job = submit(server, flood(lines))
    with Page(server, acknowledges=set()) as page:
        held = page.open(f"jobs/{job['id']}/output")
        page.until(lambda _: page.under_way[held] == WINDOW)
        before = memory_bytes(server.process.pid)
        page.acknowledges = {held + 1}
        events = page.open("events", {"after": 0})
        page.until(
            lambda _: any(
                event["kind"] == "job.state"
                and event["data"]["number"] == job["number"]
                and event["data"]["state"] == "succeeded"
                for event in page.items(events)
            )
        )
        assert page.under_way[held] == WINDOW
        # All 15 MB are written, and wait in the log, not in the server.
        assert memory_bytes(server.process.pid) - before < 5_000_000
        page.acknowledges = None
        page.acknowledge(held, WINDOW)
        page.until_over(held)
        assert page.most_under_way <= WINDOW
        assert printed(page.items(held)).split() == [str(n).zfill(999) for n in range(lines)]


# ---- coming back

COUNTING = "n=0; while [ $n -lt {lines} ]; do echo line $n; n=$((n+1)); sleep 0.02; done"


def counted(lines: int) -> str:
    return "".join(f"line {n}\n" for n in range(lines))


def cursor_after(items: list[dict[str, Any]]) -> dict[str, int]:
    """Where a stream goes on that follows what was seen: behind the last record (api/streams of the front end)."""
    last = [item for item in items if item["type"] == "record"][-1]
    payload = base64.b64decode(last["payload"])
    return {"attempt": last["attempt"], "offset": last["offset"] + HEADER.size + len(payload)}


def test_page_that_lost_its_connection_goes_on_where_it_stood(server: JupyterServer) -> None:
    job = submit(server, COUNTING.format(lines=60))
    path = f"jobs/{job['id']}/output"
    with Page(server) as page:
        channel = page.open(path)
        page.until(lambda _: "line 5\n" in printed(page.items(channel)))
        seen = page.items(channel)
        page.break_off()
    with Page(server, page.page_id) as again:
        channel = again.open(path, cursor_after(seen))
        assert again.until_over(channel)["type"] == "ended"
        assert printed(seen) + printed(again.items(channel)) == counted(60)


def test_events_go_on_after_the_last_one_that_was_seen(server: JupyterServer) -> None:
    submit(server, "true")
    with Page(server) as page:
        channel = page.open("events", {"after": 0, "follow": 0})
        page.until_over(channel)
        numbers = [event["seq"] for event in page.items(channel) if event["kind"] != "alive"]
        middle = numbers[len(numbers) // 2]
        channel = page.open("events", {"after": middle, "follow": 0})
        page.until_over(channel)
        later = [event["seq"] for event in page.items(channel) if event["kind"] != "alive"]
    expected = [number for number in numbers if number > middle]
    assert later[: len(expected)] == expected  # more may have happened since


def test_channel_goes_on_with_a_scheduler_that_was_killed_and_brought_back(server: JupyterServer) -> None:
    job = submit(server, COUNTING.format(lines=100))
    path = f"jobs/{job['id']}/output"
    with Page(server) as page:
        channel = page.open(path)
        page.until(lambda _: "line 5\n" in printed(page.items(channel)))
        _, status = server.request("GET", API + "status")
        os.kill(status["pid"], signal.SIGKILL)
        failed = page.until_over(channel)
        assert (failed["type"], failed["status"]) == ("failed", 502)
        seen = page.items(channel)
        channel = page.open(path, cursor_after(seen))
        assert page.until_over(channel)["type"] == "ended"
        assert printed(seen) + printed(page.items(channel)) == counted(100)


def test_page_does_not_bring_back_a_scheduler_that_was_stopped(server: JupyterServer) -> None:
    with Page(server) as page:
        channel = page.open("events")
        page.until(lambda message: message["type"] == "items")
        stop = [sys.executable, "-m", "gpucluster", "stop"]
        subprocess.run(stop, env=server.env, check=True, capture_output=True, timeout=60)
        failed = page.until_over(channel)
        assert (failed["type"], failed["status"]) == ("failed", 502)
        failed = page.until_over(page.open("events"))
        assert (failed["type"], failed["status"]) == ("failed", 502)
        assert "no scheduler runs" in failed["error"]["reason"]
        assert failed["error"]["hint"]
        submit(server, "true")
        channel = page.open("events")
        page.until(lambda message: message["type"] == "items" and message["channel"] == channel)


# ---- ends


def sockets(pid: int) -> int:
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except OSError:
            continue
    return found


def test_page_that_leaves_leaves_nothing_open(server: JupyterServer) -> None:
    assert server.process is not None
    before = sockets(server.process.pid)
    with Page(server) as page:
        for _ in range(20):
            channel = page.open("events")
            page.until(lambda message, channel=channel: message.get("channel") == channel)
        assert sockets(server.process.pid) > before + 15
    wait_until(lambda: sockets(server.process.pid) <= before)  # type: ignore[union-attr]


def test_silent_connection_says_that_it_is_alive(server: JupyterServer) -> None:
    with Page(server) as page:
        assert [page.receive()["type"] for _ in range(2)] == ["hello", "alive"]


def test_page_that_does_not_answer_is_taken_for_gone() -> None:
    settings = "--ServerApp.tornado_settings={'ws_ping_interval': 300}"
    with own_server(settings) as server, Page(server) as dead, Page(server) as page:
        dead.claim("cell")
        assert dead.until_claimed() == (True, "log")
        page.claim("cell")
        assert page.until_claimed() == (False, "log")
        # It receives nothing more, and so answers no ping.
        assert page.until_claimed() == (True, "log")


def test_server_that_stops_says_goodbye() -> None:
    with own_server() as server:
        assert server.process is not None
        with Page(server) as page:
            channel = page.open("events")
            page.until(lambda message: message.get("channel") == channel)
            os.kill(server.process.pid, signal.SIGTERM)
            assert page.until_closed() == (1001, "the server is stopping")
        server.process.wait(60)
        log = (server.folder / "lab.log").read_text()
    assert not re.search("Traceback|never retrieved|was destroyed|ping_timeout", log)


def test_compressed_connection_carries_the_same(server: JupyterServer) -> None:
    job = submit(server, "seq 1 2000")

    async def run() -> tuple[str, list[Any]]:
        request = HTTPRequest(server.url + STREAMS, headers={"Authorization": f"token {TOKEN}"})
        request.url = request.url.replace("http", "ws", 1)
        socket = await websocket_connect(request, compression_options={})
        await socket.write_message(
            json.dumps({"type": "open", "channel": 1, "path": f"jobs/{job['id']}/output"})
        )
        items: list[Any] = []
        while (message := json.loads(await socket.read_message() or "")).get("type") != "ended":
            items += message.get("items", [])
        extensions = socket.headers["Sec-WebSocket-Extensions"]  # type: ignore[attr-defined]
        socket.close()
        return extensions, items

    extensions, items = asyncio.run(run())
    assert extensions.startswith("permessage-deflate")
    assert printed(items) == "".join(f"{n}\n" for n in range(1, 2001))


# ---- claims


def test_one_page_draws_a_cell_and_the_next_one_when_it_is_closed(server: JupyterServer) -> None:
    with Page(server) as first, Page(server) as second:
        first.claim("notebook cell")
        assert first.until_claimed() == (True, "log")
        second.claim("notebook cell")
        assert second.until_claimed() == (False, "log")
        first.socket.close(status=1001)  # as a browser does for a page that is closed
        assert second.until_claimed() == (True, "log")


def test_kernel_takes_the_cell_from_a_page_and_gives_it_back(server: JupyterServer) -> None:
    with Page(server) as first, Page(server) as second:
        first.claim("another cell")
        assert first.until_claimed() == (True, "log")
        second.claim("another cell", "kernel")
        assert second.until_claimed() == (True, "kernel")
        assert first.until_claimed() == (False, "kernel")
        second.send(type="release", key="another cell")
        assert first.until_claimed() == (True, "log")


def test_page_that_reconnects_keeps_its_cell(server: JupyterServer) -> None:
    with Page(server) as second:
        with Page(server) as first:
            first.claim("third cell")
            assert first.until_claimed() == (True, "log")
            second.claim("third cell")
            assert second.until_claimed() == (False, "log")
            first.break_off()
        with Page(server, first.page_id) as again:
            again.claim("third cell")
            assert again.until_claimed() == (True, "log")
            again.break_off()
        # It does not come back this time.
        assert second.until_claimed() == (True, "log")


def test_newer_connection_of_a_page_takes_over_from_the_older_one(server: JupyterServer) -> None:
    with Page(server) as older:
        older.claim("fourth cell")
        assert older.until_claimed() == (True, "log")
        with Page(server, older.page_id) as newer:
            assert older.until_closed()[0] == 4001
            newer.claim("fourth cell")
            assert newer.until_claimed() == (True, "log")
