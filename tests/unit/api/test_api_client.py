"""The client against a server that answers what the test says."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from gpucluster.api import client as client_module
from gpucluster.api.client import ApiClient, connect
from gpucluster.api.errors import GpuclusterError, Unavailable, VersionMismatch
from gpucluster.api.schemas import Hello

HELLO = Hello(
    version="1.0",
    protocol=(1, 1),
    cluster="c",
    principal="unix:1",
    principal_name="ann",
    simulated=False,
    default_queue="q",
    boot_id="b",
    pid=1,
)
#: A list of (status, body, cut): answered in turn, the last one for ever. `cut`: the connection breaks before it is whole.
Script = list[tuple[int, bytes, bool]]


@pytest.fixture
def server() -> Iterator[Callable[[Script], str]]:
    running: list[ThreadingHTTPServer] = []

    def serve(script: Script) -> str:
        answers = iter(script)
        last = [script[-1]]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                last[0] = next(answers, last[0])
                status, body, cut = last[0]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + (10 if cut else 0)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = cut
                seen.append(dict(self.headers))

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/user/a%20b/gpucluster/api"

    seen: list[dict[str, str]] = []
    serve.seen = seen  # type: ignore[attr-defined]
    yield serve
    for each in running:
        each.shutdown()
        each.server_close()


def hello(**changes: object) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(HELLO, **changes))


@pytest.mark.parametrize(
    ("protocol", "who"), [((7, 9), "this side is too old"), ((0, 0), "the scheduler is too old")]
)
def test_other_protocol_is_one_clear_sentence(
    server: Callable[[Script], str], protocol: tuple[int, int], who: str
) -> None:
    with pytest.raises(VersionMismatch) as refused:
        connect(server([(200, hello(protocol=protocol, version="9.9"), False)]))
    assert who in refused.value.reason
    assert "9.9" in refused.value.reason
    assert refused.value.hint


def test_newer_fields_of_an_answer_do_no_harm(server: Callable[[Script], str]) -> None:
    body = msgspec.json.encode({**msgspec.to_builtins(HELLO), "new": 1})
    with connect(server([(200, body, False)])) as client:
        assert client.hello().cluster == "c"


def test_server_that_is_something_else_is_said_so(server: Callable[[Script], str]) -> None:
    for body in (b"<html>", b"{}", b'"x"'):
        with pytest.raises(Unavailable, match="not this version's scheduler"):
            connect(server([(200, body, False)]))


def test_answer_that_was_cut_off_is_asked_for_again(server: Callable[[Script], str]) -> None:
    with connect(server([(200, hello()[:20], True), (200, hello(), False)])) as client:
        assert client.hello().cluster == "c"


def test_gateway_that_lost_the_scheduler_is_asked_again(server: Callable[[Script], str]) -> None:
    with connect(server([(502, b"", False), (504, b"", False), (200, hello(), False)])) as client:
        assert client.hello().cluster == "c"


def test_scheduler_that_says_not_now_is_not_pestered(server: Callable[[Script], str]) -> None:
    body = b'{"error": {"code": "unavailable", "reason": "the disk is full"}}'
    with pytest.raises(Unavailable, match="the disk is full"):
        connect(server([(503, body, False), (200, hello(), False)]))


def test_connection_that_stays_lost_ends_in_a_sentence(
    server: Callable[[Script], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "HELLO_RETRY_S", 0.2)
    with pytest.raises(Unavailable, match="was lost") as lost:
        connect(server([(200, b"", True)]))
    assert lost.value.__cause__ is None  # nothing of httpx shows


def test_stop_is_never_sent_twice(server: Callable[[Script], str]) -> None:
    script = [(200, hello(), False), (200, b"", True), (200, b'{"ok": true}', False)]
    with connect(server(script)) as client, pytest.raises(GpuclusterError):
        client.stop()


def test_token_of_the_jupyter_server_goes_in_the_header(
    server: Callable[[Script], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUCLUSTER_ADDRESS", raising=False)
    monkeypatch.setenv("JUPYTER_GPUCLUSTER_URL", server([(200, hello(), False)]))
    monkeypatch.setenv("JUPYTER_GPUCLUSTER_TOKEN", "kernel-token")
    with connect() as client:
        assert client.address.startswith("http://127.0.0.1")
    assert server.seen[-1]["authorization"] == "token kernel-token"  # type: ignore[attr-defined]


def test_closed_client_can_be_used_from_no_thread_in_vain(server: Callable[[Script], str]) -> None:
    client = connect(server([(200, hello(), False)]))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(client.hello())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    client.close()


def test_client_is_quick_to_import() -> None:
    script = (
        "import time; t = time.perf_counter(); import gpucluster.api.client; print(time.perf_counter() - t)"
    )
    times = [
        float(
            subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(3)
    ]
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, gpucluster.api.client; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"httpx", "tornado", "sqlalchemy", "yaml", "asyncio"} & set(loaded)
    assert min(times) < 0.5  # 0.06 s on an idle machine


def test_address_that_nobody_listens_at_fails_at_once() -> None:
    began = time.monotonic()
    with (
        pytest.raises(Unavailable, match="no scheduler answers"),
        ApiClient(client_module.parse_address("/x/y")) as c,
    ):
        c.hello()
    assert time.monotonic() - began < 60
