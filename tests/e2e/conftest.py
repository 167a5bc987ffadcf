"""A real JupyterLab with authentication, the real scheduler behind it, and headless Chromium in front.

LABEXTENSION_BUILD=<folder> serves the lab extension that was built there instead of the one that is installed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.jupyter_server import JupyterServer
from trainings import Submitted, end_all
from watching import Watch

CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

NUMBERS = itertools.count(1)


def missing(what: str) -> None:
    """Skip, or with CI=true fail: a machine of CI must have all parts."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[JupyterServer]:
    """A server for all tests of one file; a constant `CLUSTER` there is its cluster.yaml."""
    folder = Path(tempfile.mkdtemp(prefix="gpe-"))
    server = JupyterServer(folder)
    serve_build(server, os.environ.get("LABEXTENSION_BUILD"))
    configure(server, getattr(request.module, "CLUSTER", None))
    try:
        server.start()
        yield server
        end_all(server)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def serve_build(server: JupyterServer, build: str | None) -> None:
    if build:
        place = server.folder / "jupyter/labextensions/jupyter-gpucluster"
        shutil.copytree(build, place)
        server.env["JUPYTER_PREFER_ENV_PATH"] = "0"  # else what is installed comes first


def configure(server: JupyterServer, cluster: str | None) -> None:
    if cluster is not None:
        path = server.folder / "cluster.yaml"
        path.write_text(cluster)
        server.env["GPUCLUSTER_CONFIG"] = str(path)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright_api = pytest.importorskip("playwright.sync_api")
    playwright_api.expect.set_options(timeout=60_000)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        missing("Chromium")
    with playwright_api.sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_FLAGS)
        yield instance
        instance.close()


@pytest.fixture
def watch(browser: Any, lab: JupyterServer) -> Iterator[Watch]:
    """A browser context of its own, in which nothing may go wrong unnoticed."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    watch = Watch(context, lab.url)
    yield watch
    watch.close()


@pytest.fixture
def page(watch: Watch) -> Any:
    return watch.context.new_page()


@pytest.fixture
def submitted(lab: JupyterServer) -> Iterator[Callable[..., Submitted]]:
    """Submits jobs (what for, options, command) that end with the test; no two have the same name."""
    jobs = []

    def submitted(purpose: str, options: str, *command: str) -> Submitted:
        jobs.append(Submitted(lab, f"{purpose}-{next(NUMBERS)}", options, *command))
        return jobs[-1]

    yield submitted
    for job in jobs:
        job.cancel()
