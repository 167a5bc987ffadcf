"""A figure of matplotlib that comes from another process is shown as a picture, as one made here is.

IPython learns how to show figures when the plotting backend is loaded, which the first figure that is made in a process does;
one that is only unpickled does not.
"""

from __future__ import annotations

import importlib
import sys

_BACKEND = "matplotlib_inline.backend_inline"


def prepare() -> None:
    """Load the notebook's backend where a notebook's shell runs; it looks itself whether it is the one in use."""
    ipython = sys.modules.get("IPython")
    if _BACKEND in sys.modules or ipython is None or ipython.get_ipython() is None:
        return
    try:
        importlib.import_module(_BACKEND)
    except ImportError:  # not installed beside this matplotlib: figures are then no pictures here anyway
        return
