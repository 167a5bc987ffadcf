"""Where code that goes by value comes from: checked over there before anything is made of it.

Bytecode belongs to one minor version of Python. Another one may crash over it, and not only when it runs.
"""

from __future__ import annotations

import sys
from typing import Any

try:
    import cloudpickle
except ImportError:
    cloudpickle = None


class CannotLoad(Exception):
    """What was pickled elsewhere cannot be made here; the text says why, in one sentence."""


class Origin:
    """A version of Python (major and minor) and of cloudpickle. In a pickle it is the check of itself."""

    def __init__(self, python: tuple[int, int], cloudpickle_version: str) -> None:
        self.python = python
        self.cloudpickle = cloudpickle_version

    def __reduce__(self) -> Any:
        return checked, (self.python, self.cloudpickle)


HERE = Origin((sys.version_info[0], sys.version_info[1]), getattr(cloudpickle, "__version__", ""))
#: Of the code that was loaded last.
last = HERE


def checked(python: tuple[int, int], cloudpickle_version: str) -> Origin:
    """Called by the pickle. Raises CannotLoad."""
    global last
    if python != HERE.python:
        there, here = (f"{major}.{minor}" for major, minor in (python, HERE.python))
        raise CannotLoad(
            f"functions and classes defined in Python {there} cannot run in the Python {here} here ({sys.executable}); "
            "use the same version on both sides, or send data alone"
        )
    last = Origin(python, cloudpickle_version)
    return last


def require(came_from: Any) -> None:
    """Salvaging goes on where a check failed, with something else in the place of an origin. Raises CannotLoad."""
    if not isinstance(came_from, Origin):
        raise CannotLoad("what it was defined by is not known")
