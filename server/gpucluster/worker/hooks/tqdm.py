"""A tqdm bar in a job becomes its progress by itself: the outermost one, with the numbers of its postfix as metrics."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

from .. import reporting
from ..asking import stand_in


def hook_std(module: ModuleType) -> None:
    """Watch `tqdm.std.tqdm`: what it displays (at most ten times a second, and at its end) is reported."""
    bar_class = module.tqdm
    display, set_postfix = bar_class.display, bar_class.set_postfix

    @functools.wraps(display)
    def watched_display(self: Any, *args: Any, **kwargs: Any) -> Any:
        _report(self)
        return display(self, *args, **kwargs)

    @functools.wraps(set_postfix)
    def watched_set_postfix(self: Any, ordered_dict: Any = None, refresh: bool = True, **kwargs: Any) -> Any:
        self.gpucluster_metrics = _numbers({**(ordered_dict or {}), **kwargs})
        return set_postfix(self, ordered_dict, refresh, **kwargs)

    bar_class.display = watched_display
    bar_class.set_postfix = watched_set_postfix


def hook_notebook(module: ModuleType) -> None:
    """A bar made of widgets needs a kernel behind it, which a job has not: the text bar stands in for it."""
    from tqdm import std

    class tqdm_notebook(std.tqdm):  # type: ignore[misc]
        """The text bar, called as the notebook's."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("display", None)
            super().__init__(*args, **kwargs)

    def tnrange(*args: Any, **kwargs: Any) -> Any:
        return tqdm_notebook(range(*args), **kwargs)

    # A cell that imports them gives the notebook's own back.
    stand_in(tqdm_notebook, module.__name__, "tqdm_notebook")
    stand_in(tnrange, module.__name__, "tnrange")
    module.tqdm_notebook = module.tqdm = tqdm_notebook  # type: ignore[attr-defined]
    module.tnrange = module.trange = tnrange  # type: ignore[attr-defined]


def _report(bar: Any) -> None:
    if getattr(bar, "pos", 0) != 0 or not math.isfinite(bar.n):
        return
    total = bar.total if bar.total and math.isfinite(bar.total) else None
    description = (bar.desc or "").strip().rstrip(":") or None
    reporting.observe(
        "tqdm",
        max(int(bar.n), 0),
        None if total is None else int(total),
        getattr(bar, "gpucluster_metrics", {}),
        description[:200] if description else None,
    )


def _numbers(postfix: dict[str, Any]) -> dict[str, float]:
    """Those values that are numbers, written out (`f"{loss:.3f}"`) or not. At most 20: the bar is one line, too."""
    metrics: dict[str, float] = {}
    for name, value in list(postfix.items())[:20]:
        try:
            metrics[str(name)[:60]] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # a text for the eye
            continue
    return metrics
