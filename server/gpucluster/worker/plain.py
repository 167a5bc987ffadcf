"""The shell where IPython is not installed: runs the cell, shows its last expression, its displays and its errors.

Magics do not work here, and the error of a cell that uses one says why.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dataclasses
import getpass  # noqa: F401 (asking.py replaces its function)
import inspect
import linecache
import re
import sys
import traceback
import types
from typing import Any

from . import asking, tracebacks
from .displays import display_payload, error_payload
from .frames import Kind
from .outbox import Outbox
from .outcome import Outcome, exit_code_of, message_of

#: Method of an object -> MIME type, as IPython's display protocol has them.
_RICH = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
}
_MAGIC = re.compile(r"^\s*[%!]", re.MULTILINE)


class PlainShell:
    """Runs cells with nothing but the standard library. The same interface as the IPython shell."""

    def __init__(self) -> None:
        self.main = types.ModuleType("__main__", "The namespace of the submitted cell.")
        self._outbox: Any = None
        self._label = "this job"

    def activate(self, outbox: Outbox, main: types.ModuleType, label: str) -> None:
        self._outbox = outbox
        self._label = label
        sys.modules["__main__"] = main
        main.__dict__["__builtins__"] = builtins
        builtins.display = self.display  # type: ignore[attr-defined]
        asking.refuse(RuntimeError)

    def display(self, *objects: Any) -> None:
        """Show objects by their rich representations."""
        for each in objects:
            self._outbox.send(Kind.DISPLAY, display_payload(_representations(each)))

    def run(self, source: str) -> Outcome:
        name = f"<cell of {self._label}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        namespace = self.main.__dict__
        try:
            body, last = _compiled(source, name)
        except SyntaxError as error:
            return dataclasses.replace(self._failed(error, source), has_begun=False)
        try:
            _execute(body, namespace)
            value = None if last is None else _execute(last, namespace)
        except BaseException as error:
            return self._failed(error, source)
        if value is None or (last is not None and _ends_quiet(source)):
            return Outcome()
        namespace["_"] = value
        payload = display_payload(_representations(value), execute_result=True)
        self._outbox.send(Kind.DISPLAY, payload)
        return Outcome(has_value=True, value=value)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call a function; a coroutine is awaited."""
        try:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        except BaseException as error:
            return self._failed(error, "")
        return Outcome(has_value=True, value=value)

    def _failed(self, error: BaseException, source: str) -> Outcome:
        if not isinstance(error, SystemExit):
            self.show_error(error)
            if isinstance(error, SyntaxError) and _MAGIC.search(source):
                print(
                    f"IPython is not installed in {sys.executable}: magics (%…) and !commands do not work in this job.",
                    file=sys.stderr,
                )
        return Outcome(exit_code_of(error))

    def show_error(self, error: BaseException) -> None:
        """Show an exception as its traceback, without frames of ours."""
        tracebacks.trim(error)
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = "".join(lines).rstrip().split("\n")
        self._outbox.send(Kind.ERROR, error_payload(type(error).__name__, message_of(error), text))


def _compiled(source: str, name: str) -> tuple[types.CodeType, types.CodeType | None]:
    """The cell's statements, and its last expression if it ends with one. Raises SyntaxError."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | flags)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = ast.Expression(tree.body.pop().value)
        last = compile(expression, name, "eval", flags)
    return compile(tree, name, "exec", flags), last


def _execute(code: types.CodeType, namespace: dict[str, Any]) -> Any:
    value = eval(code, namespace)
    return asyncio.run(value) if code.co_flags & inspect.CO_COROUTINE else value


def _ends_quiet(source: str) -> bool:
    """True when the cell's last token is a semicolon: the value is then not wanted."""
    import io
    import tokenize

    skipped = (tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline)]
    meaningful = [token for token in tokens if token.type not in skipped]
    return bool(meaningful) and meaningful[-1].string == ";"


def _representations(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": repr(value)}
    if isinstance(value, type):  # the methods are for its instances
        return data
    for method, mime in _RICH.items():
        if not callable(getattr(value, method, None)):
            continue
        try:
            content = getattr(value, method)()
        except Exception:  # the plain text stands; a broken rich form must not fail the cell
            continue
        if content is not None:
            data[mime] = content[0] if isinstance(content, tuple) else content
    return data


def build() -> PlainShell:
    return PlainShell()
