"""One Jupyter server for the tests of a module."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.jupyter_server import JupyterServer

TIMEOUT_S = 60.0


@contextlib.contextmanager
def own_server(*options: str) -> Iterator[JupyterServer]:
    folder = Path(tempfile.mkdtemp(prefix="gps-"))
    running = JupyterServer(folder, *options)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[JupyterServer]:
    with own_server() as running:
        yield running


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kernel_variables(server: JupyterServer) -> dict[str, str]:
    """What a kernel that this server started finds in its environment."""
    status, kernel = server.request("POST", "api/kernels", {"name": "python3"})
    assert status == 201, kernel
    try:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if kernel["id"].encode() in command:
                    pairs = (item.partition(b"=") for item in environment.split(b"\0"))
                    return {key.decode(): value.decode() for key, _, value in pairs}
        raise AssertionError("the kernel's process was not found")
    finally:
        server.request("DELETE", f"api/kernels/{kernel['id']}")
