from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    base = Path(tempfile.mkdtemp(prefix="gpucluster-worker-"))
    workers = Workers(base)
    yield workers
    workers.close()
    shutil.rmtree(base, ignore_errors=True)
