"""Loading what can be loaded: one name that cannot be made here (its module is missing, its class has changed) must not
take the others with it, although all names stand in one pickle.

The quick way is tried first. Only when it fails is the pickle read again by the unpickler that the standard library has
in Python, with a stand-in put wherever a part cannot be made; a name is lost when a stand-in can be reached from it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from . import namespace, pickling


def load_each(data: Any, buffers: Iterable[Any] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """The names that can be made here, and for each of the others the reason.

    Raises CannotLoad when the pickle as a whole is cut off, damaged, or no dict of names.
    """
    buffers = list(buffers)
    try:
        return pickling.load(data, buffers), {}
    except pickling.CannotLoad as error:
        return _salvage(data, buffers, error)


def _salvage(
    data: Any, buffers: list[Any], first_error: pickling.CannotLoad
) -> tuple[dict[str, Any], dict[str, str]]:
    ns = namespace.current()
    before = frozenset(ns)
    reader = _Salvager(io.BytesIO(data), buffers=(pickling.writable(buffer) for buffer in buffers))
    try:
        loaded = reader.load()
    except Exception:
        raise first_error from None
    if not isinstance(loaded, dict):
        raise first_error
    reasons = {name: reader.reason_in(value, before) for name, value in loaded.items()}
    brought_along = [name for name in ns if name not in before and reader.reason_in(ns[name], before)]
    for name in brought_along:
        del ns[name]
    values = {name: value for name, value in loaded.items() if reasons[name] is None}
    return values, {name: reason for name, reason in reasons.items() if reason is not None}


class _Lost:
    """Stands for a part that could not be made; takes whatever the pickle goes on to do with it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __call__(self, *args: Any, **kwargs: Any) -> _Lost:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    def update(self, *items: Any) -> None:
        pass

    def add(self, item: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


_PythonUnpickler: Any = pickle._Unpickler


class _Salvager(_PythonUnpickler):  # type: ignore[misc]
    """The unpickler in Python, going on where a part cannot be made."""

    dispatch = dict(_PythonUnpickler.dispatch)

    def __init__(self, file: Any, *, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._damaged: dict[int, tuple[Any, str]] = {}  # kept alive, so that ids stay theirs

    def find_class(self, module: str, name: str) -> Any:
        try:
            return pickling.find_class(super().find_class, module, name)
        except pickling.CannotLoad as error:
            return _Lost(str(error))

    def _make(self, take: int, make: Callable[[], None]) -> None:
        """Run one step that takes `take` things off the stack and leaves one; if it fails, leave a stand-in."""
        depth = len(self.stack) - take
        inputs = self.stack[depth:]
        lost = next(filter(None, map(_first_lost, inputs)), None)
        try:
            make()
        except Exception as error:
            reason = lost.reason if lost else pickling.describe_load_error(error)
            del self.stack[depth:]
            self.stack.append(_Lost(reason))
            if inputs[0] in pickling.STATE_SETTERS:
                self._damage(inputs[1][0], reason)
        else:
            if lost is not None:  # the stand-in may be inside by now, out of sight
                self._damage(self.stack[-1], lost.reason)

    def _damage(self, obj: Any, reason: str) -> None:
        if obj is not None and not isinstance(obj, _Lost):
            self._damaged[id(obj)] = (obj, reason)

    def load_reduce(self) -> None:
        self._make(2, super().load_reduce)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_newobj(self) -> None:
        self._make(2, super().load_newobj)

    dispatch[pickle.NEWOBJ[0]] = load_newobj

    def load_newobj_ex(self) -> None:
        self._make(3, super().load_newobj_ex)

    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex

    def load_build(self) -> None:
        obj, state = self.stack[-2:]
        try:
            super().load_build()
        except Exception as error:
            lost = _first_lost(state)
            self._damage(obj, lost.reason if lost else pickling.describe_load_error(error))

    dispatch[pickle.BUILD[0]] = load_build

    def reason_in(self, value: Any, known: frozenset[str]) -> str | None:
        """Why `value` is not whole, or None: pickling it visits all that can be reached from it but what was `known` before."""
        if isinstance(value, _Lost):
            return value.reason
        try:
            _Visitor(self._damaged, known).dump(value)
        except _Found as found:
            return found.reason
        except Exception as error:  # cannot tell; a name that is not surely whole is not bound
            return f"it was loaded together with what cannot be made here, and cannot be checked: {error}"
        return None


def _first_lost(part: Any) -> _Lost | None:
    if isinstance(part, _Lost):
        return part
    members: Iterable[Any] = ()
    if isinstance(part, dict):
        members = part.values()
    elif isinstance(part, (tuple, list)):
        members = part
    return next((member for member in members if isinstance(member, _Lost)), None)


class _Found(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Visitor(pickling.Pickler):
    def __init__(self, damaged: dict[int, tuple[Any, str]], known: frozenset[str]) -> None:
        options = pickling.Options(namespace.current(), known)
        super().__init__(pickling.Nowhere(), lambda buffer: False, options)
        self._damaged = damaged

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Lost):
            raise _Found(obj.reason)
        entry = self._damaged.get(id(obj))
        if entry is not None:
            raise _Found(entry[1])
        return super().reducer_override(obj)
