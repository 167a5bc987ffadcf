"""A real JupyterLab with authentication, the real scheduler behind it, and headless Chromium in front."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

BASE_URL = "/user/a%40b/lab-1/"
TOKEN = "e2e-token"
CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def missing(what: str) -> None:
    """Skip, or with CI=true fail: a machine of CI must have all parts."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lab:
    """A running Jupyter server with Lab and Notebook; `url` ends with a slash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
                "--LabApp.extension_manager=readonly",
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

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        subprocess.run(
            [sys.executable, "-m", "gpucluster", "stop"],
            env=self.env,
            check=False,
            capture_output=True,
            timeout=60,
        )


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="gpe-"))
    server = Lab(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    playwright_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        missing("Chromium")
    with playwright_api.sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_FLAGS)
        yield instance
        instance.close()


@pytest.fixture
def page(browser: object, lab: Lab) -> Iterator[object]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})  # type: ignore[attr-defined]
    context.set_default_timeout(60_000)
    tab = context.new_page()
    tab.errors = []
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    yield tab
    context.close()
