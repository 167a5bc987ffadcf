"""Progress bars of tqdm on their way to another process: how far they came. What they draw on stays where it is."""

from __future__ import annotations

import sys
from typing import Any


def is_bar_type(kind: type) -> bool:
    """Whether objects of this type are bars of tqdm, which is there when one is."""
    bar_class = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return isinstance(bar_class, type) and issubclass(kind, bar_class)


def reduce_bar(bar: Any) -> Any:
    return _make_bar, (type(bar), bar.n, bar.total, getattr(bar, "desc", None))


def _make_bar(bar_class: Any, n: Any, total: Any, description: str | None) -> Any:
    """A bar that has ended, and draws nothing."""
    bar = bar_class(total=total, initial=n, disable=True)
    bar.desc = description
    return bar
