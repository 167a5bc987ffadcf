"""Tracebacks as the cell's author wants to see them: without the frames of this package."""

from __future__ import annotations

import os
import types

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def trimmed(tb: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback without our frames, wherever they stand in it; it is changed in place, but for its head."""
    while tb is not None and _is_ours(tb):
        tb = tb.tb_next
    at = tb
    while at is not None:
        while at.tb_next is not None and _is_ours(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return tb


def trim(error: BaseException | None) -> None:
    """Trim the tracebacks of an exception, of those that led to it and of those that it groups, in place."""
    todo, seen = [error], set()
    while todo:
        error = todo.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        error.__traceback__ = trimmed(error.__traceback__)
        todo += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def _is_ours(tb: types.TracebackType) -> bool:
    return tb.tb_frame.f_code.co_filename.startswith(_OURS)
