from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucluster.runtimes.supervisor.control import ControlServer


@pytest.fixture
def selector() -> selectors.BaseSelector:
    return selectors.DefaultSelector()


def handle(command: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
    if command["op"] == "hello":
        reply({"event": "hello", "steps_bytes": 100, "protocol": int(command["protocol"])})


def connected(selector: selectors.BaseSelector, folder: Path) -> tuple[ControlServer, socket.socket]:
    server = ControlServer(selector, str(folder / "socket"), handle)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(folder / "socket"))
    client.settimeout(60)
    turn(selector)
    return server, client


def turn(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(1):
        key.data()


def events(client: socket.socket) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.recv(1 << 20).splitlines()]


def test_nothing_is_told_before_the_answer_to_hello(selector: selectors.BaseSelector, tmp_path: Path) -> None:
    server, client = connected(selector, tmp_path)
    server.broadcast({"event": "step", "end": 100})
    client.sendall(b'{"op": "hello", "protocol": 1}\n')
    turn(selector)
    server.broadcast({"event": "step", "end": 200})
    assert [event["event"] for event in events(client)] == ["hello", "step"]
    server.close()


@pytest.mark.parametrize(
    "line",
    [b"", b"[" * 100_000, b"[]", b'{"op": "hello"}', b'{"op": "hello", "protocol": 1e400}', b'{"op": "hello", "protocol": [1]}'],
)  # fmt: skip
def test_garbage_is_answered_and_hurts_nobody(
    selector: selectors.BaseSelector, tmp_path: Path, line: bytes
) -> None:
    server, client = connected(selector, tmp_path)
    client.sendall(line + b"\n")
    for _ in range(3):
        turn(selector)
    assert events(client)[0]["event"] == "error"
    client.sendall(b'{"op": "hello", "protocol": 1}\n')
    turn(selector)
    assert events(client)[0]["event"] == "hello"
    server.close()
