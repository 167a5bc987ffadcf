from __future__ import annotations

import pytest

from gpucluster.model.ids import make_id, time_of


def test_an_id_tells_when_it_was_made() -> None:
    assert time_of(make_id(1_764_000_000_123_456, b"\xff" * 10)) == 1_764_000_000_123_000


@pytest.mark.parametrize("text", ["", "17", "attempt-1", "u" * 26, "0" * 27])
def test_what_is_no_id_was_made_at_no_time(text: str) -> None:
    assert time_of(text) == 0
