"""Things that are due at a time: one entry per key, the earliest first. Old entries never pile up."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Times in microseconds since the epoch."""

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._counter = 0  # equal times come out in the order in which they were set

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    def set(self, key: Key, due_us: int) -> None:
        """Replaces the key's earlier time."""
        self._due[key] = due_us
        self._counter += 1
        heapq.heappush(self._heap, (due_us, self._counter, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def clear(self, key: Key) -> None:
        """No error when it is not set."""
        self._due.pop(key, None)

    def pop_due(self, now_us: int) -> list[Key]:
        """Takes out what is due at `now_us`, the earliest first."""
        due: list[Key] = []
        while self._heap and self._heap[0][0] <= now_us:
            due_us, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due_us:
                del self._due[key]
                due.append(key)
        return due

    def next_us(self) -> int | None:
        """When the next entry is due; None when there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
