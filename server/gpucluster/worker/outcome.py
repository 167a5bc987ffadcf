"""How a cell or call ended, and what both shells (shell.py, plain.py) share about it."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


@dataclasses.dataclass
class Outcome:
    """`exit_code` as of a shell; `value` is that of the last expression (or of the call) when `has_value`.

    `has_begun` False: nothing of the cell was run, because it is not valid Python.
    """

    exit_code: int = 0
    has_value: bool = False
    value: Any = None
    has_begun: bool = True


def exit_code_of(error: BaseException) -> int:
    """The exit code of a process that ends with this exception, as Python defines it."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if not isinstance(error, SystemExit):
        return EXIT_ERROR
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return EXIT_ERROR


def message_of(error: BaseException) -> str:
    """`str(error)`, also of an exception whose own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return "<the message of the exception cannot be shown>"
