from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..worker.harness import Workers
from .notebook import Notebook


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    base = Path(tempfile.mkdtemp(prefix="gpucluster-capture-"))
    workers = Workers(base)
    yield workers
    workers.close()
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def notebook(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.chdir(tmp_path)
    return Notebook(workers, tmp_path)
