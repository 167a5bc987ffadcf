"""The one namespace in which a cell lives: the notebook's user namespace in the kernel, the worker's in a task.

Functions that cross the border get it as their globals (pickling.py), so that a redefinition in the cell is seen by all
of them. What a function uses of it is read from its code here, for both sides.
"""

from __future__ import annotations

import dis
import sys
import types
import weakref
from typing import Any, NamedTuple

_bound: dict[str, Any] | None = None


def bind(ns: dict[str, Any]) -> None:
    """Make `ns` the namespace of this process. The kernel binds its user namespace, the worker that of its shell."""
    global _bound
    _bound = ns


def current() -> dict[str, Any]:
    """The namespace bound last; before any, that of `__main__`."""
    return sys.modules["__main__"].__dict__ if _bound is None else _bound


class GlobalNames(NamedTuple):
    """Global names that a code object and the code nested in it may read, and may assign or delete, in order of use."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]


_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_known_codes: weakref.WeakKeyDictionary[types.CodeType, GlobalNames] = weakref.WeakKeyDictionary()


def global_names(code: types.CodeType) -> GlobalNames:
    """What `code` uses of its globals. A class body reads globals too, as far as it has not bound the name itself."""
    names = _known_codes.get(code)
    if names is None:
        names = _known_codes[code] = _find_global_names(code)
    return names


def _find_global_names(code: types.CodeType) -> GlobalNames:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    bound_by_class = set()
    for instruction in dis.get_instructions(code) if code.co_names else ():
        operation, name = instruction.opname, instruction.argval
        if operation in _READS and name not in bound_by_class:
            reads[name] = None
        elif operation in _WRITES:
            writes[name] = None
        elif operation == "STORE_NAME":
            bound_by_class.add(name)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            nested = global_names(constant)
            reads.update(dict.fromkeys(nested.reads))
            writes.update(dict.fromkeys(nested.writes))
    return GlobalNames(tuple(reads), tuple(writes))
