"""Credentials in a call that is to be submitted: in its arguments, and in what its function uses, holds or closes over.

The checks are those of a cell. `allowed` are names that the caller has named himself.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from gpucluster.api.errors import InvalidRequest

from .code import functions_behind, held_by, used_by
from .credentials import credential_in


def arguments_by_name(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call under the names of their parameters, as far as those can be told."""
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"args[{index}]": value for index, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update((f"{name}[{index}]", each) for index, each in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def refuse_credentials_in_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    ns: Mapping[str, Any],
    allowed: Collection[str] = (),
) -> None:
    """Raises InvalidRequest, whose field is the name in question."""
    found = {**_kept_in(function), **arguments_by_name(function, args, kwargs)}
    refuse_credentials(found.items(), allowed)
    seen: set[int] = set()
    waiting = [function, *found.values()]
    while waiting:
        for each in functions_behind(ns, waiting.pop()):
            if id(each) in seen:
                continue
            seen.add(id(each))
            used = used_by(each)
            refuse_credentials([*held_by(each).items(), *used.items()], allowed)
            waiting.extend(used.values())


def _kept_in(function: Callable[..., Any]) -> dict[str, Any]:
    """Values that a callable brings along by itself: the object of a method, arguments that a partial has already."""
    if isinstance(function, functools.partial):
        given = arguments_by_name(function.func, function.args, function.keywords)
        return {**_kept_in(function.func), **given}
    owner = getattr(function, "__self__", None)
    if owner is None and not isinstance(function, (types.FunctionType, type)):
        owner = function
    return {} if owner is None else {type(owner).__name__: owner}


def refuse_credentials(named: Iterable[tuple[str, Any]], allowed: Collection[str] = ()) -> None:
    """Raises InvalidRequest for the first of these that looks like a credential and is not allowed by name."""
    for name, value in named:
        reason = None if name in allowed else credential_in(name, value)
        if reason is not None:
            raise InvalidRequest(
                name,
                f"looks like a credential ({reason}) and would be stored with the job",
                f"Read it inside the function, hand it over with env={{…}}, or send it all the same with "
                f"include=[{name!r}].",
            )
