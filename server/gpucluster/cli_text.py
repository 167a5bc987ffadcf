"""Words and numbers for people: times with their zone, durations, sizes, bars, and tables that fit the terminal."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from .model.plain import plain

MICROSECONDS = 1_000_000


def local_time(time_us: int, now_us: int | None = None) -> str:
    """Such as "2026-11-30 14:05 CET"; today's times, with `now_us` given, as "14:05:09 CET"."""
    moment = datetime.datetime.fromtimestamp(time_us / MICROSECONDS).astimezone()
    if now_us is not None:
        today = datetime.datetime.fromtimestamp(now_us / MICROSECONDS).astimezone().date()
        if moment.date() == today:
            return moment.strftime("%H:%M:%S %Z")
    return moment.strftime("%Y-%m-%d %H:%M %Z")


def size_text(size_bytes: float) -> str:
    """Such as "80 GiB", "1.5 TiB", "512 B"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size_bytes) < 1024 or unit == "TiB":
            return f"{size_bytes:.3g} {unit}" if size_bytes < 1000 else f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    raise AssertionError("unreachable")


def number_text(value: float) -> str:
    """Without a needless ".0"."""
    return f"{value:g}"


def plural(count: float, word: str) -> str:
    return f"{count:g} {word}" if count == 1 else f"{count:g} {word}s"


def listed(words: Iterable[str]) -> str:
    """Joins: "a", "a and b", "a, b and c"."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@dataclasses.dataclass(frozen=True)
class Glyphs:
    """What is drawn with; a terminal that cannot show it gets plain ASCII."""

    full: str = "█"
    over: str = "▓"
    promised: str = "░"
    lendable: str = "·"
    free: str = "·"
    branch: str = "├─"
    last: str = "└─"
    down: str = "│ "
    open: str = "["
    close: str = "]"
    dash: str = "—"
    dot: str = " · "
    times: str = "×"


UNICODE = Glyphs()
ASCII = Glyphs(
    full="#", over="+", promised="-", lendable=".", free=".", branch="|-", last="`-", down="| ", dash="-",
    dot=" - ", times="x",
)  # fmt: skip


def glyphs_for(encoding: str | None) -> Glyphs:
    """The full set where the encoding has it."""
    try:
        "".join(dataclasses.astuple(UNICODE)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


@dataclasses.dataclass(frozen=True)
class Column:
    """One column. When the table is too wide, columns of the lowest `keep` go first, then `stretch` ones are cut."""

    title: str
    cells: Sequence[Text | str]
    keep: int = 10
    right: bool = False
    stretch: bool = False

    @property
    def width(self) -> int:
        return max([cell_len(self.title), *(cell_len(_plain(cell)) for cell in self.cells)])

    @property
    def is_empty(self) -> bool:
        return not any(_plain(cell).strip() for cell in self.cells)


def _plain(cell: Text | str) -> str:
    return cell.plain if isinstance(cell, Text) else plain(cell)


GAP = 2
#: A stretching column is not cut below this; rather another column goes.
LEAST_STRETCH = 16


def fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that find place in `width`, in their order; those without content are left out."""
    kept = [column for column in columns if column.keep >= 10 or not column.is_empty]
    while _least_width(kept) > width:
        droppable = [column for column in kept if column.keep < 10]
        if not droppable:
            break
        kept.remove(min(droppable, key=lambda column: column.keep))
    return kept


def _least_width(columns: Sequence[Column]) -> int:
    widths = (min(column.width, LEAST_STRETCH) if column.stretch else column.width for column in columns)
    return sum(widths) + GAP * max(len(columns) - 1, 0)


def table(columns: Sequence[Column], width: int) -> Table:
    """A table without lines, cut to `width` by dropping and cutting columns, never by wrapping."""
    kept = fitted(columns, width)
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column, column_width in zip(kept, _widths(kept, width), strict=True):
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=column_width,
        )
    for row in zip(*(column.cells for column in kept), strict=True):
        drawn.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    return drawn


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """What is too much is taken from the stretching columns, each time from the widest."""
    widths = [column.width for column in columns]
    excess = sum(widths) + GAP * max(len(widths) - 1, 0) - width
    for _ in range(max(excess, 0)):
        candidates = [
            place for place, column in enumerate(columns) if column.stretch and widths[place] > LEAST_STRETCH
        ]
        if not candidates:
            break
        widths[max(candidates, key=lambda place: widths[place])] -= 1
    return widths


def facts(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Name and value, one pair a line; values wrap."""
    drawn = Table.grid(padding=(0, GAP, 0, 0))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return drawn
