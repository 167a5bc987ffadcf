"""What goes with a cell, what is refused, what is warned about."""

from __future__ import annotations

import hashlib
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest

from gpucluster.api.errors import InvalidRequest
from gpucluster.worker import namespace, pickling
from jupyter_gpucluster.capture import collect
from jupyter_gpucluster.capture.credentials import credential_in
from jupyter_gpucluster.capture.sizes import SizeEstimate, readable


def notebook(source: Any = "", **values: Any) -> dict[str, Any]:
    ns: dict[str, Any] = {"__name__": "__main__", **values}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), ns)
    return ns


def refused(source: str, ns: dict[str, Any], **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        collect(source, ns, **options)
    return raised.value


# ---- names


def test_manifest_names_blobs_by_their_content() -> None:
    ns = notebook(X=np.zeros(20_000), n=3)
    capture = collect("X[n]", ns)
    manifest = capture.manifest
    assert manifest is not None
    assert manifest.names == ("X", "n")
    assert [*capture.blobs] == [manifest.pickle, *manifest.buffers]
    assert all(hashlib.sha256(content).hexdigest() == sha for sha, content in capture.blobs.items())
    assert (
        manifest.total_bytes == capture.total_bytes == sum(len(content) for content in capture.blobs.values())
    )


def test_big_arrays_are_not_copied() -> None:
    ns = notebook(X=np.zeros(20_000))
    capture = collect("X", ns)
    assert capture.manifest is not None
    ns["X"][0] = 1
    assert np.frombuffer(capture.blobs[capture.manifest.buffers[0]])[0] == 1


def test_cell_that_needs_nothing_sends_nothing() -> None:
    capture = collect("x = len('abc')", notebook())
    assert (capture.manifest, capture.blobs, capture.total_bytes) == (None, {}, 0)
    assert capture.outputs == ("x",)


def test_kinds_are_told() -> None:
    ns = notebook("import math\ndef f(): pass\nclass C: pass\nc = C()")
    assert collect("math, f, C, c, f", ns).names == {
        "math": "module",
        "f": "function",
        "C": "class",
        "c": "value",
    }


def test_names_in_and_out_can_be_added() -> None:
    capture = collect("eval(code)", notebook(code="hidden", hidden=1), include=["hidden"], outputs=["made"])
    assert set(capture.names) == {"hidden", "code"}
    assert capture.outputs == ("made",)


def test_name_to_be_sent_that_is_not_there_is_refused() -> None:
    error = refused("1", notebook(), include=["nothing"])
    assert error.field == "nothing"
    assert "not defined in this notebook" in error.reason


def test_undefined_name_is_a_warning() -> None:
    assert collect("foo + len(x)", notebook(x=[1])).warnings == (
        "foo is not defined, neither in this notebook nor in the cell",
    )
    assert (
        collect("from m import *\nfoo", notebook())
        .warnings[0]
        .startswith("names that `from m import *` brings")
    )
    assert not any("foo" in warning for warning in collect("%run setup.py\nfoo", notebook()).warnings)


def test_ipythons_own_names_stay_and_what_the_user_made_of_them_goes() -> None:
    own = {
        "In": ["", "x"],
        "_ih": [],
        "_i3": "x",
        "get_ipython": print,
        "exit": print,
        "open": open,
        "_dh": ["/"],
    }
    capture = collect("In, _ih, _i3, get_ipython(), exit, open, _dh, __name__, display", notebook(**own))
    assert capture.names == {}
    assert len(capture.warnings) == 4  # the histories
    assert "In" in collect("In", notebook(**own), include=["In"]).names
    assert collect("open(1)", notebook("def open(x): return x")).names == {"open": "function"}


def test_last_results_that_are_read_go_and_those_that_are_assigned_do_not_come_back() -> None:
    ns = notebook(_=1, __=2, _7=3, Out={1: "a", 2: "b"})
    assert collect("_ + __ + _7", ns).names == {"_": "value", "__": "value", "_7": "value"}
    capture = collect("Out[2]", ns)
    assert capture.manifest is not None
    assert pickling.load(capture.blobs[capture.manifest.pickle]) == {"Out": {2: "b"}}
    assert collect("for _ in range(3): x = 1", ns).outputs == ("x",)


def test_only_what_may_change_is_compared() -> None:
    ns = notebook(
        "import math\ndef f(): pass\nclass C: pass",
        n=1, s="a", none=None, t=(1, "a"), tl=(1, []), items=[1], a=np.zeros(3), builtin=len, path=threading.Event,
    )  # fmt: skip
    capture = collect("math, f, C, n, s, none, t, tl, items, a, builtin, path\nitems = 3", ns)
    assert capture.mutable_inputs == ("f", "C", "tl", "a")


def test_global_that_a_function_assigns_is_compared_or_comes_back() -> None:
    ns = notebook("n = 1\ndef f():\n    global n, new\n    n += 1; new = 2")
    capture = collect("f()", ns)
    assert set(capture.names) == {"f", "n"}
    assert "n" in capture.mutable_inputs
    assert capture.outputs == ("new",)


def test_functions_that_hide_names_are_warned_about() -> None:
    ns = notebook("def f(): return eval('K')\nK = 1")
    assert collect("f()", ns).warnings == (
        "f calls eval(…): names inside it were not searched; add those it needs with --in",
    )


def test_hidden_names_are_told_only_if_the_notebook_holds_them_and_they_do_not_go() -> None:
    ns = notebook(x=1, y=2, z=3, df="df")
    capture = collect("df.query('a > @x and @y')\nz = 5\nprint(y)\n!ls {z} $HOME", ns)
    assert capture.warnings == ("x: used only inside .query(…) in line 1, so not sent; add --in x",)
    assert collect("!ls {x}", ns, include=["x"]).warnings == ()


# ---- refused


def test_obstacle_is_named_rather_than_what_uses_it() -> None:
    ns = notebook("import threading\nlock = threading.Lock()\ndef f(): return lock\nheld = [lock]\nx = 1")
    error = refused("f(); held; x", ns)
    assert error.field == "lock"
    assert error.reason.startswith("a lock cannot travel to another process; make it inside the cell")
    assert "f: f, which uses lock: a lock" in str(error)
    assert "held: held[0]: a lock" in str(error)


def test_obstacle_behind_a_name_that_the_cell_may_assign_itself_is_only_warned_about() -> None:
    ns = notebook(f=threading.Lock())
    capture = collect("for f in [1, 2]:\n    pass\nprint(f)", ns)
    assert capture.names == {}
    assert capture.warnings == (
        "f was not sent: a lock cannot travel to another process; make it inside the cell, or leave it out of the object by "
        "__getstate__",
    )


def test_obstacle_that_a_function_uses_and_the_cell_replaces_is_only_warned_about() -> None:
    ns = notebook("import threading\nsource = threading.Lock()\ndef f(): return source")
    capture = collect("source = [1]\nr = f()", ns)
    assert set(capture.names) == {"f"}
    assert capture.warnings[0].startswith("source was not sent: a lock")


def test_over_budget_names_the_biggest() -> None:
    error = refused("X, y, z", notebook(X=np.zeros(300_000), y=np.zeros(100_000), z=1), limit_bytes=1 << 20)
    assert error.field == "X"
    assert "about 3.1 MiB, over the budget of 1.0 MiB (X 2.3 MiB, y 781 KiB" in error.reason
    assert "Load it inside the cell" in str(error)


def test_over_budget_that_only_pickling_shows_is_refused_too() -> None:
    class Small:
        def __reduce__(self) -> tuple[type, tuple[bytes]]:
            return bytes, (b"x" * 2_000_000,)

    error = refused("s", notebook(s=Small()), limit_bytes=1 << 20)
    assert error.field == "s"
    assert "more than 1.0 MiB" in error.reason


# ---- credentials


SK = "sk-" + "a1" * 16
JWT = ".".join(["eyJ" + "a" * 20, "eyJ" + "b" * 20, "c" * 20])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", "x"), ("API_KEY", "x"), ("openaiApiKey", "x"), ("password", "hunter2"), ("db_password", "x"), ("PASSWD", "x"),
        ("secret", "x"), ("client_secret", b"x"), ("access_token", "abcdef0123"), ("token", "abcdef0123"), ("private_key", "x"),
        ("credentials", {"user": "a", "key": "b"}), ("aws_secret_access_key", "x"), ("credential", "x"),
        ("x", SK), ("x", "ghp_" + "a" * 36), ("x", "AKIA" + "A1" * 8), ("x", "xoxb-123456789-abc"), ("x", JWT),
        ("x", "-----BEGIN RSA PRIVATE KEY-----\nabc"), ("x", f"curl -H 'Authorization: {SK}'"), ("x", b"hf_" + b"a" * 34),
        ("config", {"password": "x"}), ("config", {"url": "a", "k": SK}), ("items", ["a", SK]),
        ("client", types.SimpleNamespace(api_key="x")), ("pair", ("user", "github_pat_" + "a" * 40)),
    ],
)  # fmt: skip
def test_what_looks_like_a_credential_is_refused_by_name_unless_asked_for(name: str, value: Any) -> None:
    ns = notebook(**{name: value})
    error = refused(f"print({name})", ns)
    assert error.field == name
    assert "looks like a credential" in error.reason
    assert f"--in {name}" in str(error)
    assert name in collect(f"print({name})", ns, include=[name]).names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokenizer", "bert-base-uncased"), ("tokens", ["the", "cat"]), ("n_tokens", "12345678"), ("pad_token", "<padding>"),
        ("token", "<pad>"), ("token", "the"), ("token_ids", [1, 2]), ("token_type", "wordpiece"), ("max_token", 512),
        ("eos_token", "endoftext"), ("password", ""), ("secret_size", 5), ("password_file", "/etc/pw"), ("api_key_name", "X_KEY"),
        ("passwords_seen", 3), ("keyboard", "x"), ("key", "x"), ("secretary", "Ann"), ("text", "ask-" + "b" * 30),
        ("x", "sk-short"),        ("config", {"lr": 0.1, "name": "x"}), ("token_embedding", np.zeros(3)), ("monkey", "x"),
        ("api", "x"),
    ],
)  # fmt: skip
def test_what_does_not_look_like_a_credential_goes(name: str, value: Any) -> None:
    assert credential_in(name, value) is None
    assert name in collect(f"print({name})", notebook(**{name: value})).names


def test_credential_that_a_function_uses_is_refused_too() -> None:
    ns = notebook("API_KEY = 'x'\ndef f(): return API_KEY")
    assert refused("f()", ns).field == "API_KEY"


def test_credential_that_a_function_deep_inside_a_value_uses_is_refused_too() -> None:
    ns = notebook("API_KEY = 'x'\nsteps = {'a': [lambda: API_KEY]}")
    assert refused("steps['a'][0]()", ns).field == "API_KEY"


def test_credential_in_a_class_of_the_notebook_is_refused_with_it_and_with_its_instances() -> None:
    ns = notebook("class Config:\n    api_key = 'x'\nconfig = Config()")
    assert refused("Config", ns).field == "Config"
    assert refused("config", ns).field == "config"


def test_credential_behind_a_name_that_the_cell_may_assign_itself_stays() -> None:
    capture = collect(
        "for token in words:\n    pass\nprint(token)", notebook(token="abcdef0123", words=["a"])
    )
    assert set(capture.names) == {"words"}
    assert "token was not sent: it looks like a credential" in capture.warnings[0]


def test_credential_in_the_text_of_the_cell_is_warned_about() -> None:
    assert any("a secret key (sk-…)" in warning for warning in collect(f"key = '{SK}'", notebook()).warnings)


# ---- sizes


def test_sizes_are_estimated_without_pickling() -> None:
    import pandas as pd

    array = np.zeros(1_000_000)
    frame = pd.DataFrame({"a": array, "b": array})

    class Holder:
        def __init__(self) -> None:
            self.data = {"x": [array]}

    words = [f"word {i}" * 10 for i in range(50_000)]
    for value, expected in (
        (array, 8e6), (frame, 16e6), (Holder(), 8e6), ([array] * 1000, 8e6), ({"a": array, "b": array}, 8e6),
        (words, sum(map(len, words))), ("x" * 1_000_000, 1e6), (np.array(words, dtype=object), sum(map(len, words))),
        ({i: "x" * 100 for i in range(20_000)}, 2e6), (sys, 0), (len, 0), (3, 0),
    ):  # fmt: skip
        assert SizeEstimate().of(value) == pytest.approx(expected, rel=0.8, abs=500)


def test_what_two_names_share_is_counted_once() -> None:
    estimate, array = SizeEstimate(), np.zeros(1000)
    assert (estimate.of(array), estimate.of(array)) == (8000, 0)


def test_sizes_are_written_for_people() -> None:
    assert [readable(size) for size in (5, 2048, 150 << 10, 5 << 30, 3 << 40)] == [
        "5 bytes", "2.0 KiB", "150 KiB", "5.0 GiB", "3.0 TiB",
    ]  # fmt: skip


def test_submodules_that_the_cell_reaches_are_imported_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import xml.dom.minidom

    capture = collect("xml.dom.minidom.parse", notebook(xml=xml))
    assert capture.manifest is not None
    data = capture.blobs[capture.manifest.pickle]
    assert b"xml.dom.minidom" in data
    namespace.bind({})
    assert pickling.load(data)["xml"] is xml
