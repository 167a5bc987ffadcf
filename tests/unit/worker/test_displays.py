"""Whatever a cell displays becomes strict JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from gpucluster.worker.displays import display_payload, error_payload, to_json
from gpucluster.worker.frames import MAX_PAYLOAD


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}),
        (b"\x89PNG", "iVBORw=="),
        ({"x": float("nan"), "y": [float("inf")]}, {"x": None, "y": [None]}),
        (np.arange(3), [0, 1, 2]),
        (np.float32(0.5), 0.5),
        ({(1, 2): "tuple key"}, {"(1, 2)": "tuple key"}),
        ({1: "int key"}, {"1": "int key"}),
        ("half \ud800", "half ?"),
        ({"deep": {"array": np.array([1.0, np.nan])}}, {"deep": {"array": [1.0, None]}}),
    ],
)
def test_anything_is_told_in_json(value: Any, told: Any) -> None:
    assert msgspec.json.decode(to_json(value)) == told


def test_what_refers_to_itself_does_not_hang() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    assert msgspec.json.decode(to_json(value))


def test_the_largest_part_of_a_huge_display_is_left_out_first() -> None:
    payload = display_payload(
        {"image/png": "x" * MAX_PAYLOAD, "text/html": "<b>", "text/plain": "t"}, {"m": 1}
    )
    assert len(payload) <= MAX_PAYLOAD
    data = json.loads(payload)["data"]
    assert data["text/html"] == "<b>"
    assert data["text/plain"].startswith("t\n[image/png of ")


def test_a_huge_error_keeps_head_and_tail() -> None:
    entry = "head" + "x" * (4 << 20) + "tail"
    payload = error_payload("E", "v" * (1 << 20), [entry] * 1000)
    assert len(payload) < 6 << 20
    error = json.loads(payload)
    assert len(error["evalue"]) < 1 << 17
    assert "920 entries left out" in "".join(error["traceback"])
    assert error["traceback"][0].startswith("headx")
    assert error["traceback"][0].endswith("xtail")
