"""What asks its user, in a job: `input()`, `getpass()`, `breakpoint()` refuse, in one sentence."""

from __future__ import annotations

import sys
from typing import Any

NO_INPUT = (
    "a job has nobody to ask: input() and getpass() work in the notebook only. "
    "Ask before the submitted cell, and let the cell use the answer."
)
_ASKING = (("builtins", "input"), ("getpass", "getpass"), ("sys", "breakpointhook"))


def refuse(error: type[Exception]) -> None:
    """From now on these raise `error`. A cell that imports one of them gives the notebook's own back, by its name."""
    for module, name in _ASKING:
        setattr(sys.modules[module], name, stand_in(_refusal(error), module, name))


def _refusal(error: type[Exception]) -> Any:
    def refusal(*_args: Any, **_kwargs: Any) -> Any:
        raise error(NO_INPUT)

    return refusal


def stand_in(made: Any, module: str, name: str) -> Any:
    """Give a function or class of ours the name of what it stands in for: under that name it is pickled and shown."""
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    return made
