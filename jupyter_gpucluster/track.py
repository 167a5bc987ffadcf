"""The step reports of one job over its whole life: a bounded number of them, thinned out evenly; for sparklines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster.api.schemas import Progress

from . import describe

#: At most so many reports are kept; then every second one is dropped.
MAX_REPORTS = 240
#: A sparkline has at most so many points.
MAX_POINTS = 80
#: Of a picture of 100 by 20, what stays free at its edges for the width of the line.
_WIDTH, _HEIGHT, _EDGE = 100.0, 20.0, 1.5


@dataclass(frozen=True)
class Sparkline:
    """One metric as a small picture: `points` of an SVG polyline in a box of 100 by 20, and what it says in words."""

    name: str
    value: str
    points: str
    label: str


class Track:
    """Takes reports in as they come, oldest first."""

    def __init__(self, reports: Iterable[Progress] = ()) -> None:
        self._kept: list[Progress] = []
        self._stride = 1
        self._count = 0
        for report in reports:
            self.add(report)

    def add(self, report: Progress | None) -> None:
        """An older one than the newest changes nothing; a step back (a new attempt) starts anew."""
        newest = self._kept[-1] if self._kept else None
        if report is None or (newest is not None and report.time_us <= newest.time_us):
            return
        if newest is not None and report.step < newest.step:
            self._kept, self._stride, self._count = [], 1, 0
        # Every `stride`-th report stays, and the newest always.
        if self._count and (self._count - 1) % self._stride:
            self._kept.pop()
        self._kept.append(report)
        self._count += 1
        if len(self._kept) > MAX_REPORTS:
            self._stride *= 2
            self._kept = self._kept[::2]

    @property
    def metrics(self) -> list[str]:
        """By the newest report; the loss first."""
        names = list(self._kept[-1].metrics) if self._kept else []
        return sorted(names, key=lambda name: name != "loss")

    def sparklines(self, at_most: int = 3) -> list[Sparkline]:
        """Of the first metrics; one that has a single value, or none that is a number, has no picture."""
        return list(self._drawn(self.metrics[:at_most]))

    def _drawn(self, names: list[str]) -> Iterator[Sparkline]:
        for name in names:
            points = self._points(name)
            if len(points) < 2:
                continue
            first, last = describe.figure(points[0][1]), describe.figure(points[-1][1])
            yield Sparkline(name, last, _polyline(points), f"{name} went from {first} to {last}")

    def _points(self, name: str) -> list[tuple[float, float]]:
        found = [
            (report.time_us / 1e6, value)
            for report in self._kept
            if (value := report.metrics.get(name)) is not None and math.isfinite(value)
        ]
        every = -(-len(found) // MAX_POINTS) or 1
        thinned = found[::every]
        return thinned if not found or thinned[-1] == found[-1] else [*thinned, found[-1]]


def _polyline(points: list[tuple[float, float]]) -> str:
    low, high = min(value for _, value in points), max(value for _, value in points)
    begin, end = points[0][0], points[-1][0]
    drawn = (
        (
            _EDGE + (_WIDTH - 2 * _EDGE) * (at - begin) / (end - begin),
            _EDGE + (_HEIGHT - 2 * _EDGE) * ((high - value) / (high - low) if high > low else 0.5),
        )
        for at, value in points
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
