from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store_samples import ManualClock

from gpucluster.store import Store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    opened = Store.open(tmp_path / "data", clock)
    yield opened
    opened.close()
