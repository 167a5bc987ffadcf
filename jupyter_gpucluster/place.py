"""Where in the notebook something is, in the words that IPython uses: "Cell In[5], line 3"."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line of the user's code. `function` is None at the top of a cell or script."""

    label: str
    line: int
    function: str | None

    def __str__(self) -> str:
        return f"{self.label}, line {self.line}"


def running_cell(shell: Any) -> Place | None:
    """The line of the running cell from which we were called, if a cell runs."""
    frame = sys._getframe(1)
    while frame is not None:
        label = _cell_label(shell, frame.f_code.co_filename)
        if label is not None:
            return Place(label, frame.f_lineno, _function(frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return None


def raised_in(traceback: TracebackType | None, shell: Any) -> Place | None:
    """The innermost line of the notebook's own code that an exception has passed through."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        label = _cell_label(shell, code.co_filename)
        if label is not None:
            found = Place(label, traceback.tb_lineno, _function(code.co_name))
        traceback = traceback.tb_next
    return found


def _function(name: str) -> str | None:
    return None if name.startswith("<") else name


def _cell_label(shell: Any, filename: str) -> str | None:
    named = shell.compile.format_code_name(filename) if shell is not None else None
    return None if named is None else " ".join(named)
