"""The notebook's own functions behind a value, and what such a function carries besides its code.

What goes by value goes with its closure, its defaults and its attributes; names and credentials are looked for there, too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.worker import pickling
from gpucluster.worker.namespace import global_names

_LRU_CACHE = type(functools.lru_cache(maxsize=None)(len))


def is_from(ns: Mapping[str, Any], value: Any) -> bool:
    """Whether a function or class was defined in the notebook."""
    if isinstance(value, types.FunctionType):
        return value.__globals__ is ns
    return isinstance(value, type) and value.__module__ == "__main__"


def functions_behind(ns: Mapping[str, Any], value: Any) -> Iterator[types.FunctionType]:
    """Functions that go by value with `value`: itself, the methods of a class or of an object's class, and what these hold."""
    seen: set[int] = set()

    def look(value: Any) -> Iterator[types.FunctionType]:
        if id(value) in seen:
            return
        seen.add(id(value))
        for function in _functions_of(value):
            if _goes_by_value(ns, function) and id(function.__code__) not in seen:
                seen.add(id(function.__code__))
                yield function
                for held in held_by(function).values():
                    yield from look(held)

    yield from look(value)


def _goes_by_value(ns: Mapping[str, Any], function: types.FunctionType) -> bool:
    return function.__globals__ is ns or not pickling.is_importable(function)


def held_by(function: types.FunctionType) -> dict[str, Any]:
    """Values in the closure, the defaults and the attributes of a function, by their names."""
    held = dict(function.__dict__)
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # nothing assigned yet
            continue
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    held.update(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    held.update(function.__kwdefaults__ or {})
    return held


def used_by(function: types.FunctionType) -> dict[str, Any]:
    """Globals that a function reads, as far as they are there."""
    space = function.__globals__
    return {name: space[name] for name in global_names(function.__code__).reads if name in space}


def _functions_of(value: Any) -> Iterator[types.FunctionType]:
    """Functions that a value is, wraps, or has in its class."""
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, types.MethodType):
        yield from _functions_of(value.__func__)
    elif isinstance(value, _LRU_CACHE):
        yield from _functions_of(value.__wrapped__)
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _functions_of(part)
    else:
        cls = value if isinstance(value, type) else type(value)
        for base in cls.__mro__:
            if base.__module__ == "__main__":
                for attribute in base.__dict__.values():
                    yield from _functions_in(attribute)


def _functions_in(attribute: Any) -> Iterator[types.FunctionType]:
    """Functions in the attribute of a class."""
    wrapped: tuple[Any, ...] = (attribute,)
    if isinstance(attribute, (classmethod, staticmethod)):
        wrapped = (attribute.__func__,)
    elif isinstance(attribute, property):
        wrapped = (attribute.fget, attribute.fset, attribute.fdel)
    elif isinstance(attribute, functools.cached_property):
        wrapped = (attribute.func,)
    elif isinstance(attribute, _LRU_CACHE):
        wrapped = (attribute.__wrapped__,)
    for function in wrapped:
        if isinstance(function, types.FunctionType):
            yield function
