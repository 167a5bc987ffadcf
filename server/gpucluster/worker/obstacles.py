"""What cannot travel to another process, how to say so, and what to do instead (DESIGN section 4)."""

from __future__ import annotations

import _thread
import contextvars
import io
import mmap
import re
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import namespace

#: Says in words what one object is and what to do about it.
Obstacle = Callable[[Any], str]


class CannotTravel(Exception):
    """Raised in the middle of pickling by the object that stands in the way."""

    def __init__(self, offender: Any, reason: str) -> None:
        super().__init__(reason)
        self.offender = offender
        self.reason = reason


def _is(what: str, what_to_do: str) -> Obstacle:
    return lambda obj: f"{what} cannot travel to another process; {what_to_do}"


def _file(obj: Any) -> str:
    name = getattr(obj, "name", None)
    called = f" ({name})" if isinstance(name, str) else ""
    return f"an open file{called} cannot travel to another process; open it inside the cell"


def _iterator(what: str) -> Obstacle:
    return _is(what, "make it inside the cell, or send list(…) of it")


_IN_CELL = "make it inside the cell"
_LOCK = _is("a lock", _IN_CELL + ", or leave it out of the object by __getstate__")
_CONNECTION = _is("an open connection to a database", "connect inside the cell")
_CUDA = _is("a handle of the GPU driver", _IN_CELL)
_EXECUTOR = _is("a pool of workers", _IN_CELL)
_THREAD = _is("a thread", "start it inside the cell")
_LOOP = _is("something of a running event loop", "start it inside the cell")

_BY_TYPE: dict[type, Obstacle] = {
    io.TextIOWrapper: _file,
    io.BufferedReader: _file,
    io.BufferedWriter: _file,
    io.BufferedRandom: _file,
    io.FileIO: _file,
    mmap.mmap: _is("a memory-mapped file", "map it inside the cell"),
    _thread.LockType: _LOCK,
    type(threading.RLock()): _LOCK,
    threading.Thread: _THREAD,
    threading.local: _is("thread-local data", _IN_CELL),
    types.GeneratorType: _iterator("a generator"),
    types.AsyncGeneratorType: _iterator("an asynchronous generator"),
    types.CoroutineType: _is("a coroutine", "call the async function inside the cell"),
    types.FrameType: _is("a stack frame", "leave it out"),
    types.TracebackType: _is("a traceback", "send its text: traceback.format_exception(…)"),
    contextvars.Context: _is("a context of context variables", _IN_CELL),
    contextvars.ContextVar: _is("a context variable", _IN_CELL),
    weakref.ref: _is("a weak reference", "send the object itself"),
}  # fmt: skip

#: (package, class name or None for any of it) of objects that this module does not want to import.
_BY_NAME: tuple[tuple[str, str | None, Obstacle], ...] = (
    ("socket", "socket", _is("a network connection", "connect inside the cell")),
    ("subprocess", "Popen", _is("a running process", "start it inside the cell")),
    ("concurrent.futures", "Executor", _EXECUTOR),
    ("selectors", "BaseSelector", _LOOP),
    ("asyncio", "AbstractEventLoop", _LOOP),
    ("asyncio", "Future", _LOOP),
    ("_asyncio", None, _LOOP),
    ("sqlite3", "Connection", _CONNECTION),
    ("sqlite3", "Cursor", _CONNECTION),
    ("sqlalchemy.engine", "Engine", _CONNECTION),
    ("sqlalchemy.engine", "Connection", _CONNECTION),
    ("sqlalchemy.orm", "Session", _CONNECTION),
    ("psycopg", "Connection", _CONNECTION),
    ("psycopg2", "connection", _CONNECTION),
    ("pymysql", "Connection", _CONNECTION),
    ("duckdb", "DuckDBPyConnection", _CONNECTION),
    ("_duckdb", "DuckDBPyConnection", _CONNECTION),
    ("pymongo", "MongoClient", _CONNECTION),
    ("redis", "Redis", _CONNECTION),
    ("multiprocessing", "Pool", _EXECUTOR),
    ("multiprocessing", "BaseProcess", _is("a process", "start it inside the cell")),
    ("multiprocessing", "Queue", _is("a queue between processes", _IN_CELL)),
    ("torch.cuda", "Stream", _CUDA),
    ("torch.cuda", "Event", _CUDA),
    ("torch.cuda", "CUDAGraph", _CUDA),
    ("torch", "Stream", _CUDA),
    ("torch", "Event", _CUDA),
    ("pycuda", None, _CUDA),
    ("cupy.cuda", None, _CUDA),
    ("h5py", "File", _file),
    ("tempfile", "_TemporaryFileWrapper", _file),
    ("IPython", "InteractiveShell", _is("the notebook's own shell", "call get_ipython() inside the cell")),
    ("ipykernel", None, _is("a part of the notebook's kernel", "leave it out")),
)


def obstacle_of(kind: type) -> Obstacle | None:
    """What stands in the way of every object of this type, or None; a class with a way to pickle of its own has none."""
    for base in kind.__mro__[:-1]:
        found = _BY_TYPE.get(base) or _named(base)
        if found is not None:
            return found
        if (
            "__reduce__" in base.__dict__
            or "__reduce_ex__" in base.__dict__
            or "__getstate__" in base.__dict__
        ):
            return None
    return None


def _named(base: type) -> Obstacle | None:
    module = base.__module__
    for package, name, obstacle in _BY_NAME:
        if (name is None or base.__name__ == name) and (
            module == package or module.startswith(package + ".")
        ):
            return obstacle
    return None


# ---- saying it


def reason_for(error: BaseException, name: str | None, value: Any) -> str:
    """One sentence: where in the value of `name` the obstacle stands, what it is, what to do."""
    if isinstance(error, CannotTravel):
        where = _where(name, value, lambda obj: obj is error.offender)
        return f"{where}: {error.reason}" if where else error.reason
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return "it is nested too deeply to be pickled; send a flatter form of it"
    kind = re.search(r"cannot pickle '([^']+)' object", str(error))
    if kind is None:
        return f"it cannot be pickled ({type(error).__name__}: {error}); {_IN_CELL}"
    where = _where(name, value, lambda obj: _type_name(obj) in (kind[1], kind[1].rpartition(".")[2]))
    text = f"an object of type {kind[1]} cannot travel to another process; {_IN_CELL}"
    return f"{where}: {text}" if where else text


def _type_name(obj: Any) -> str:
    return type(obj).__name__


def _where(name: str | None, value: Any, is_it: Callable[[Any], bool]) -> str | None:
    """The path from the name to what stands in the way, such as `cfg["log"]`; None for the value itself."""
    if name is None or is_it(value):
        return None
    seen = {id(value)}
    todo = deque([(name, value)])
    for _ in range(20_000):
        if not todo:
            break
        path, holder = todo.popleft()
        for step, part in _parts(holder):
            if is_it(part):
                return path + step
            if id(part) not in seen:
                seen.add(id(part))
                todo.append((path + step, part))
    return None


def _parts(holder: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(holder, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(holder.items())[:1000])
    elif isinstance(holder, (list, tuple)):
        yield from ((f"[{index}]", part) for index, part in enumerate(holder[:1000]))
    elif isinstance(holder, (set, frozenset)):
        yield from ((" (a member)", part) for part in list(holder)[:1000])
    elif isinstance(holder, types.FunctionType):
        yield from _parts_of_function(holder)
    elif isinstance(holder, types.MethodType):
        yield ".__self__", holder.__self__
        yield ".__func__", holder.__func__
    elif isinstance(holder, types.CellType):
        try:
            yield "", holder.cell_contents
        except ValueError:
            return
    elif not isinstance(holder, types.ModuleType):
        attributes = getattr(holder, "__dict__", None)
        if attributes is not None:
            yield from ((f".{key}", part) for key, part in list(attributes.items())[:1000])


def _parts_of_function(func: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name in namespace.global_names(func.__code__).reads:
        if name in func.__globals__:
            yield f", which uses {name}", func.__globals__[name]
    for index, cell in enumerate(func.__closure__ or ()):
        yield f", which uses {func.__code__.co_freevars[index]}", cell
    for default in func.__defaults__ or ():
        yield " (a default)", default
