"""Names that a cell uses where its code does not show them: in strings, shell commands, other files.

They are not sent, only told (DESIGN section 4). Where the text is there to be read, the names in it are told one by one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .cell import NOT_PYTHON, MagicCall, is_get_ipython
from .flow import Flow, follow


class Hidden(NamedTuple):
    """A place where names hide. `names` is None when the text could not be read; `brings`: it may assign names."""

    where: str  # e.g. "eval(…)", "!cmd"
    line: int
    names: tuple[str, ...] | None
    brings: bool = False


#: Magics that run or read something in the notebook's namespace by themselves.
_RUNS_FILES = frozenset({"run", "load", "loadpy", "macro", "rerun", "recall", "store"})
_NAMESPACES = frozenset({"globals", "locals", "vars"})
_SHELL_NAMESPACES = frozenset({"user_ns", "user_global_ns", "user_module"})
_SHELL_RUNS = frozenset({"ev", "ex", "run_cell", "safe_execfile", "run_code"})
#: Calls whose text is Python over the caller's names, by the name of the package as people write it.
_EVALUATES = {"eval": {"pd", "pandas"}, "evaluate": {"ne", "numexpr"}}
_SQL = {"sql": {"duckdb"}, "query": {"duckdb"}, "execute": {"duckdb"}}


def find_hidden(tree: ast.Module, magics: Iterable[MagicCall]) -> tuple[Hidden, ...]:
    """All hiding places of a cell."""
    found = [place for magic in magics if (place := _in_magic(magic)) is not None]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _in_call(node)
        elif isinstance(node, (ast.Subscript, ast.Attribute)):
            found += _in_namespace(node)
    return tuple(dict.fromkeys(found))


def _in_magic(magic: MagicCall) -> Hidden | None:
    name = magic.arguments[0] if magic.arguments else ""
    if not magic.method.startswith("run_"):
        names = tuple(expanded_names(name))
        return Hidden("!" + name.partition(" ")[0], magic.line, names) if names else None
    is_cell = magic.method == "run_cell_magic"
    where = ("%%" if is_cell else "%") + name
    if name in _RUNS_FILES:
        return Hidden(where, magic.line, None, brings=True)
    if is_cell and name not in NOT_PYTHON:
        return Hidden(where, magic.line, None, brings=True)
    if name in ("pinfo", "pinfo2") and magic.arguments[1].isidentifier():
        return Hidden("?", magic.line, (magic.arguments[1],))
    names = tuple(expanded_names(magic.arguments[1]))
    return Hidden(where, magic.line, names) if names else None


def expanded_names(text: str) -> Iterator[str]:
    """Names in `{expression}` and `$name` of a command, as IPython replaces them."""
    for braces in re.findall(r"\{([^{}]+)\}", text):
        flow = _python(braces.partition("!")[0].partition(":")[0])
        yield from flow.reads if flow else ()
    yield from re.findall(r"(?<!\$)\$([A-Za-z_]\w*)", text)


def _python(text: str) -> Flow | None:
    """What a piece of Python reads and assigns, None when it is none."""
    try:
        return follow(ast.parse(text.strip()))
    except (SyntaxError, ValueError):
        return None


def _in_python(where: str, line: int, text: str | None, *, assigns: bool) -> Iterator[Hidden]:
    """Names of Python that stands in a string; `text` is None when the string is not there to be read."""
    flow = _python(text) if text is not None else None
    if flow is None:
        yield Hidden(where, line, None, brings=assigns)
        return
    if flow.reads:
        yield Hidden(where, line, flow.reads)
    if flow.assigned and assigns:
        yield Hidden(where, line, flow.assigned, brings=True)


def _in_call(call: ast.Call) -> Iterator[Hidden]:
    function, text = call.func, _literal(call.args[0] if call.args else None)
    if isinstance(function, ast.Name):
        if function.id in ("eval", "exec") and call.args:
            yield from _in_python(f"{function.id}(…)", call.lineno, text, assigns=function.id == "exec")
        return
    if not isinstance(function, ast.Attribute):
        return
    method, owner = function.attr, function.value
    owner_name = owner.id if isinstance(owner, ast.Name) else ""
    where = f".{method}(…)"
    if method in _SHELL_RUNS and is_get_ipython(owner):
        yield from _in_python(where, call.lineno, text, assigns=method != "ev")
    elif owner_name in _EVALUATES.get(method, ()):
        yield from _in_python(where, call.lineno, text, assigns=False)
    elif owner_name in _SQL.get(method, ()):
        yield Hidden(
            where, call.lineno, tuple(re.findall(r"\b[A-Za-z_]\w*", text)) if text is not None else None
        )
    elif method in ("query", "eval") and call.args:
        yield from _in_query(where, call.args[0], call.lineno)


def _in_query(where: str, argument: ast.expr, line: int) -> Iterator[Hidden]:
    """`df.query("a > @x")`: only what stands after an @ is a name of the notebook."""
    pieces = [
        node.value
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    names = tuple(name for piece in pieces for name in re.findall(r"@([A-Za-z_]\w*)", piece))
    if names:
        yield Hidden(where, line, names)


def _literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _in_namespace(node: ast.Subscript | ast.Attribute) -> Iterator[Hidden]:
    """`globals()["x"]`, `get_ipython().user_ns.get("x")` and, where no name can be read, the bare namespace."""
    if isinstance(node, ast.Subscript):
        where = _namespace(node.value)
        if where is not None:
            name = _literal(node.slice)
            brings = isinstance(node.ctx, ast.Store)
            yield Hidden(where, node.lineno, (name,) if name else None, brings)
    elif node.attr in ("get", "setdefault", "update", "items", "keys", "values", "pop"):
        where = _namespace(node.value)
        if where is not None:
            yield Hidden(where, node.lineno, None, node.attr in ("setdefault", "update"))


def _namespace(node: ast.expr) -> str | None:
    """How the namespace is written when `node` is the notebook's whole namespace."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return f"{node.func.id}()" if node.func.id in _NAMESPACES else None
    if isinstance(node, ast.Attribute) and node.attr in _SHELL_NAMESPACES and is_get_ipython(node.value):
        return f"get_ipython().{node.attr}"
    return None
