"""Run notebook cells as jobs on a shared GPU cluster. `%load_ext jupyter_gpucluster` brings `%%submit` and its family.

Light on purpose: a kernel, a Jupyter server and a worker may all import this package, each for a part of it only. So
everything here is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpucluster.worker import report

    from .connection import disconnect
    from .errors import (
        Detached,
        JobCancelled,
        JobError,
        JobFailed,
        JobLost,
        NotBack,
        Untrusted,
        WaitTimeout,
        Withdrawn,
    )
    from .functions import Executor, submit
    from .job import Job, jobs

__all__ = [
    "Detached",
    "Executor",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobLost",
    "NotBack",
    "Untrusted",
    "WaitTimeout",
    "Withdrawn",
    "disconnect",
    "jobs",
    "report",
    "submit",
]

#: Public name -> the module that holds it.
_LAZY = {
    "Detached": ".errors",
    "Executor": ".functions",
    "Job": ".job",
    "JobCancelled": ".errors",
    "JobError": ".errors",
    "JobFailed": ".errors",
    "JobLost": ".errors",
    "NotBack": ".errors",
    "Untrusted": ".errors",
    "WaitTimeout": ".errors",
    "Withdrawn": ".errors",
    "disconnect": ".connection",
    "jobs": ".job",
    "report": "gpucluster.worker",
    "submit": ".functions",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from gpucluster import __version__

        return __version__
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "__version__"})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext jupyter_gpucluster`: register the magics, and warm up a scheduler that runs already (in a thread)."""
    from . import extension

    extension.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext jupyter_gpucluster`."""
    from . import extension

    extension.unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from .server_extension import GPUClusterExtension

    return [{"module": "jupyter_gpucluster", "app": GPUClusterExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpucluster"}]
