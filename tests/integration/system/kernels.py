"""Kernels of a place: alone, or behind a Jupyter server and talked to over its WebSocket as a browser does."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import uuid
from pathlib import Path
from typing import Any

import websocket
from jupyter_client.session import Session
from support.jupyter_server import TOKEN, JupyterServer
from support.place import Place, eventually

from ..notebook.frontend import Cell, Kernel, Once


def start_kernel(where: Place, **env: str) -> Kernel:
    """A kernel without any Jupyter server, closed with its place."""
    kernel = Kernel({**where.env, **env}, where.work)
    where.exit.callback(kernel.close)
    return kernel


def start_jupyter(where: Place, *options: str) -> JupyterServer:
    """A Jupyter server whose scheduler and kernels are those of the place."""
    folder = where.folder / "jupyter-server"
    folder.mkdir()
    server = JupyterServer(folder, *options)
    server.env = {**server.env, **{key: where.env[key] for key in ("GPUCLUSTER_DATA", "GPUCLUSTER_RUNTIME")}}
    where.exit.callback(server.stop)
    server.start()
    return server


class _Channel:
    def __init__(self, send: Any) -> None:
        self.send = send


class SocketClient:
    """As much of a kernel client as `Kernel` uses, over the WebSocket of a Jupyter server."""

    def __init__(self, server: JupyterServer, kernel_id: str) -> None:
        self.session = Session(key=b"")
        url = server.url.replace("http:", "ws:") + f"api/kernels/{kernel_id}/channels"
        self._socket = websocket.create_connection(
            f"{url}?session_id={uuid.uuid4().hex}&token={TOKEN}", timeout=120
        )
        self._queues: dict[str, queue.Queue[dict[str, Any]]] = {
            "iopub": queue.Queue(),
            "shell": queue.Queue(),
        }
        self.shell_channel = _Channel(self._send)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.send(json.dumps({**message, "channel": "shell", "buffers": []}, default=str))

    def _read(self) -> None:
        with contextlib.suppress(websocket.WebSocketException, OSError, ValueError):
            while text := self._socket.recv():
                message = json.loads(text)
                if message.get("channel") in self._queues:
                    self._queues[message["channel"]].put(message)

    def execute(self, code: str) -> str:
        message = self.session.msg(
            "execute_request",
            {"code": code, "silent": False, "store_history": True, "user_expressions": {},
             "allow_stdin": False, "stop_on_error": True},
        )  # fmt: skip
        self._send(message)
        return str(message["header"]["msg_id"])

    def get_iopub_msg(self, timeout: float) -> dict[str, Any]:
        return self._queues["iopub"].get(timeout=timeout)

    def get_shell_msg(self, timeout: float) -> dict[str, Any]:
        return self._queues["shell"].get(timeout=timeout)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._socket.close()
        self._reader.join(10)


class ServerKernel(Kernel):
    """A kernel that a Jupyter server started, with the extension loaded."""

    def __init__(self, server: JupyterServer, name: str = "python3") -> None:
        status, made = server.request("POST", "api/kernels", {"name": name})
        assert status == 201, made
        self.id: str = made["id"]
        self.client = SocketClient(server, self.id)  # type: ignore[assignment]
        self._displays = {}
        self.run("%load_ext jupyter_gpucluster")

    @property
    def pid(self) -> int:
        def look() -> int | None:
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and self.id.encode() in (entry / "cmdline").read_bytes():
                        return int(entry.name)
            return None

        return int(eventually(look, "the kernel's process"))

    def close(self) -> None:
        self.client.close()

    def kill(self) -> None:
        os.kill(self.pid, 9)


class Gone(Exception):
    """Raised from a cell's output callback to stop looking at it: its kernel or server is no more."""


def waiting_cell(flag: Path, options: str = "") -> str:
    """A cell that prints, waits for the file `flag`, prints again, binds a name and has a value."""
    return (
        f"%%submit {options}\nimport os, time\nprint('begun', flush=True)\n"
        f"while not os.path.exists({str(flag)!r}):\n    time.sleep(0.02)\nprint('ended')\nanswer = 6 * 7\nanswer"
    )


def begun(cell: Cell) -> bool:
    return "begun" in cell.stdout


def run_until_begun(kernel: Kernel, code: str, then: Any) -> int:
    """Run a `waiting_cell`, do `then` once it has begun, and look away; the job's number."""
    cells: list[Cell] = []

    def leave(cell: Cell) -> None:
        if begun(cell) and not cells:
            cells.append(cell)
            then()
            raise Gone

    with contextlib.suppress(Gone):
        kernel.run(code, leave)
    assert cells, "the cell has not begun"
    return int(cells[0].card["number"])


__all__ = [
    "Cell",
    "Kernel",
    "Once",
    "ServerKernel",
    "begun",
    "run_until_begun",
    "start_jupyter",
    "start_kernel",
    "waiting_cell",
]
