"""A real Jupyter server as its own process, with authentication, under a base URL of two segments and an encoded character."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

BASE_URL = "/user/a%40b/lab-1/"
TOKEN = "test-token"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class JupyterServer:
    """A running Jupyter server with Lab and Notebook; `url` ends with a slash."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}{BASE_URL}"
        self.env = {
            **os.environ,
            "GPUCLUSTER_DATA": str(folder / "data"),
            "GPUCLUSTER_RUNTIME": str(folder / "run"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "jupyter"),
            "JUPYTER_RUNTIME_DIR": str(folder / "jupyter-run"),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        (folder / "notebooks").mkdir()
        (folder / "run").mkdir(mode=0o700)
        settings = folder / "config/lab/user-settings/@jupyterlab/apputils-extension"
        settings.mkdir(parents=True)
        no_news = {"fetchNews": "false", "checkForUpdates": False}
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(no_news))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = open(self.folder / "lab.log", "ab")  # noqa: SIM115 - handed to the child
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={self.port}",
                "--ServerApp.port_retries=0", f"--ServerApp.base_url={BASE_URL}", f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={self.folder / 'notebooks'}", "--LabApp.expose_app_in_browser=True",
                "--JupyterNotebookApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly", *self.options,
            ],
            env=self.env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}api/status?token={TOKEN}", timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "lab.log").read_text()[-4000:]) from None
                time.sleep(0.1)

    def stop_jupyter(self) -> None:
        """End Jupyter and its kernels; the scheduler goes on."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def stop(self) -> None:
        self.stop_jupyter()
        subprocess.run(
            [sys.executable, "-m", "gpucluster", "stop"],
            env={key: value for key, value in self.env.items() if key != "GPUCLUSTER_ADDRESS"},
            check=False,
            capture_output=True,
            timeout=60,
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = TOKEN,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """(status, parsed JSON or text) of one request; `path` is relative to the base URL."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        if token is not None:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
