"""Functions and classes of the notebook in a worker and back: one namespace on either side."""

from __future__ import annotations

import gc
import inspect
import re

import pytest

from .notebook import Notebook


def test_function_goes_with_the_names_it_uses_and_those_they_use(notebook: Notebook) -> None:
    notebook.cell(
        "import math\nK = 3; other = 0\ndef g(x): return math.sqrt(x) * K\ndef f(x): return g(x) + 1"
    )
    done = notebook.submit("r = f(4)")
    assert notebook["r"] == 7
    assert done.capture.names == {"f": "function", "g": "function", "math": "module", "K": "value"}


def test_redefinition_in_the_cell_is_seen_by_the_functions_that_were_sent(notebook: Notebook) -> None:
    notebook.cell("K = 1\ndef g(): return K\ndef f(): return g() * 10")
    notebook.submit("before = f()\nK = 5\nwith_k = f()\ndef g(): return 7\nwith_g = f()")
    assert (notebook["before"], notebook["with_k"], notebook["with_g"]) == (10, 50, 70)
    assert notebook["f"]() == 70


def test_function_defined_in_the_cell_sees_what_the_notebook_defines_later(notebook: Notebook) -> None:
    notebook.submit("scale = 2\ndef f(x): return helper(x) * scale\ndef helper(x): return x + 1")
    assert notebook["f"].__globals__ is notebook.ns
    assert notebook["f"](1) == 4
    notebook.cell("scale = 10\ndef helper(x): return 0 if x else 1")
    assert notebook["f"](0) == 10


def test_returned_function_does_not_overwrite_what_the_notebook_has_changed_since(notebook: Notebook) -> None:
    notebook.cell("K = 1\ndef g(): return K\nfs = []")
    done = notebook.start("def f(): return g() + K\nfs.append(g)")
    notebook.cell("K = 100\ndef g(): return 1000")
    notebook.bind(done)
    assert notebook["K"] == 100
    assert notebook["f"]() == 1100
    assert notebook["fs"][0]() == 100  # the old g, in the notebook's namespace


def test_closures_that_share_a_variable_go_on_sharing_it(notebook: Notebook) -> None:
    notebook.cell(
        "def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n"
        "    def get(): return n\n    return inc, get\ninc, get = make()"
    )
    done = notebook.submit("inc(); inc()\nr = get()")
    assert notebook["r"] == 2
    assert set(done.bound.changed) == {"inc", "get"}
    notebook["inc"]()
    assert notebook["get"]() == 3


def test_recursive_and_mutually_recursive_closures_work(notebook: Notebook) -> None:
    notebook.cell(
        "def make():\n    def even(n): return True if n == 0 else odd(n - 1)\n"
        "    def odd(n): return False if n == 0 else even(n - 1)\n"
        "    return even, odd\neven, odd = make()\ndef fact(n): return 1 if n == 0 else n * fact(n - 1)"
    )
    notebook.submit("r = (even(10), odd(7), fact(5))")
    assert notebook["r"] == (True, True, 120)


def test_global_assigned_by_a_notebook_function_comes_back(notebook: Notebook) -> None:
    notebook.cell("count = 1\ndef bump():\n    global count, made\n    count += 1\n    made = 'new'")
    done = notebook.submit("bump()\nbump()")
    assert notebook["count"] == 3
    assert notebook["made"] == "new"
    assert done.bound.changed == ("count",)


def test_instances_that_come_back_are_of_the_notebooks_class(notebook: Notebook) -> None:
    notebook.cell(
        "W = 2\nclass Base:\n    def kind(self): return type(self).__name__\n"
        "class Net(Base):\n    made = 0\n    def __init__(self):\n        super().__init__()\n        self.w = W\n"
        "    def fit(self):\n        self.w += 1\n        return self\nnet = Net()"
    )
    net_class = notebook["Net"]
    done = notebook.submit("net.fit()\nother = Net()\nkinds = net.kind()")
    assert done.bound.changed == ("net",)
    assert notebook["Net"] is net_class
    assert type(notebook["net"]) is type(notebook["other"]) is net_class
    assert (notebook["net"].w, notebook["other"].w, notebook["kinds"]) == (3, 2, "Net")


def test_class_that_only_comes_along_keeps_what_the_notebook_did_to_it_since(notebook: Notebook) -> None:
    notebook.cell("class Net:\n    made = 0\n    def f(self): return 1\nnet = Net()")
    done = notebook.start("net.w = 1")
    notebook.cell("Net.made = 5\nNet.f = lambda self: 2")
    notebook.bind(done)
    assert notebook["Net"].made == 5
    assert notebook["net"].f() == 2
    assert isinstance(notebook["net"], notebook["Net"])


def test_class_changed_in_the_job_comes_back_changed(notebook: Notebook) -> None:
    notebook.cell("class Net:\n    made = 0\nold = Net")
    done = notebook.submit("Net.made += 1")
    assert done.bound.changed == ("Net",)
    assert notebook["Net"] is notebook["old"]
    assert notebook["Net"].made == 1


def test_class_redefined_in_between_leaves_both_classes_themselves(notebook: Notebook) -> None:
    notebook.cell("class Net:\n    version = 1\nnet = Net()\nfirst = Net")
    done = notebook.start("net.trained = True\nnew = Net()")
    notebook.cell("class Net:\n    version = 2")
    notebook.bind(done)
    assert notebook["Net"].version == 2
    assert type(notebook["net"]) is type(notebook["new"]) is notebook["first"]
    assert notebook["net"].version == 1
    assert not isinstance(notebook["net"], notebook["Net"])  # as in a kernel: made by the old definition


def test_class_that_was_thrown_away_in_between_comes_back_with_its_instances(notebook: Notebook) -> None:
    notebook.cell("class Net:\n    version = 1\nnet = Net()")
    done = notebook.start("net.trained = True")
    notebook.cell("class Net:\n    version = 2\nnet = None")
    gc.collect()
    notebook.bind(done)
    assert (notebook["net"].version, notebook["Net"].version) == (1, 2)


def test_class_redefined_in_the_cell_replaces_the_notebooks(notebook: Notebook) -> None:
    notebook.cell("class Net:\n    version = 1")
    notebook.submit("class Net:\n    version = 2\nnet = Net()")
    assert isinstance(notebook["net"], notebook["Net"])
    assert notebook["Net"].version == 2
    again = notebook.submit("same = isinstance(net, Net)\nnet.x = 1")
    assert notebook["same"]
    assert again.bound.changed == ("net",)
    assert isinstance(notebook["net"], notebook["Net"])


@pytest.mark.parametrize(
    ("definition", "use", "expected"),
    [
        ("import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int = 1", "r = P(2) == P(2)", True),
        ("import enum\nclass Color(enum.Enum):\n    RED = 1", "r = Color.RED.name", "RED"),
        ("import typing\nclass T(typing.NamedTuple):\n    a: int", "r = T(4).a", 4),
        ("import collections\nT = collections.namedtuple('T', 'a b')", "r = T(1, 2).b", 2),
        ("import functools\n@functools.lru_cache\ndef f(x): return x * K\nK = 3", "r = f(2)", 6),
        ("import functools\n@functools.singledispatch\ndef f(x): return 0\n@f.register\ndef _(x: str): return 1",
         "r = f('a')", 1),
        ("import contextlib\n@contextlib.contextmanager\ndef c():\n    yield K\nK = 5", "with c() as r: pass", 5),
        ("import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\n"
         "class B(A):\n    def f(self): return K\nK = 1",
         "r = B().f()", 1),
        ("class P:\n    def __init__(self): self._x = 1\n    @property\n    def x(self): return self._x + K\n    @classmethod\n"
         "    def make(cls): return cls()\n    @staticmethod\n    def s(): return K\nK = 1", "r = P.make().x + P.s()", 3),
        ("import functools\nclass P:\n    @functools.cached_property\n    def x(self): return 7\np = P()", "r = p.x", 7),
        ("class Meta(type):\n    def __call__(cls): return K\nclass P(metaclass=Meta): pass\nK = 8", "r = P()", 8),
        ("class S:\n    __slots__ = ('a',)\ns = S(); s.a = 3", "r = s.a", 3),
        ("f = lambda x, k=2: x * k + K\nK = 1", "r = f(3)", 7),
        ("import functools\ndef f(a, b): return a + b + K\nK = 1\np = functools.partial(f, 1)", "r = p(1)", 3),
        ("def deco(f):\n    import functools\n    @functools.wraps(f)\n    def g(*a): return f(*a) + K\n    return g\nK = 10\n"
         "@deco\ndef f(x): return x", "r = f(1)", 11),
        ("class C:\n    def m(self): return K\nK = 2\nmethod = C().m", "r = method()", 2),
        ("import typing\nT = typing.TypeVar('T')\nclass G(typing.Generic[T]):\n    def f(self): return K\nK = 4",
         "r = G[int]().f()", 4),
        ("def f():\n    class Inner:\n        k = K\n    return Inner.k\nK = 6", "r = f()", 6),
        ("class MyError(Exception):\n    def __init__(self, a): super().__init__(a); self.a = a\nerror = MyError(3)",
         "r = error.a", 3),
    ],
)  # fmt: skip
def test_definitions_of_every_kind_work_there(
    notebook: Notebook, definition: str, use: str, expected: object
) -> None:
    notebook.cell(definition)
    notebook.submit(use)
    assert notebook["r"] == expected


def test_traceback_from_a_notebook_function_shows_its_lines(notebook: Notebook) -> None:
    notebook.cell("def fails(x):\n    culprit = 1\n    return culprit / x")
    done = notebook.start("fails(0)")
    assert done.run.code != 0
    assert "return culprit / x" in re.sub(r"\x1b\[[\d;]*m", "", done.run.traceback)


def test_source_of_a_function_defined_in_a_job_can_be_read_here(notebook: Notebook) -> None:
    notebook.submit("def f(x):\n    return x + 1  # from the job")
    assert "from the job" in inspect.getsource(notebook["f"])


def test_function_that_uses_a_submodule_finds_it_imported(notebook: Notebook) -> None:
    notebook.cell(
        "import xml\nimport xml.dom.minidom\ndef f(): return xml.dom.minidom.parseString('<b/>').documentElement.tagName"
    )
    notebook.submit("r = f()")
    assert notebook["r"] == "b"


def test_names_used_by_functions_inside_containers_travel_and_are_told(notebook: Notebook) -> None:
    notebook.cell("K = 2\ndef g(x): return x * K\nsteps = [lambda x: g(x) + 1]")
    done = notebook.submit("r = steps[0](3)")
    assert notebook["r"] == 7
    assert set(done.capture.names) == {"steps", "g", "K"}
