"""Changed or only read? Digests before and after."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpucluster.worker.digest import digest

BUDGET = 1 << 26
X = np.random.RandomState(0).rand(60, 4)
Y = (X[:, 0] > 0.5).astype(int)


class Holder:
    count = 0

    def __init__(self) -> None:
        self.items = [1, {"k": (2, 3)}]

    @functools.cached_property
    def slow(self) -> int:
        return len(self.items)


def counter() -> Callable[[], None]:
    n = 0

    def bump() -> None:
        nonlocal n
        n += 1

    return bump


def frame() -> pd.DataFrame:
    data = pd.DataFrame(
        {"i": range(50), "f": 1.5, "s": ["a", "b"] * 25, "t": pd.date_range("2024", periods=50)}
    )
    data["late"] = data.i * 2.0
    data["cat"] = data.s.astype("category")
    return data


def read_frame(data: pd.DataFrame) -> None:
    data.describe()
    _ = data.values
    data.sort_values("f")
    data.groupby("s").i.sum()
    _ = data.loc[5], data["t"].max(), data.iloc[3:9], data.columns.get_loc("f"), data.index.is_unique
    data.query("i > 3")
    repr(data)


def set_cell(data: Any) -> None:
    data.iloc[3, 1] = 99.0


CASES: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("list", lambda: [1, [2]], lambda x: x[1], lambda x: x[1].append(3)),
    ("dict", lambda: {"a": {1, 2, "b"}}, lambda x: "b" in x["a"], lambda x: x["a"].add(9)),
    ("order", lambda: {"a": 1, "b": 2}, list, lambda x: x.update(a=x.pop("a"))),
    ("array", lambda: np.zeros((30, 30)), np.sum, lambda x: x.__setitem__((2, 2), 1)),
    ("big array", lambda: np.zeros((300, 300)), np.sum, lambda x: x.__setitem__((2, 2), 1)),
    ("strided", lambda: np.zeros((400, 400))[::2, ::2], np.sum, lambda x: x.__setitem__((199, 199), 1)),
    ("transposed", lambda: np.zeros((400, 400)).T, np.sum, lambda x: x.__setitem__((399, 0), 1)),
    ("objects", lambda: np.array([[1], "a", None], dtype=object), len, lambda x: x[0].append(1)),
    ("structured", lambda: np.zeros(3, dtype=[("a", int), ("b", float)]), len, lambda x: x["b"].__setitem__(1, 5)),
    ("generator", lambda: np.random.default_rng(0), lambda x: x.bit_generator, lambda x: x.random()),
    ("frame", frame, read_frame, set_cell),
    ("frame column", frame, read_frame, lambda x: x.__setitem__("new", 1)),
    ("frame category", frame, read_frame, lambda x: x.__setitem__("cat", "b")),
    ("frame of one block", lambda: pd.DataFrame(X), lambda x: (x.sum(), x.values), set_cell),
    ("frame index", frame, read_frame, lambda x: x.set_index("i", inplace=True)),
    ("series", lambda: frame().f, lambda x: (x.max(), x.values, repr(x)), lambda x: x.__setitem__(3, 9.0)),
    ("estimator", lambda: RandomForestClassifier(3), lambda x: x.get_params(), lambda x: x.fit(X, Y)),
    ("fitted", lambda: RandomForestClassifier(3).fit(X, Y), lambda x: x.predict(X), lambda x: x.fit(X, 1 - Y)),
    ("neighbours", lambda: KNeighborsClassifier().fit(X, Y), lambda x: x.predict(X), lambda x: x.fit(X, 1 - Y)),
    ("pipeline", lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X, Y), lambda x: x.predict(X),
     lambda x: x.set_params(kneighborsclassifier__n_neighbors=2)),
    ("object", Holder, lambda x: x.slow, lambda x: x.items[1].update(z=1)),
    ("attribute", Holder, lambda x: x.slow, lambda x: setattr(x, "new", 1)),
    ("closure", counter, lambda x: None, lambda x: x()),
    ("function attribute", counter, lambda x: None, lambda x: setattr(x, "calls", 1)),
    ("bytearray", lambda: bytearray(10), bytes, lambda x: x.extend(b"1")),
    ("number", lambda: [0.0], lambda x: x[0], lambda x: x.__setitem__(0, -0.0)),
    ("became unpicklable", lambda: [1], len, lambda x: x.append(threading.Lock())),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "read", "change"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_reading_leaves_the_digest_alone_and_a_change_changes_it(
    make: Callable[[], Any], read: Callable[[Any], Any], change: Callable[[Any], Any]
) -> None:
    value = make()
    before = digest(value, BUDGET)
    assert before is not None
    read(value)
    assert digest(value, BUDGET) == before
    change(value)
    after = digest(value, BUDGET)
    assert after is not None
    assert after != before


def notebook_class() -> Any:
    ns: dict[str, Any] = {"__name__": "__main__"}
    exec("class Net:\n    made = 0\n    def f(self): return 1", ns)
    return ns["Net"]


def test_class_is_compared_when_asked_about_and_by_identity_inside_others() -> None:
    cls = notebook_class()
    instance = cls()
    before = digest(cls, BUDGET), digest(instance, BUDGET)
    cls.made = 1
    after = digest(cls, BUDGET), digest(instance, BUDGET)
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_importing_a_submodule_does_not_change_a_function_that_uses_its_package() -> None:
    import sys

    ns: dict[str, Any] = {"__name__": "__main__"}
    exec("import xml\ndef f(): return xml.sax\n", ns)
    sys.modules.pop("xml.sax", None)
    before = digest(ns["f"], BUDGET)
    import xml.sax

    assert digest(ns["f"], BUDGET) == before
    assert xml.sax


def test_two_objects_of_equal_content_made_alike_have_one_digest() -> None:
    assert digest(frame(), BUDGET) == digest(frame(), BUDGET)


@pytest.mark.parametrize(
    "value",
    [np.zeros(2_000), [np.zeros(2_000)], np.zeros((2_000, 2))[:, 0], b"x" * 10_000, [b"x" * 10_000], list(range(10_000)),
     pd.DataFrame({"a": np.zeros(2_000)}), {str(i): i for i in range(5_000)}],
    ids=range(8),
)  # fmt: skip
def test_over_budget_is_none(value: Any) -> None:
    assert digest(value, 9_000) is None
    assert digest(value, 1 << 20) is not None


def test_no_second_copy_of_a_big_array_is_made() -> None:
    import tracemalloc

    arrays = [np.zeros(1 << 21), np.zeros((1 << 10, 1 << 12))[:, ::2]]
    tracemalloc.start()
    assert digest(arrays, 1 << 27)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
