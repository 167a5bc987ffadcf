"""Credentials in a call: wherever a function could carry one along, and what lets it pass."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gpucluster.api.errors import InvalidRequest
from jupyter_gpucluster.capture import collect
from jupyter_gpucluster.capture.calls import arguments_by_name, refuse_credentials_in_call
from jupyter_gpucluster.functions import call_text

TOKEN = "abcd1234efgh"


def notebook(source: str) -> dict[str, Any]:
    ns: dict[str, Any] = {"__name__": "__main__", "functools": functools, "TOKEN": TOKEN}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), ns)
    return ns


CALLS = {
    "a global": ("token = TOKEN\ndef f(): return token", (), {}, "token"),
    "a global of what it calls": ("token = TOKEN\ndef g(): return token\ndef f(): return g()", (), {}, "token"),
    "a closure": ("def make(token):\n    return lambda: token\nf = make(TOKEN)", (), {}, "token"),
    "a closure within a closure": (
        "def make(token):\n    g = lambda: token\n    return lambda: g()\nf = make(TOKEN)", (), {}, "token",
    ),
    "a default": ("def f(api_key=TOKEN): pass", (), {}, "api_key"),
    "a keyword's default": ("def f(*, api_key=TOKEN): pass", (), {}, "api_key"),
    "an argument": ("def f(x, password): pass", (1, "hunter2"), {}, "password"),
    "a keyword": ("def f(**options): pass", (), {"password": "hunter2"}, "password"),
    "one of many arguments": ("def f(*parts): pass", (1, {"password": "hunter2"}), {}, "parts[1]"),
    "a function among the arguments": (
        "token = TOKEN\ndef g(): return token\ndef f(h): pass\narg = g", ("arg",), {}, "token",
    ),
    "a partial": ("def g(password, x): pass\nf = functools.partial(g, 'hunter2')", (1,), {}, "password"),
    "a decorated function": (
        "token = TOKEN\ndef log(g):\n    @functools.wraps(g)\n    def w(*a): return g(*a)\n    return w\n"
        "@log\ndef f(): return token", (), {}, "token",
    ),
    "the object of a method": (
        "class Client:\n    def __init__(self): self.api_key = 'abcd1234'\n    def call(self): pass\nf = Client().call",
        (), {}, "Client",
    ),
    "a callable object": (
        "class Client:\n    def __init__(self): self.api_key = 'abcd1234'\n    def __call__(self): pass\nf = Client()",
        (), {}, "Client",
    ),
    "a method that uses a global": (
        "token = TOKEN\nclass Client:\n    def call(self): return token\nf = Client().call", (), {}, "token",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", CALLS)
def test_credential_in_a_call_is_refused_by_name_unless_allowed(place: str) -> None:
    source, args, kwargs, name = CALLS[place]
    ns = notebook(source)
    args = tuple(ns["arg"] if each == "arg" else each for each in args)
    with pytest.raises(InvalidRequest) as raised:
        refuse_credentials_in_call(ns["f"], args, kwargs, ns)
    assert raised.value.field == name
    assert f"include=['{name}']" in str(raised.value)
    refuse_credentials_in_call(ns["f"], args, kwargs, ns, allowed=[name])


def test_call_without_credentials_goes() -> None:
    ns = notebook("tokenizer = 'bert'\ndef f(x, max_tokens=5): return tokenizer, len(x), f")
    refuse_credentials_in_call(ns["f"], ("some text",), {"max_tokens": 7}, ns)
    refuse_credentials_in_call(functools.reduce, (max, [1, 2]), {}, ns)
    refuse_credentials_in_call(len, ([1],), {}, ns)


def test_arguments_are_named_by_their_parameters_as_far_as_there_are_any() -> None:
    def f(a: int, *rest: int, b: int = 0, **more: int) -> None: ...

    assert arguments_by_name(f, (1, 2, 3), {"b": 4, "c": 5}) == {
        "a": 1, "rest[0]": 2, "rest[1]": 3, "b": 4, "c": 5,
    }  # fmt: skip
    assert arguments_by_name(f, (1,), {"a": 2}) == {"args[0]": 1, "a": 2}


def test_credential_that_was_allowed_does_not_stand_in_the_text_of_the_job() -> None:
    def login(user: str, password: str) -> None: ...

    assert call_text(login, ("ada", "hunter2"), {}).endswith("login('ada', …)")
    assert call_text(login, ("ada",), {"password": "hunter2"}).endswith("login('ada', password=…)")


@pytest.mark.parametrize(
    "source",
    ["def make(token):\n    return lambda: token\nf = make(TOKEN)", "def f(api_key=TOKEN): return api_key"],
)
def test_credential_that_a_function_of_a_cell_holds_is_refused_with_it(source: str) -> None:
    ns = notebook(source)
    with pytest.raises(InvalidRequest) as raised:
        collect("f()", ns)
    assert raised.value.field == "f"
    assert "which looks like a credential" in raised.value.reason
    assert "f" in collect("f()", ns, include=["f"]).names
