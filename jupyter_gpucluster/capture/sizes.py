"""How big an object is about, without pickling it: enough to refuse 20 GiB at once, not to bill for."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

#: Objects looked at for one name, and parts looked at of a big container.
_LOOKS = 5_000
_SAMPLE = 200
_NOTHING = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


class SizeEstimate:
    """Adds up sizes in bytes; what two names share is counted with the first."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._keep: list[Any] = []  # parts made on the way: their ids must stay theirs

    def of(self, value: Any) -> int:
        self._looks = _LOOKS
        return round(self._size(value))

    def _size(self, value: Any) -> float:
        if id(value) in self._seen or self._looks <= 0:
            return 0
        self._looks -= 1
        self._seen.add(id(value))
        self._keep.append(value)
        if isinstance(value, _NOTHING):
            return 0
        known = _known_size(value)
        if known is not None:
            return known
        parts = _parts(value)
        own = sys.getsizeof(value, 64)
        return own if parts is None else own + self._sum(*parts)

    def _sum(self, parts: Iterable[Any], count: int) -> float:
        """Of `count` parts; of many, some are looked at and stand for the rest."""
        if count <= 2 * _SAMPLE:
            return sum(map(self._size, parts))
        step = count // _SAMPLE | 1  # odd, or of a dict's keys and values only the keys would be seen
        sample = list(islice(parts, 0, None, step))
        distinct = {id(part): part for part in sample}
        size = sum(map(self._size, distinct.values()))
        return size if len(distinct) == 1 else size * count / len(sample)


def _known_size(value: Any) -> float | None:
    """What the object itself tells. Only attributes of its type are asked for: some objects make up any that they lack."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    kind = type(value)
    if hasattr(kind, "memory_usage"):  # pandas
        try:
            used = value.memory_usage(deep=False)
            return float(used.sum() if hasattr(used, "sum") else used)
        except Exception:
            return None
    if not hasattr(kind, "nbytes") or _holds_objects(value):  # NumPy, PyTorch, memoryview, Arrow
        return None
    size = value.nbytes
    return size if isinstance(size, int) else None


def _holds_objects(value: Any) -> bool:
    return hasattr(type(value), "dtype") and bool(getattr(value.dtype, "hasobject", False))


def _parts(value: Any) -> tuple[Iterator[Any], int] | None:
    if isinstance(value, dict):
        return (part for item in value.items() for part in item), 2 * len(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return iter(value), len(value)
    if _holds_objects(value) and hasattr(type(value), "flat"):
        return iter(value.flat), value.size
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        return iter(list(attributes.values())), len(attributes)
    return None


def readable(size: float) -> str:
    """A size in bytes for people: "4.2 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
