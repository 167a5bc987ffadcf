"""`%load_ext jupyter_gpucluster`: the magics, and a warm start for the first submission.

Loading starts no scheduler. When one runs already, it is told, from a thread, which interpreter and environment the first
cell will want.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from gpucluster.api.environment import job_environment

from . import connection, context
from .magics import GPUClusterMagics

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

log = logging.getLogger("jupyter_gpucluster")


def load(shell: InteractiveShell) -> None:
    """Register the magics once."""
    if _registered(shell):
        return
    shell.register_magics(GPUClusterMagics)
    threading.Thread(target=_warm, name="gpucluster-warm", daemon=True).start()


def unload(shell: InteractiveShell) -> None:
    """Take the magics away again and close the connection."""
    for magics in _registered(shell):
        shell.configurables.remove(magics)
        for kind, names in magics.magics.items():
            for name in names:
                shell.magics_manager.magics[kind].pop(name, None)
        shell.magics_manager.registry.pop(type(magics).__name__, None)
    connection.disconnect()


def _registered(shell: InteractiveShell) -> list[Any]:
    return [each for each in shell.configurables if isinstance(each, GPUClusterMagics)]


def _warm() -> None:
    """A hint, so no failure of it is the user's concern; the first submission will say what is wrong."""
    from gpucluster.api.errors import GpuclusterError
    from gpucluster.api.schemas import WarmRequest

    client = connection.reachable()
    if client is None:
        return
    import sys

    try:
        client.warm(
            WarmRequest(
                interpreter=sys.executable or None,
                env=job_environment().open,
                cwd=context.working_directory(),
                sys_path=context.import_path(),
            )
        )
    except GpuclusterError as error:
        log.debug("no warm start: %s", error)
