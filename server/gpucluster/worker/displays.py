"""Payloads of DISPLAY, UPDATE and ERROR records (frames.py): JSON whatever the cell hands over, and of bounded size."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from .frames import MAX_PAYLOAD

#: A display names the model of a widget that lives in a kernel; a job has none, and its viewers could only show an error.
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


def display_payload(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    display_id: str | None = None,
    execute_result: bool = False,
) -> bytes:
    """The payload of a display. What is over the limit of a record is left out, largest first, and a text says so."""
    content = {mime: value for mime, value in data.items() if mime != WIDGET_MIME}
    while True:
        payload = to_json(
            {
                "data": content,
                "metadata": metadata or {},
                "display_id": display_id,
                "execute_result": execute_result,
            }
        )
        if len(payload) <= MAX_PAYLOAD:
            return payload
        content, metadata = _without_largest(content, len(payload)), None


def _without_largest(content: dict[str, Any], total_bytes: int) -> dict[str, Any]:
    sizes = {mime: len(to_json(value)) for mime, value in content.items()}
    largest = max(sizes, key=lambda mime: sizes[mime])
    rest = {mime: value for mime, value in content.items() if mime != largest}
    note = f"[{largest} of {sizes[largest]} bytes left out: a display may have {MAX_PAYLOAD} bytes]"
    text = rest.get("text/plain")
    return {**rest, "text/plain": f"{text}\n{note}" if isinstance(text, str) else note}


def error_payload(ename: str, evalue: str, traceback: list[str]) -> bytes:
    """The payload of an error. A huge one keeps its head and tail: 6 MiB at most."""
    entries = [_shortened(entry, 1 << 16) for entry in traceback]
    if len(entries) > 80:
        left_out = f"[… {len(entries) - 80} entries left out …]"
        entries = [*entries[:40], left_out, *entries[-40:]]
    return to_json({"ename": ename, "evalue": _shortened(evalue, 1 << 16), "traceback": entries})


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - limit} characters left out …]\n{text[-half:]}"


def to_json(value: Any) -> bytes:
    """Strict JSON (no NaN, UTF-8 without lone surrogates) of anything: bytes as base64, what JSON has no word for as text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(_cleaned(value, depth=0), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return value.tolist()
    return str(value)


def _cleaned(value: Any, depth: int) -> Any:
    if depth > 100:
        return str(type(value))
    if isinstance(value, dict):
        return {str(key): _cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    plain = _plain(value)
    return plain if isinstance(plain, str) else _cleaned(plain, depth + 1)
