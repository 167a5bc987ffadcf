"""Whatever a cell does when it runs, its names were found before: programs are made up, analysed, and then run.

What a program really reads from outside must be among the names that `analyse` would have sent, and what it really
assigns among those that would have come back.
"""

from __future__ import annotations

import textwrap
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpucluster.capture import analyse

NAMES = "abcde"


class Outside(int):
    """A value that the notebook holds, and under which name."""

    name: str


class Notebook(dict[str, Any]):
    """Tells which of its own values were read under their names."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()
        for name in NAMES:
            value = Outside(1)
            value.name = name
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Outside) and value.name == name:
            self.read.add(name)
        return value

    def changed(self) -> set[str]:
        values = ((name, self.get(name)) for name in self if name in NAMES)
        return {name for name, value in values if not (isinstance(value, Outside) and value.name == name)}


names = st.sampled_from(NAMES)


EXPRESSIONS = (
    "1", "{a}", "{a} + {b}", "({c} := {a})", "({a} and ({c} := {b}))", "(0 and ({c} := {b}))", "({a} if {b} else {c})",
    "sum({b} + {c} for {c} in range(2))", "sum([{a} for {a} in range({b})])", "len([{c} := {a} for _ in range(2)])",
    "(lambda {a}, k={b}: {a} + {c} + k)(1)",
)  # fmt: skip
SIMPLE = (
    "{a} = {value}", "{a} += {value}", "{a}, {b} = {value}, 2", "{value}", "del {a}", "{a} = {b} = {value}",
    "{a}: int = {value}", "raise ValueError", "import math as {a}; {a} = 3",
)  # fmt: skip
#: <1>, <2> stand for indented blocks.
COMPOUND = (
    "if {value}:\n<1>\nelse:\n<2>",
    "for {a} in range(2):\n<1>\n    if {b}: break\nelse:\n<2>",
    "for {a} in range(0):\n<1>",
    "while ({a} := {value}) and 0:\n<1>\nelse:\n<2>",
    "try:\n<1>\nexcept ValueError as {a}:\n<2>\nelse:\n    {c} = {b}\nfinally:\n    {b} = {value}",
    "try:\n<1>\nexcept Exception:\n<2>",
    "from contextlib import suppress\nwith suppress(Exception):\n<1>",
    "def f({a}={value}):\n<1>\n    return {b}\nf()",
    "def g():\n    global {a}\n    {a} = {value}\ng()",
    "def h():\n    return {a} + k()\ndef k():\n    return {b}\nif 1:\n<1>\nh()",
    "class C:\n    {a} = {value}\n    x = {a}\n    def m(self): return {a}\n<1>\nC().m()",
    "match {value}:\n    case 0 | 7: {a} = 1\n    case {b} if {a}: {a} = {b}\n    case _: {c} = {a}",
)


def filled(draw: st.DrawFn, template: str) -> str:
    a, b, c = (draw(st.sampled_from(NAMES)) for _ in range(3))
    value = draw(st.sampled_from(EXPRESSIONS)).format(a=c, b=a, c=b)
    return template.format(a=a, b=b, c=c, value=value)


@st.composite
def statements(draw: st.DrawFn, depth: int = 2) -> str:
    text = filled(draw, draw(st.sampled_from(SIMPLE + COMPOUND if depth else SIMPLE)))
    for mark in ("<1>", "<2>"):
        if mark in text:
            inner = draw(st.lists(statements(depth - 1), max_size=2))
            text = text.replace(mark, textwrap.indent("\n".join(inner) or "pass", "    "))
    return text


@settings(max_examples=300, deadline=None)
@given(st.lists(statements(), min_size=1, max_size=6))
def test_what_a_program_reads_and_assigns_was_found_before_it_ran(program: list[str]) -> None:
    source = "\n".join(program)
    try:
        found = analyse(source, transform=str)
    except SyntaxError:
        return  # such as a name that is a parameter and global
    notebook = Notebook()
    try:
        exec(compile(source, "<program>", "exec"), notebook)
    except Exception:
        pass  # what it has read and assigned until then counts all the same
    else:
        assert notebook.changed() <= set(found.assigns), source
    assert notebook.read <= set(found.reads), source
