"""Names to bytes and back, within one process: obstacles, limits, notes, what loading gives when something is missing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import mmap
import pickle
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpucluster.worker import namespace, origin, pickling, salvage


@pytest.fixture
def ns() -> Iterator[dict[str, Any]]:
    """A notebook's namespace, the bound one."""
    here: dict[str, Any] = {"__name__": "__main__"}
    namespace.bind(here)
    yield here
    namespace.bind(sys.modules["__main__"].__dict__)


def run(ns: dict[str, Any], source: str) -> None:
    exec(compile(source, "<cell>", "exec", dont_inherit=True), ns)


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> None:
    pass


def frame() -> types.FrameType:
    return sys._getframe()


def traceback() -> types.TracebackType | None:
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__


def popen() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["true"])
    process.wait()
    return process


def future() -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.create_future()
    finally:
        loop.close()


OBSTACLES: list[tuple[Callable[[], Any], str]] = [
    (
        partial(open, "/etc/hosts"),
        "an open file (/etc/hosts) cannot travel to another process; open it inside the cell",
    ),
    (partial(open, "/etc/hosts", "rb"), "an open file (/etc/hosts)"),
    (partial(open, "/etc/hosts", "rb", buffering=0), "an open file (/etc/hosts)"),
    (tempfile.NamedTemporaryFile, "an open file"),
    (lambda: mmap.mmap(-1, 10), "a memory-mapped file"),
    (threading.Lock, "a lock cannot travel"),
    (threading.RLock, "a lock cannot travel"),
    (threading.Event, "a lock cannot travel"),
    (threading.Condition, "a lock cannot travel"),
    (threading.Thread, "a thread cannot travel"),
    (threading.local, "thread-local data"),
    (queue.Queue, "a lock cannot travel"),
    (lambda: socket.socketpair()[0], "a network connection"),
    (lambda: sqlite3.connect(":memory:"), "an open connection to a database"),
    (lambda: sqlite3.connect(":memory:").cursor(), "an open connection to a database"),
    (
        generator,
        "a generator cannot travel to another process; make it inside the cell, or send list(…) of it",
    ),
    (coroutine, "a coroutine cannot travel"),
    (frame, "a stack frame"),
    (traceback, "a traceback"),
    (popen, "a running process"),
    (future, "something of a running event loop"),
    (lambda: concurrent.futures.ThreadPoolExecutor(1), "a pool of workers"),
    (lambda: weakref.ref(generator), "a weak reference"),
    (lambda: (i for i in range(3)), "a generator"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "reason"), OBSTACLES, ids=[reason[:30] for _, reason in OBSTACLES])
def test_what_cannot_travel_is_named_with_what_to_do_and_the_others_go(
    ns: dict[str, Any], make: Callable[[], Any], reason: str
) -> None:
    obstacle = make()
    pickled = pickling.dump({"a": 1, "bad": obstacle, "deep": {"k": [obstacle]}, "z": [2]}, ns=ns)
    assert pickling.load(pickled.pickle, pickled.buffers) == {"a": 1, "z": [2]}
    assert set(pickled.failed) == {"bad", "deep"}
    assert reason in pickled.failed["bad"]
    assert pickled.failed["deep"].startswith("deep['k'][0]")
    assert reason in pickled.failed["deep"]


def test_path_to_an_obstacle_leads_through_attributes_functions_and_closures(ns: dict[str, Any]) -> None:
    run(
        ns,
        "import threading\nlock = threading.Lock()\nclass C:\n    pass\nc = C(); c.inner = C(); c.inner.lock = lock\n"
        "def f(): return lock\ndef make():\n    held = lock\n    return lambda: held\ng = make()",
    )
    failed = pickling.dump({name: ns[name] for name in ("c", "f", "g")}, ns=ns).failed
    assert failed["c"].startswith("c.inner.lock: a lock")
    assert failed["f"].startswith("f, which uses lock: a lock")
    assert failed["g"].startswith("g, which uses held: a lock")


def test_object_that_refuses_by_itself_is_told_with_its_own_words(ns: dict[str, Any]) -> None:
    run(ns, "class Stubborn:\n    def __reduce__(self): raise RuntimeError('I stay')\ns = Stubborn()")
    assert "RuntimeError: I stay" in pickling.dump({"s": ns["s"]}, ns=ns).failed["s"]


def test_object_of_an_unknown_type_that_cannot_be_pickled_is_told_by_its_type(ns: dict[str, Any]) -> None:
    compressor = __import__("zlib").compressobj()
    failed = pickling.dump({"x": [compressor]}, ns=ns).failed
    assert failed["x"].startswith("x[0]: an object of type zlib.Compress cannot travel to another process")


def test_object_nested_too_deeply_is_told_so(ns: dict[str, Any]) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    pickled = pickling.dump({"deep": deep, "x": 1}, ns=ns)
    assert "nested too deeply" in pickled.failed["deep"]
    assert pickling.load(pickled.pickle) == {"x": 1}
    while deep:  # or freeing it would recurse
        deep = deep[0]


def test_class_with_its_own_way_to_be_pickled_is_let_through(ns: dict[str, Any]) -> None:
    run(
        ns,
        "import threading\nclass Worker(threading.Thread):\n    def __reduce__(self): return (Worker, ())\nw = Worker()",
    )
    pickled = pickling.dump({"w": ns["w"]}, ns=ns)
    assert not pickled.failed
    assert isinstance(pickling.load(pickled.pickle)["w"], ns["Worker"])


def test_standard_streams_are_those_of_the_other_side(ns: dict[str, Any]) -> None:
    pickled = pickling.dump({"out": sys.stdout, "text": io.StringIO("kept")}, ns=ns)
    loaded = pickling.load(pickled.pickle)
    assert loaded["out"] is sys.stdout
    assert loaded["text"].read() == "kept"


# ---- buffers and limits


def test_array_in_a_list_is_out_of_band_and_a_small_one_is_not(ns: dict[str, Any]) -> None:
    big, small = np.arange(20_000.0), np.arange(10.0)
    pickled = pickling.dump({"x": [big, small], "again": big}, ns=ns)
    assert [buffer.nbytes for buffer in pickled.buffers] == [big.nbytes]
    assert pickled.total_bytes == len(pickled.pickle) + big.nbytes
    loaded = pickling.load(pickled.pickle, [bytes(buffer) for buffer in pickled.buffers])
    assert loaded["x"][0] is loaded["again"]
    loaded["again"][0] = loaded["x"][1][0] = 7
    assert big[0] == 0


def test_arrays_of_every_layout_come_through(ns: dict[str, Any]) -> None:
    for array in (
        np.zeros((300, 300), order="F"),
        np.zeros((300, 600))[:, ::2],
        np.zeros((0, 9)),
        np.zeros((300, 300)).T,
    ):
        pickled = pickling.dump({"a": array}, ns=ns)
        assert all(buffer.contiguous for buffer in pickled.buffers)
        np.testing.assert_array_equal(pickling.load(pickled.pickle, pickled.buffers)["a"], array)


def test_limit_is_kept_by_buffers_and_by_the_pickle(ns: dict[str, Any]) -> None:
    for value in (np.zeros(100_000), b"x" * 800_000, ["word" * 10 + str(i) for i in range(20_000)]):
        with pytest.raises(pickling.OverLimit):
            pickling.dump({"x": value}, ns=ns, limit_bytes=500_000)


def test_buffer_read_from_a_file_is_writable_and_leaves_the_file_alone(
    ns: dict[str, Any], tmp_path: Path
) -> None:
    pickled = pickling.dump({"a": np.zeros(20_000)}, ns=ns)
    (tmp_path / "buffer").write_bytes(pickled.buffers[0])
    array = pickling.load(pickled.pickle, [pickling.read_buffer(str(tmp_path / "buffer"))])["a"]
    array[0] = 1
    assert not any((tmp_path / "buffer").read_bytes())
    (tmp_path / "empty").write_bytes(b"")
    assert pickling.read_buffer(str(tmp_path / "empty")).nbytes == 0


# ---- functions


def test_known_globals_are_left_to_the_other_side(ns: dict[str, Any]) -> None:
    run(ns, "big = list(range(10_000)); small = 3\ndef f(): return len(big) + small")
    pickled = pickling.dump({"f": ns["f"]}, ns=ns, known={"big"})
    assert len(pickled.pickle) < 2_000
    assert pickled.used_globals == ("small",)
    there: dict[str, Any] = {"big": [1, 2]}
    namespace.bind(there)
    assert pickling.load(pickled.pickle)["f"]() == 5
    assert there["small"] == 3


def test_global_that_is_there_already_is_not_overwritten(ns: dict[str, Any]) -> None:
    run(ns, "K = 1\ndef f(): return K")
    pickled = pickling.dump({"f": ns["f"]}, ns=ns)
    there = {"K": 50}
    namespace.bind(there)
    function = pickling.load(pickled.pickle)["f"]
    assert function.__globals__ is there
    assert function() == 50


def test_functions_of_another_namespace_share_one_of_their_own(ns: dict[str, Any]) -> None:
    elsewhere: dict[str, Any] = {"__name__": "__main__"}
    run(elsewhere, "K = 1\ndef f(): return K\ndef g():\n    global K\n    K = 9")
    pickled = pickling.dump({"f": elsewhere["f"], "g": elsewhere["g"]}, ns=ns)
    loaded = pickling.load(pickled.pickle)
    loaded["g"]()
    assert loaded["f"]() == 9
    assert "K" not in ns


def test_without_cloudpickle_data_goes_and_functions_say_what_they_need(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['cloudpickle'] = None\n"
        "from gpucluster.worker import pickling, salvage\n"
        "def f(): pass\n"
        "class C: pass\n"
        "done = pickling.dump({'x': [1], 'f': f, 'c': C(), 'm': sys}, ns=globals())\n"
        "print(sorted(pickling.load(done.pickle)), sorted(done.failed), done.failed['f'])\n"
        f"print(salvage.load_each(open({str(tmp_path / 'C')!r}, 'rb').read()))\n"
        f"print(pickling.load(open({str(tmp_path / 'f')!r}, 'rb').read())['f']())\n"
    )
    ns: dict[str, Any] = {"__name__": "__main__"}
    run(ns, "def f(): return 1\nclass C: pass")
    (tmp_path / "C").write_bytes(pickling.dump({"C": ns["C"], "y": 2}, ns=ns).pickle)
    (tmp_path / "f").write_bytes(pickling.dump({"f": ns["f"]}, ns=ns).pickle)
    server = str(Path(pickling.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": server}, capture_output=True, text=True, check=True
    )
    first, second, third = done.stdout.splitlines()
    assert first.startswith(
        "['m', 'x'] ['c', 'f'] functions and classes that a notebook defines need the package cloudpickle"
    )
    assert second.startswith("({'y': 2}, {'C': 'functions and classes that a notebook defines need")
    assert third == "1", "to run a function, nothing is needed"


# ---- loading


def test_damaged_pickles_are_told_apart_from_missing_modules(ns: dict[str, Any]) -> None:
    whole = pickling.dump({"a": np.zeros(20_000)}, ns=ns)
    for data, buffers in ((whole.pickle[:-20], whole.buffers), (b"junk", ()), (b"", ()), (whole.pickle, ())):
        with pytest.raises(pickling.CannotLoad, match="cut off or damaged"):
            pickling.load(data, buffers)
        with pytest.raises(pickling.CannotLoad):
            salvage.load_each(data, buffers)
    with pytest.raises(pickling.CannotLoad, match="not a dict"):
        pickling.load(pickle.dumps([1]))


class Fails:
    """Can be pickled, not unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("made by another version")

    def __getstate__(self) -> dict[str, int]:
        return {"x": 1}


def test_names_that_do_not_need_what_is_missing_are_saved(
    ns: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = types.ModuleType("gone_module")
    monkeypatch.setitem(sys.modules, "gone_module", gone)
    run(
        gone.__dict__, "class T:\n    pass\nclass L(list):\n    pass\nclass D(dict):\n    pass\ndef f(): pass"
    )
    for name in ("T", "L", "D", "f"):
        vars(gone)[name].__module__ = "gone_module"
    shared = [np.arange(20_000.0)]
    run(ns, "def uses(): return helper\n")
    ns["helper"] = gone.T()
    objects = {
        "t": gone.T(), "many": gone.L([1, 2]), "table": gone.D(a=1), "f": gone.f, "deep": {"k": (shared, [gone.T()])},
        "fails": Fails(), "uses": ns["uses"], "ok": shared, "array": shared[0], "n": 1, "holds": [Fails()],
    }  # fmt: skip
    pickled = pickling.dump(objects, ns=ns)
    assert not pickled.failed
    monkeypatch.delitem(sys.modules, "gone_module")
    there: dict[str, Any] = {}
    namespace.bind(there)
    values, failed = salvage.load_each(pickled.pickle, [bytes(buffer) for buffer in pickled.buffers])
    assert set(values) == {"ok", "array", "n"}
    assert values["ok"][0] is values["array"]
    assert values["array"].flags.writeable
    assert set(failed) == {"t", "many", "table", "f", "deep", "fails", "uses", "holds"}
    assert "the module gone_module is not there in this environment" in failed["deep"]
    assert failed["fails"] == failed["holds"] == "ValueError: made by another version"
    assert "helper" not in there


@pytest.fixture
def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Do something as another version of Python would: `from_elsewhere(lambda: dump(…))`."""

    def do(work: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(origin, "HERE", origin.Origin((3, 7), "0.5"))
            return work()

    return do


@pytest.mark.parametrize(
    "source",
    [
        "def sent(): return 1",
        "class sent: pass",
        "class Class:\n    def method(self): return 1\nsent = Class()",
        "sent = {'deep': [lambda x: x]}",
        "import functools\nsent = functools.partial(lambda x: x, 1)",
        "import enum\nclass sent(enum.Enum):\n    A = 1",
    ],
)
def test_code_of_another_python_is_refused_before_anything_is_made_of_it(
    ns: dict[str, Any], from_elsewhere: Any, source: str
) -> None:
    run(ns, source)
    pickled = from_elsewhere(lambda: pickling.dump({"sent": ns["sent"], "data": [1]}, ns=ns))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    sentence = f"functions and classes defined in Python 3.7 cannot run in the Python {here} here"
    with pytest.raises(pickling.CannotLoad, match=sentence):
        pickling.load(pickled.pickle)
    values, failed = salvage.load_each(pickled.pickle)
    assert values == {"data": [1]}
    assert sentence in failed["sent"]
    assert "send data alone" in failed["sent"]


def test_data_of_another_python_loads(ns: dict[str, Any], from_elsewhere: Any) -> None:
    objects = {
        "a": np.arange(3),
        "n": {"x": [1.5, "text", None]},
        "path": Path("a"),
        "module": np,
        "f": np.mean,
    }
    pickled = from_elsewhere(lambda: pickling.dump(objects, ns=ns))
    loaded = pickling.load(pickled.pickle, pickled.buffers)
    assert loaded["n"] == objects["n"]
    assert loaded["f"] is np.mean


def test_a_cloudpickle_that_does_not_understand_the_other_is_named(
    ns: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import cloudpickle.cloudpickle

    run(ns, "class Net: pass")
    pickled = pickling.dump({"Net": ns["Net"]}, ns=ns)
    monkeypatch.delattr(cloudpickle.cloudpickle, "_make_skeleton_class")
    with pytest.raises(pickling.CannotLoad, match="needs the same version of cloudpickle on both sides"):
        pickling.load(pickled.pickle)


def test_salvaged_function_goes_on_using_what_the_notebook_holds(
    ns: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = types.ModuleType("gone_module")
    monkeypatch.setitem(sys.modules, "gone_module", gone)
    run(ns, "import gone_module\nimport threading\nlock = None\ndef f(): return lock\nbad = gone_module")
    pickled = pickling.dump({"f": ns["f"], "bad": ns["bad"]}, ns=ns)
    monkeypatch.delitem(sys.modules, "gone_module")
    ns["lock"] = threading.Lock()
    values, failed = salvage.load_each(pickled.pickle)
    assert values["f"]() is ns["lock"]
    assert list(failed) == ["bad"]
