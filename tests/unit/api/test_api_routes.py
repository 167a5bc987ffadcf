"""Every route, asked without a credential. A new one that forgets to authenticate fails here."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tornado.httpserver import HTTPServer
from tornado.web import RequestHandler

from gpucluster.api.app import ROUTES, Activity, Streams, make_app
from gpucluster.api.auth import PeerAuthenticator
from gpucluster.api.handlers.base import ApiHandler, Authenticated
from gpucluster.api.schemas import ErrorAnswer

VERBS = ("get", "head", "post", "put", "delete", "patch", "options")


def concrete(pattern: str) -> str:
    return "/v1" + pattern.replace("([0-9a-zA-Z]+)", "12").replace("([^/]+)", "node").replace(
        "([0-9a-f]{64})", "0" * 64
    )


def implemented(handler: type) -> list[str]:
    return [verb for verb in VERBS if getattr(handler, verb) is not getattr(RequestHandler, verb)]


CASES = [(verb.upper(), concrete(pattern)) for pattern, handler in ROUTES for verb in implemented(handler)]
#: Not in the table: an unknown path, and verbs that nothing implements.
CASES += [
    ("GET", "/v1/nowhere"),
    ("GET", "/"),
    ("DELETE", "/v1/jobs"),
    ("OPTIONS", "/v1/jobs"),
    ("PATCH", "/v1/hello"),
]


async def ask(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    """Over TCP: a connection without a credential that this version knows."""
    parts: Any = SimpleNamespace(authenticator=PeerAuthenticator(), activity=Activity(), streams=Streams())
    server = HTTPServer(make_app(parts))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server.add_socket(listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(
        (line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length")), "0"
    )
    content = b"" if method == "HEAD" else await reader.readexactly(int(length))
    writer.close()
    server.stop()
    return int(head.split()[1]), content


@pytest.mark.parametrize(("method", "path"), CASES, ids=lambda value: str(value)[:40])
def test_route_answers_nobody_without_a_credential(method: str, path: str) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} if path.endswith("/ws") else {}
    body = b'{"x": 1}' if method in ("POST", "PUT") else b""
    status, content = asyncio.run(ask(method, path, headers if path.endswith("/ws") else {}, body))
    assert status == 401
    if method != "HEAD":
        assert msgspec.json.decode(content, type=ErrorAnswer).error.code == "unauthenticated"


@pytest.mark.parametrize(("pattern", "handler"), ROUTES, ids=lambda value: str(value)[:40])
def test_handler_authenticates_in_prepare_which_nobody_overrides(pattern: str, handler: type) -> None:
    assert issubclass(handler, Authenticated)
    if issubclass(handler, ApiHandler):
        assert handler.prepare is ApiHandler.prepare
