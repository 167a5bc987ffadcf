"""One Jupyter server for the tests of a module."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jupyter_server import JupyterServer


@pytest.fixture(scope="module")
def server() -> Iterator[JupyterServer]:
    folder = Path(tempfile.mkdtemp(prefix="gps-"))
    running = JupyterServer(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)
