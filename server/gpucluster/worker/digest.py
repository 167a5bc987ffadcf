"""Was an input changed in place? A digest of it before the cell and one after tell (DESIGN section 4).

The digest is a hash over the object's pickle as it streams by; nothing of it is kept. It has to be the same for an
object that nobody changed, so what only looks like a change is left out: how pandas lays out the columns of a frame,
results that `functools.cached_property` keeps, which modules happen to be imported, classes (compared by identity, unless
the class itself is asked about). Digests compare within one process only.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import pickle
import sys
import types
from typing import Any

from . import namespace, pickling, tensors

#: Arrays without a contiguous buffer are hashed in pieces of about this size.
_PIECE_BYTES = 1 << 20


_incomparable = itertools.count()


class _OverBudget(Exception):
    pass


def digest(obj: Any, budget_bytes: int) -> str | None:
    """A digest of all that can be reached from `obj`, or None when that is more than `budget_bytes`.

    An object that cannot be pickled gets a digest that equals no other: what cannot be compared counts as changed.
    """
    size = obj.nbytes if hasattr(type(obj), "nbytes") else 0
    if isinstance(size, int) and size > budget_bytes:
        return None
    sink = _Sink(budget_bytes)
    try:
        _DigestPickler(sink, obj).dump(obj)
    except _OverBudget:
        return None
    except Exception as error:
        return f"{next(_incomparable)}: {type(error).__name__}: {error}"
    return sink.hexdigest()


class _Sink:
    """Hashes what is written to it, and stops before it would pass the budget."""

    def __init__(self, budget_bytes: int) -> None:
        self._hash = hashlib.sha256()
        self._left = budget_bytes

    def write(self, data: Any) -> int:
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self._left -= size
        if self._left < 0:
            raise _OverBudget
        self._hash.update(data)
        return size

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Out of band, into the hash."""
        view = buffer.raw()
        self._hash.update(view.nbytes.to_bytes(8, "little"))
        self.write(view)
        return False

    def reserve(self, size: int) -> None:
        if size > self._left:
            raise _OverBudget

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class _DigestPickler(pickling.Pickler):
    """A pickler whose output is only hashed: it may reduce an object to anything that tells its content."""

    def __init__(self, sink: _Sink, root: Any) -> None:
        super().__init__(sink, sink.take_buffer, pickling.Options(namespace.current()))
        self._sink = sink
        self._root = root
        numpy = sys.modules.get("numpy")
        pandas = sys.modules.get("pandas")
        self._array_type = getattr(numpy, "ndarray", None)
        self._frame_type = getattr(pandas, "DataFrame", None)

    def _handler_for(self, kind: type) -> Any:
        if issubclass(kind, type):
            return self._reduce_class_for_digest
        if kind is types.FunctionType:
            return self._reduce_function_for_digest
        if kind is types.ModuleType:
            return lambda module: (_content, (module.__name__, id(module)))
        if kind is self._array_type:
            return self._reduce_array
        if kind is self._frame_type:
            return _reduce_frame
        if tensors.is_tensor_type(kind):
            return self._reduce_tensor_for_digest
        if kind.__module__.startswith("sklearn.neighbors.") and hasattr(kind, "get_arrays"):
            return lambda tree: (
                _content,
                tree.get_arrays(),
            )  # its state counts the questions that it was asked
        cached = _cached_properties(kind)
        if cached:
            return lambda obj: _without(obj, cached)
        return super()._handler_for(kind)

    def _reduce_class_for_digest(self, cls: type) -> Any:
        if cls is self._root or pickling.is_importable(cls):
            return super()._reduce_class(cls)
        return _content, (cls.__qualname__, id(cls))

    def _reduce_function_for_digest(self, func: types.FunctionType) -> Any:
        """What can change about it; not its globals, which are inputs of their own."""
        if pickling.is_importable(func):
            return NotImplemented
        parts = (func.__defaults__, func.__kwdefaults__, func.__closure__, func.__dict__)
        return _content, (id(func.__code__), *parts)

    def _reduce_array(self, array: Any) -> Any:
        if array.dtype.hasobject or array.flags.forc:
            return NotImplemented
        self._sink.reserve(array.nbytes)
        numpy = sys.modules["numpy"]
        pieces = numpy.nditer(
            array,
            flags=["external_loop", "buffered", "zerosize_ok"],
            order="C",
            buffersize=max(1, _PIECE_BYTES // max(1, array.itemsize)),
        )
        for piece in pieces:
            self._sink.write(memoryview(numpy.ascontiguousarray(piece)).cast("B"))
        return _content, (array.shape, array.dtype.str)

    def _reduce_tensor_for_digest(self, tensor: Any) -> Any:
        """One tensor at a time is looked at on the CPU; its gradient is not part of it."""
        self._sink.reserve(tensor.nelement() * tensor.element_size())
        content = tensors.content_of(tensor)
        if content is NotImplemented:
            return super()._reduce_tensor(tensor)
        self._sink.write(memoryview(content))
        about = (tuple(tensor.shape), str(tensor.dtype), str(tensor.device), tensor.requires_grad)
        return _content, (type(tensor).__qualname__, *about)


def _content(*parts: Any) -> None:
    """Stands in a digested pickle for "an object of this content"; never called."""


def _reduce_frame(frame: Any) -> Any:
    """Column by column: reading a frame may join or split the blocks in which it keeps them."""
    columns = [frame.iloc[:, index].array for index in range(frame.shape[1])]
    return _content, (frame.columns, frame.index, [_plain_array(column) for column in columns], frame.attrs)


def _plain_array(column: Any) -> Any:
    """The NumPy array behind a column's array, where there is one and nothing more to it."""
    return column.to_numpy(copy=False) if type(column).__name__ == "NumpyExtensionArray" else column


def _cached_properties(kind: type) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        for name, attribute in base.__dict__.items()
        if isinstance(attribute, functools.cached_property)
    )


def _without(obj: Any, names: frozenset[str]) -> Any:
    reduced = obj.__reduce_ex__(5)
    if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
        return reduced
    state = {name: value for name, value in reduced[2].items() if name not in names}
    return (*reduced[:2], state or None, *reduced[3:])
