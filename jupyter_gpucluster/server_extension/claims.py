"""Who draws a cell: of all pages that show it, one (DESIGN section 4, *One owner of a cell's output*).

A `kernel` claim is a fact: a live kernel writes the cell's outputs into that page, and real-time collaboration may show them
in several. A `log` claim asks to draw the cell from the job's log; it is granted when no kernel claims the cell and no page
asked earlier. Who is not granted waits in line.

A page is known by an id of its own. One whose connection broke keeps what it had for `GRACE_S`; when it is back by then and
claims again, nothing has changed for the others. One that was closed or reloaded says so, and has left at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .messages import Claimed, Role

#: A page whose connection broke keeps its claims for so long, and after it is back has so long to claim again.
GRACE_S = 3.0


class Timer(Protocol):
    def cancel(self) -> object: ...


class _Cell:
    """The claims to one cell."""

    def __init__(self) -> None:
        self.kernels: dict[str, None] = {}  # pages into which a kernel writes
        self.line: dict[str, None] = {}  # pages that would draw from the log, who asked first in front
        self.told: dict[str, tuple[bool, Role]] = {}

    @property
    def pages(self) -> list[str]:
        return [*self.kernels, *self.line]

    def standing(self, page: str) -> tuple[bool, Role]:
        """(granted, who holds the cell) as the page's claim stands now."""
        if self.kernels:
            return page in self.kernels, "kernel"
        return page == next(iter(self.line)), "log"


class Claims:
    """All claims to cells on one server.

    `tell` gives a page word of one of its claims; `later` calls a function after some seconds, unless it is cancelled.
    """

    def __init__(
        self,
        *,
        tell: Callable[[str, Claimed], None],
        later: Callable[[float, Callable[[], None]], Timer],
        grace_s: float = GRACE_S,
    ) -> None:
        self._tell = tell
        self._later = later
        self._grace_s = grace_s
        self._cells: dict[str, _Cell] = {}
        self._keys: dict[str, set[str]] = {}  # by page
        self._unconfirmed: dict[
            str, tuple[set[str], Timer]
        ] = {}  # by page: what it had before its connection broke

    def connected(self, page: str) -> None:
        """The page has a (new) connection: it is to claim again what it still wants of what it had."""
        self._await_claims(page)

    def disconnected(self, page: str) -> None:
        """The page's connection broke; it may come back."""
        self._await_claims(page)

    def left(self, page: str) -> None:
        """The page is closed or was reloaded: it will not come back."""
        self._forget_timer(page)
        for key in sorted(self._keys.get(page, ())):
            self.release(page, key)

    def claim(self, page: str, key: str, role: Role) -> None:
        """The page claims a cell, or changes its role. It is told how its claim stands, in any case."""
        self._confirm(page, key)
        cell = self._cells.setdefault(key, _Cell())
        wanted, other = (cell.kernels, cell.line) if role == "kernel" else (cell.line, cell.kernels)
        other.pop(page, None)
        wanted.setdefault(page)
        self._keys.setdefault(page, set()).add(key)
        cell.told.pop(page, None)
        self._tell_changes(key, cell)

    def release(self, page: str, key: str) -> None:
        """The page gives its claim up; one that it has not got is none."""
        self._confirm(page, key)
        keys = self._keys.get(page, set())
        if key not in keys:
            return
        keys.discard(key)
        if not keys:
            del self._keys[page]
        cell = self._cells[key]
        for pages in (cell.kernels, cell.line, cell.told):
            pages.pop(page, None)
        if cell.pages:
            self._tell_changes(key, cell)
        else:
            del self._cells[key]

    def granted(self, key: str) -> list[str]:
        """The pages that draw this cell."""
        cell = self._cells.get(key)
        return [] if cell is None else [page for page in cell.pages if cell.standing(page)[0]]

    def _tell_changes(self, key: str, cell: _Cell) -> None:
        """Those that lose the cell are told before those that get it."""
        changed = {page: cell.standing(page) for page in cell.pages}
        changed = {page: standing for page, standing in changed.items() if cell.told.get(page) != standing}
        cell.told.update(changed)
        for page, (granted, holder) in sorted(changed.items(), key=lambda item: item[1][0]):
            self._tell(page, Claimed(key=key, granted=granted, holder=holder))

    # ---- pages that come and go

    def _await_claims(self, page: str) -> None:
        """Give up, after the grace, what the page has and does not claim again."""
        self._forget_timer(page)
        keys = self._keys.get(page)
        if keys:
            timer = self._later(self._grace_s, lambda: self._lapse(page))
            self._unconfirmed[page] = (set(keys), timer)

    def _lapse(self, page: str) -> None:
        keys, _ = self._unconfirmed.pop(page)
        for key in sorted(keys):
            self.release(page, key)

    def _confirm(self, page: str, key: str) -> None:
        if page not in self._unconfirmed:
            return
        keys, _ = self._unconfirmed[page]
        keys.discard(key)
        if not keys:
            self._forget_timer(page)

    def _forget_timer(self, page: str) -> None:
        if page in self._unconfirmed:
            self._unconfirmed.pop(page)[1].cancel()
