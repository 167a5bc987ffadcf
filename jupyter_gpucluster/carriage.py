"""Lines that are written over: a carriage return takes a stream back to the beginning of its line, as progress bars do.

What was written over is not shown, so it neither counts against what a notebook takes nor need be sent to it.
"""

from __future__ import annotations

import re

#: Colours and the like: no width.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_ENDS_STYLED = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m(?!.*\x1b\[0?m)", re.DOTALL)


class VisibleCounter:
    """Counts the characters of a stream that stay visible."""

    def __init__(self) -> None:
        self._width = 0  # of the line as it is
        self._column = 0  # where the next character goes

    def add(self, text: str) -> int:
        """How many more characters are visible after `text`."""
        if "\r" not in text and self._column == self._width:
            self._width = self._column = len(text.rpartition("\n")[2]) + (0 if "\n" in text else self._width)
            return len(text)
        more = text.count("\n")
        for number, line in enumerate(text.split("\n")):
            if number:
                self._width = self._column = 0
            before = self._width
            first, *later = line.split("\r")
            ends = [self._column + len(first), *map(len, later)]
            self._width, self._column = max(before, *ends), ends[-1]
            more += self._width - before
        return more


def collapsed(text: str) -> str:
    """The text without what is written over within it: it looks the same wherever a carriage return is understood."""
    if text.count("\r") < 2:
        return text
    return "\n".join(map(_collapsed_line, text.split("\n")))


def _collapsed_line(line: str) -> str:
    """A piece goes when later ones cover it: in characters, as JupyterLab overwrites, and in columns, as a terminal does."""
    if line.count("\r") < 2:
        return line
    first, *later = line.split("\r")
    kept: list[str] = []
    characters = columns = -1
    for piece in reversed(later):
        width = _columns(piece)
        if width is None:  # what comes before it may stand elsewhere
            kept.append(piece)
            characters = columns = -1
        elif len(piece) > characters or width > columns or _ENDS_STYLED.search(piece):
            kept.append(piece)
            characters, columns = max(characters, len(piece)), max(columns, width)
    return "\r".join([first, *reversed(kept)])


def _columns(piece: str) -> int | None:
    """Columns that it takes; None when it moves in other ways than to the right."""
    plain = _STYLE.sub("", piece)
    return None if "\x1b" in plain or "\b" in plain else len(plain)
