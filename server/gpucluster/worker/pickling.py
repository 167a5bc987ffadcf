"""Names of a cell to bytes and back, the same code in the kernel and in the worker (DESIGN section 4).

One pickle (protocol 5) holds a dict from name to value, so that two names of one object stay two names of one object;
big buffers stand outside it. Functions and classes that live in the notebook go by value. Over there they live in
`namespace.current()`, one namespace for all: a name that it lacks and that they use is set in it, a name that it has is
never overwritten. So in a worker, whose namespace starts empty, they find what they use, and on the way back into a
notebook they find what the notebook holds by then, not a stale copy.

A class that went away and comes back is the same class (cloudpickle keeps track of it), with the attributes it has here.

Bytecode is that of one minor version of Python; another one crashes over it. So whatever goes by value carries where it
comes from (origin.py), and it is looked at before anything is made of it; data alone loads anywhere.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import linecache
import mmap
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import bars, figures, namespace, obstacles, origin, tensors
from .origin import CannotLoad as CannotLoad

try:
    import cloudpickle
except ImportError:  # an image with nothing but Python
    cloudpickle = None

_Base: type[pickle.Pickler] = pickle.Pickler if cloudpickle is None else cloudpickle.Pickler

#: Smaller buffers stand in the pickle itself: a blob of its own costs more than copying them.
OUT_OF_BAND_BYTES = 64 << 10
#: A cell whose text is longer than this does not travel with the functions that it defines.
_SOURCE_LIMIT = 256 << 10

#: Globals that belong to a process, not to its user.
_NOT_CARRIED = frozenset(
    {"__builtins__", "__loader__", "__spec__", "__name__", "get_ipython", "In", "Out", "_ih", "_oh", "_dh"}
)

NEEDS_CLOUDPICKLE = "functions and classes that a notebook defines need the package cloudpickle; install it in this environment"


class OverLimit(Exception):
    """The objects take more than `limit_bytes` when pickled."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


@dataclass
class Pickled:
    """A pickle of `{name: value}`, its out-of-band buffers (contiguous, in order) and the names that it lacks, with reasons.

    The buffers are views of the live objects, not copies: send them before the objects change. `notes` tell what was
    changed on the way, `used_globals` which names of the notebook went along because functions use them.
    """

    pickle: bytes
    buffers: list[memoryview] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    used_globals: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return len(self.pickle) + sum(buffer.nbytes for buffer in self.buffers)


@dataclass(frozen=True)
class Options:
    """How a Pickler treats functions and modules; the fields are the arguments of `dump`."""

    ns: dict[str, Any]
    known: Collection[str] = ()
    submodules: Mapping[str, Iterable[str]] = field(default_factory=dict)
    limit_bytes: int | None = None


def dump(
    objects: dict[str, Any],
    *,
    ns: dict[str, Any],
    known: Collection[str] = (),
    submodules: Mapping[str, Iterable[str]] | None = None,
    limit_bytes: int | None = None,
) -> Pickled:
    """Pickle `objects`. A name that cannot travel is left out and stands in `failed`; it does not spoil the others.

    `ns` is the namespace in which the notebook's functions live here. `known` names globals that the other side has
    already: functions that use them go without them. `submodules` tells which submodules must be imported along with a
    module, e.g. {"concurrent": ["concurrent.futures"]}. Raises OverLimit as soon as `limit_bytes` are passed.
    """
    options = Options(ns, frozenset(known), {k: tuple(v) for k, v in (submodules or {}).items()}, limit_bytes)
    try:
        return _dump_together(objects, options)
    except OverLimit:
        raise
    except Exception:
        failed = {name: reason for name in objects if (reason := _why_not(name, objects, options))}
    try:
        rest = _dump_together({name: objects[name] for name in objects if name not in failed}, options)
    except OverLimit:
        raise
    except Exception as error:  # each goes alone, all together do not
        rest = _dump_together({}, options)
        reason = obstacles.reason_for(error, None, None)
        failed = {name: failed.get(name, reason) for name in objects}
    rest.failed = failed
    return rest


def _dump_together(objects: dict[str, Any], options: Options) -> Pickled:
    sink = _LimitedBytes(options.limit_bytes)
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        """False takes the buffer out of band."""
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND_BYTES:
            return True
        sink.count(view.nbytes)
        buffers.append(view)
        return False

    pickler = Pickler(sink, keep, options, roots=objects.values())
    pickler.dump(objects)
    return Pickled(sink.getvalue(), buffers, {}, tuple(pickler.notes), tuple(pickler.used_globals))


def _why_not(name: str, objects: dict[str, Any], options: Options) -> str | None:
    """The reason why one name cannot travel, or None."""
    value = objects[name]
    pickler = Pickler(Nowhere(), lambda buffer: False, options, roots=(value,))
    try:
        pickler.dump(value)
    except Exception as error:
        return obstacles.reason_for(error, name, value)
    return None


class _LimitedBytes(io.BytesIO):
    """A BytesIO that refuses to grow beyond a limit; `count` adds what stands outside it."""

    def __init__(self, limit_bytes: int | None) -> None:
        super().__init__()
        self._limit = limit_bytes
        self._total = 0

    def count(self, size: int) -> None:
        self._total += size
        if self._limit is not None and self._total > self._limit:
            raise OverLimit(self._limit)

    def write(self, data: Any) -> int:
        self.count(len(data))
        return super().write(data)


class Nowhere:
    """A file that forgets."""

    def write(self, data: Any) -> int:
        return len(data)


class Pickler(_Base):  # type: ignore[misc, valid-type]
    """Decides once per type how its objects go: an obstacle, a function, a class, a module, a tensor, or as they are."""

    def __init__(
        self,
        sink: Any,
        buffer_callback: Callable[[pickle.PickleBuffer], bool],
        options: Options,
        roots: Iterable[Any] = (),
    ) -> None:
        super().__init__(sink, protocol=5, buffer_callback=buffer_callback)
        self._options = options
        self._handlers: dict[type, Callable[[Any], Any]] = {}
        self._other_globals: dict[int, dict[str, Any]] = {}
        # A class that is sent as itself brings its attributes along; one that is only used by an instance does not.
        self._root_classes = {id(root) for root in roots if isinstance(root, type)}
        self._storages: dict[int, Any] = {}
        self.notes: dict[str, None] = {}
        self.used_globals: dict[str, None] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        handler = self._handlers.get(kind)
        if handler is None:
            handler = self._handlers[kind] = self._handler_for(kind)
        return handler(obj)

    def _handler_for(self, kind: type) -> Callable[[Any], Any]:
        if issubclass(kind, type):
            return self._reduce_class
        own: dict[type, Callable[[Any], Any]] = {
            types.FunctionType: self._reduce_function,
            types.CodeType: self._reduce_code,
            types.ModuleType: self._reduce_module,
            types.CellType: _reduce_cell,
            _LruCache: self._reduce_lru_cache,
            functools.cached_property: _reduce_cached_property,
            weakref.WeakKeyDictionary: _reduce_weak_dict,
            weakref.WeakValueDictionary: _reduce_weak_dict,
        }
        if kind in own:
            return own[kind]
        if tensors.is_tensor_type(kind):
            return self._reduce_tensor
        if bars.is_bar_type(kind):
            return bars.reduce_bar
        obstacle = obstacles.obstacle_of(kind)
        if obstacle is not None:
            return lambda obj: _refuse(obj, obstacle)
        return _as_it_is

    # ---- functions

    def _reduce_function(self, func: types.FunctionType) -> Any:
        if func.__globals__ is not self._options.ns and is_importable(func):
            return NotImplemented
        if cloudpickle is None:
            raise obstacles.CannotTravel(func, NEEDS_CLOUDPICKLE)
        filename, source = _source_of(func.__code__)
        args = (func.__code__, filename, self._globals_of(func), func.__name__, func.__closure__)
        return _make_function, args, self._state_of(func, source), None, None, _set_function_state

    def _globals_of(self, func: types.FunctionType) -> dict[str, Any] | None:
        """None stands for the notebook's namespace; functions of any other one share a copy of what they use of it."""
        if func.__globals__ is self._options.ns:
            return None
        shared = self._other_globals.get(id(func.__globals__))
        if shared is None:
            keys = ("__package__", "__name__", "__path__", "__file__")
            shared = {key: func.__globals__[key] for key in keys if key in func.__globals__}
            self._other_globals[id(func.__globals__)] = shared
        return shared

    def _state_of(self, func: types.FunctionType, source: str | None) -> dict[str, Any]:
        held = func.__globals__
        is_home = held is self._options.ns
        used = {
            name: held[name]
            for name in namespace.global_names(func.__code__).reads
            if name in held and name not in _NOT_CARRIED and not (is_home and name in self._options.known)
        }
        if is_home:
            self.used_globals.update(dict.fromkeys(used))
        modules = [value for value in used.values() if isinstance(value, types.ModuleType)]
        attributes = {
            "__qualname__": func.__qualname__,
            "__module__": func.__module__,
            "__doc__": func.__doc__,
            "__defaults__": func.__defaults__,
            "__kwdefaults__": func.__kwdefaults__,
            "__annotations__": _annotations_of(func),
        }
        if getattr(func, "__type_params__", ()):
            attributes["__type_params__"] = func.__type_params__  # type: ignore[attr-defined]
        return {
            "attributes": attributes,
            "dict": func.__dict__,
            "globals": used,
            "submodules": submodules_used(func.__code__.co_names, modules),
            "source": source,
        }

    def _reduce_code(self, code: types.CodeType) -> Any:
        reduce = getattr(self, "dispatch_table", {}).get(types.CodeType)
        if reduce is None:
            return NotImplemented
        return _make_code, (origin.HERE, reduce(code)[1])

    def _reduce_lru_cache(self, wrapper: Any) -> Any:
        """The reduction of functools is by name, which nothing over there has; the cached results stay here."""
        if is_importable(wrapper):
            return NotImplemented
        parameters = wrapper.cache_parameters()
        return _make_lru_cache, (wrapper.__wrapped__, parameters["maxsize"], parameters["typed"])

    # ---- classes, modules, tensors

    def _reduce_class(self, cls: type) -> Any:
        if cloudpickle is None:
            if is_importable(cls):
                return NotImplemented
            raise obstacles.CannotTravel(cls, NEEDS_CLOUDPICKLE)
        reduced = super().reducer_override(cls)
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        make, args, state, _, _, set_state = reduced
        _complete_classes.add(cls)
        state = (set_state, id(cls) in self._root_classes, state)
        return _make_class, (origin.HERE, make, args), state, None, None, _set_class_state

    def _reduce_module(self, module: types.ModuleType) -> Any:
        name = module.__name__
        if name in sys.modules:
            return import_module, (name, *self._options.submodules.get(name, ()))
        if cloudpickle is None:
            raise obstacles.CannotTravel(module, f"the module {name} was made by hand and cannot be imported")
        return NotImplemented

    def _reduce_tensor(self, tensor: Any) -> Any:
        if tensors.is_on_gpu(tensor):
            self.notes.setdefault(
                "tensors on a GPU travel as CPU tensors; move them with .to(device) where they are used"
            )
        return tensors.reduce_tensor(tensor, self._storages)


def _reduce_cached_property(cached: functools.cached_property[Any]) -> Any:
    """Without the lock that it holds up to Python 3.11."""
    state = {"attrname": cached.attrname, "__doc__": cached.__doc__}
    return functools.cached_property, (cached.func,), state


def _reduce_weak_dict(weak: Any) -> Any:
    return type(weak), (dict(weak.items()),)


def _as_it_is(obj: Any) -> Any:
    return NotImplemented


def _refuse(obj: Any, obstacle: obstacles.Obstacle) -> Any:
    if obj is sys.stdout or obj is sys.stderr:
        return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
    raise obstacles.CannotTravel(obj, obstacle(obj))


# ---- what the other side calls


def _make_code(came_from: origin.Origin, args: tuple[Any, ...]) -> types.CodeType:
    origin.require(came_from)
    return types.CodeType(*args)


def _make_class(came_from: origin.Origin, make: Callable[..., type], args: tuple[Any, ...]) -> type:
    origin.require(came_from)
    return make(*args)


def _make_function(
    code: types.CodeType,
    filename: str,
    globals_: dict[str, Any] | None,
    name: str,
    closure: tuple[types.CellType, ...] | None,
) -> types.FunctionType:
    held = namespace.current() if globals_ is None else globals_
    held.setdefault("__builtins__", builtins)
    return types.FunctionType(_with_filename(code, filename), held, name, None, closure)


def _set_function_state(func: types.FunctionType, state: dict[str, Any]) -> None:
    for name, value in state["attributes"].items():
        setattr(func, name, value)
    func.__dict__.update(state["dict"])
    for name, value in state["globals"].items():
        func.__globals__.setdefault(name, value)
    source = state["source"]
    if source is not None:
        filename = func.__code__.co_filename
        linecache.cache.setdefault(filename, (len(source), None, source.splitlines(True), filename))


def _with_filename(code: types.CodeType, filename: str) -> types.CodeType:
    constants = tuple(
        _with_filename(constant, filename) if isinstance(constant, types.CodeType) else constant
        for constant in code.co_consts
    )
    return code.replace(co_filename=filename, co_consts=constants)


def _make_lru_cache(func: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize=maxsize, typed=typed)(func)


def _reduce_cell(cell: types.CellType) -> Any:
    """The cell first, then what is in it: a closure that holds itself, and two that share a cell, come out right."""
    try:
        contents = cell.cell_contents
    except ValueError:  # nothing assigned yet
        return types.CellType, ()
    return types.CellType, (), (contents,), None, None, _set_cell


def _set_cell(cell: types.CellType, state: tuple[Any]) -> None:
    (cell.cell_contents,) = state


#: Classes of notebooks that are whole in this process: defined here, or loaded before.
_complete_classes: weakref.WeakSet[type] = weakref.WeakSet()


def _set_class_state(cls: type, state: tuple[Callable[[type, Any], Any], bool, Any]) -> None:
    """Fill a class that was just made; leave one that is here already as it is, unless it was sent as itself."""
    set_state, is_root, attributes = state
    if is_root or cls not in _complete_classes:
        set_state(cls, attributes)
        _complete_classes.add(cls)


#: What fills an object that was made before; called with the object first.
STATE_SETTERS = (_set_function_state, _set_class_state, _set_cell)


def import_module(name: str, *submodules: str) -> types.ModuleType:
    for submodule in submodules:
        importlib.import_module(submodule)
    return importlib.import_module(name)


# ---- what an object is


_LruCache: type = type(functools.lru_cache(maxsize=None)(len))


def is_importable(obj: Any) -> bool:
    """Whether a function or class can be found under its name in a module, so that its name is enough."""
    module_name = getattr(obj, "__module__", None)
    if not module_name or module_name in ("__main__", "__mp_main__") or module_name not in sys.modules:
        return False
    if cloudpickle is not None:
        by_value = cloudpickle.list_registry_pickle_by_value()
        if any(module_name == name or module_name.startswith(name + ".") for name in by_value):
            return False
    found: Any = sys.modules[module_name]
    for part in getattr(obj, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is obj


def submodules_used(names: Iterable[str], modules: Iterable[types.ModuleType]) -> list[types.ModuleType]:
    """Imported submodules of `modules` that code can reach through attributes among `names`."""
    names = tuple(names)
    found = []
    todo = [module.__name__ for module in modules]
    while todo:
        parent = todo.pop()
        for name in names:
            child = sys.modules.get(f"{parent}.{name}")
            if child is not None and child not in found:
                found.append(child)
                todo.append(child.__name__)
    return found


def _annotations_of(func: types.FunctionType) -> dict[str, Any]:
    try:
        return func.__annotations__
    except Exception:  # evaluated late (Python 3.14), and naming something that is not there
        return {}


def _source_of(code: types.CodeType) -> tuple[str, str | None]:
    """The file name of a notebook function and the text of its cell, so that tracebacks and inspect show its lines."""
    entry = linecache.cache.get(code.co_filename)
    if not entry or len(entry) != 4 or entry[1] is not None or entry[0] > _SOURCE_LIMIT:
        return code.co_filename, None
    return code.co_filename, "".join(entry[2])


# ---- loading


def load(data: Any, buffers: Iterable[Any] = ()) -> dict[str, Any]:
    """The dict from name to value. Arrays that could be written to before can be written to here.

    A buffer that is read-only is copied for that; give a writable one (`read_buffer`) to spare the copy. Raises
    CannotLoad when anything of it cannot be made here.
    """
    unpickler = _Unpickler(io.BytesIO(data), buffers=(writable(buffer) for buffer in buffers))
    try:
        loaded = unpickler.load()
    except CannotLoad:
        raise
    except Exception as error:
        raise CannotLoad(describe_load_error(error)) from error
    if not isinstance(loaded, dict):
        raise CannotLoad(f"the pickle holds a {type(loaded).__name__}, not a dict of names")
    return loaded


def read_buffer(path: str) -> memoryview:
    """The file as a writable buffer that is private to this process: nothing is copied until it is written to."""
    with open(path, "rb") as file:
        if not file.seek(0, io.SEEK_END):
            return memoryview(bytearray())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def writable(buffer: Any) -> Any:
    return bytearray(buffer) if memoryview(buffer).readonly else buffer


def find_class(super_find_class: Callable[[str, str], Any], module: str, name: str) -> Any:
    """What a pickle means by module and name. What belongs to `__main__` is looked for in the cell's namespace."""
    if module == "__main__" and name in namespace.current():
        return namespace.current()[name]
    if module == "matplotlib.figure":
        figures.prepare()
    try:
        return super_find_class(module, name)
    except Exception as error:
        raise CannotLoad(describe_load_error(error, f"{module}.{name}")) from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return find_class(super().find_class, module, name)


def describe_load_error(error: BaseException, wanted: str | None = None) -> str:
    """One sentence for people about why something cannot be unpickled here."""
    if isinstance(error, CannotLoad):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.partition(".")[0] == "cloudpickle":
            return NEEDS_CLOUDPICKLE
        return f"the module {error.name} is not there in this environment ({sys.executable})"
    if isinstance(error, AttributeError) and wanted and wanted.startswith("cloudpickle."):
        versions = f"{origin.last.cloudpickle} there, {origin.HERE.cloudpickle} here"
        return f"it needs the same version of cloudpickle on both sides ({versions})"
    if isinstance(error, AttributeError) and wanted:
        return f"{wanted} does not exist in this environment: {error}"
    if isinstance(error, (EOFError, pickle.UnpicklingError)):
        return f"the pickle is cut off or damaged ({error})"
    return f"{type(error).__name__}: {error}"
