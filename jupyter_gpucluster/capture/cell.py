"""From the text of a cell to a syntax tree in which nothing but Python is left.

IPython turns `!cmd`, `%magic` and `%%magic` into calls with strings. Where such a string is itself Python of this cell
(`%time`, `%%capture`, …) it is put in the place of the call, so that its names are found like any others.
"""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

Transform = Callable[[str], str]

FILENAME = "<cell>"
#: Magics whose text is Python that runs in the notebook's namespace, and such whose names stay inside it.
_INLINE = frozenset({"time", "prun", "capture", "memit", "mprun", "lprun"})
_APART = frozenset({"timeit"})
#: One option of the magics above, with its value.
_OPTION = re.compile(r"-[nrpltTsDRfmc](?:\s+|(?=\S))\S+\s*|--?[A-Za-z][\w-]*\s*")
#: Cell magics whose text is not Python, or runs in a process of its own.
NOT_PYTHON = frozenset((
    "bash", "sh", "script", "system", "sx", "!", "cmd", "html", "HTML", "javascript", "js", "markdown",
    "latex", "svg", "SVG", "perl", "ruby", "python", "python2", "python3", "pypy", "writefile", "file",
))  # fmt: skip


class MagicCall(NamedTuple):
    """`get_ipython().<method>(<arguments>)` as IPython writes it for a magic or a shell command."""

    method: str  # run_line_magic | run_cell_magic | system | getoutput
    arguments: tuple[str, ...]
    line: int


class Parsed(NamedTuple):
    """The tree, and the magics that are not Python."""

    tree: ast.Module
    magics: list[MagicCall]


@cache
def _standard_transform() -> Transform:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell  # type: ignore[no-untyped-call]


def default_transform() -> Transform:
    """How the running IPython reads a cell (with what the user registered), or IPython's own way where none runs."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return _standard_transform() if shell is None else shell.transform_cell


def parse(source: str, transform: Transform | None = None, first_line: int = 1) -> Parsed:
    """Parse a cell. Raises SyntaxError with the line that the user sees, when `source` starts at `first_line`."""
    text = source
    try:
        text = (transform or default_transform())(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the job itself will show them
            tree = ast.parse(text, FILENAME)
            compile(tree, FILENAME, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        raise _as_seen(error, source, text, first_line) from None
    except ValueError as error:  # null bytes, in Python 3.10
        raise _as_seen(SyntaxError(str(error)), source, text, first_line) from None
    inliner = _Inliner(transform)
    return Parsed(inliner.visit(tree), inliner.magics)


def _as_seen(error: SyntaxError, source: str, text: str, first_line: int) -> SyntaxError:
    """The same error with the line of the cell as it was typed."""
    typed, read = source.splitlines(), text.splitlines()

    def seen(line: int) -> int:
        return _line_before(line, typed, read) + first_line - 1

    if error.lineno is None:  # null bytes
        number = source[: source.find("\0") + 1].count("\n")
        return SyntaxError(error.msg, (FILENAME, first_line + number, 1, typed[number]))
    line = seen(error.lineno)
    message = re.sub(r"(?<=\b(?:on|at) line )\d+", lambda match: str(seen(int(match[0]))), error.msg)
    shown = typed[line - first_line] if 0 <= line - first_line < len(typed) else error.text
    end_line = None if error.end_lineno is None else seen(error.end_lineno)
    return type(error)(message, (FILENAME, line, error.offset, shown, end_line, error.end_offset))


def _line_before(line: int, typed: list[str], read: list[str]) -> int:
    """The line of the typed cell that became this line (both from 1); IPython drops empty and joins continued lines."""
    if len(typed) == len(read):
        return line
    matcher = difflib.SequenceMatcher(None, read, typed, autojunk=False)
    for _, start, end, typed_start, typed_end in matcher.get_opcodes():
        if start <= line - 1 < end:
            return min(typed_start + (line - 1 - start), max(typed_start, typed_end - 1)) + 1
    return min(line, max(1, len(typed)))


class _Inliner(ast.NodeTransformer):
    """Puts the Python of magics in their place and collects the rest of them."""

    def __init__(self, transform: Transform | None) -> None:
        self.magics: list[MagicCall] = []
        self._transform = transform

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        magic = _magic_of(node.value)
        if magic is None:
            return self.generic_visit(node)
        statements = self._python_of(magic)
        if statements is None:
            self.magics.append(magic)
            return node
        return statements or ast.copy_location(ast.Pass(), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        magic = _magic_of(node)
        if magic is None:
            return self.generic_visit(node)
        statements = self._python_of(magic)
        if statements is not None and len(statements) == 1 and isinstance(statements[0], ast.Expr):
            return statements[0].value
        self.magics.append(magic)
        return node

    def _python_of(self, magic: MagicCall) -> list[ast.stmt] | None:
        """The statements that a magic runs, or None when it runs no Python that could be read here."""
        name = magic.arguments[0] if magic.arguments else ""
        if not magic.method.startswith("run_") or name not in _INLINE | _APART:
            return None
        code = "".join(argument + "\n" for argument in self._code_in(magic))
        try:
            inner = parse(code, self._transform)
        except SyntaxError:
            return None
        self.magics += inner.magics
        body = inner.tree.body
        if name == "capture":
            body = [*_assignment(_OPTION.sub("", magic.arguments[1]).strip()), *body]
        if name in _APART:
            body = _called_function(body)
        for statement in body:
            for node in ast.walk(statement):
                if hasattr(node, "lineno"):
                    node.lineno = node.end_lineno = magic.line  # type: ignore[attr-defined]
        return body

    def _code_in(self, magic: MagicCall) -> list[str]:
        name, line, *rest = magic.arguments
        if name == "capture":
            return ["", *rest]
        return [line if name == "time" else _without_options(line), *rest]


def _without_options(line: str) -> str:
    line = line.lstrip()
    while line.startswith("-") and (match := _OPTION.match(line)):
        line = line[match.end() :]
    return line


def _magic_of(node: ast.expr) -> MagicCall | None:
    """`get_ipython().method('…', …)` with nothing but literal strings, else None."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr not in ("run_line_magic", "run_cell_magic", "system", "getoutput"):
        return None
    if not is_get_ipython(node.func.value):
        return None
    texts = [
        argument.value
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    return MagicCall(node.func.attr, tuple(texts), node.lineno) if len(texts) == len(node.args) else None


def is_get_ipython(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _assignment(name: str) -> list[ast.stmt]:
    return ast.parse(f"{name} = None").body if name.isidentifier() else []


def _called_function(body: list[ast.stmt]) -> list[ast.stmt]:
    """What runs in a namespace of its own reads the cell's names and assigns none of them."""
    (function,) = ast.parse("def _apart():\n    pass").body
    assert isinstance(function, ast.FunctionDef)
    function.body = body or function.body
    return [function, *ast.parse("_apart()\ndel _apart").body]
