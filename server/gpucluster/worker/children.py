"""Tells an outbox when a child process is about to start, so that output keeps its order (protocol.py).

Forks are seen by `os.register_at_fork`; what starts a program without Python's fork is wrapped by name. An audit hook
would see them all too, but it is called for each `id()`: it makes `copy.deepcopy` twice as slow.
"""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import subprocess
from collections.abc import Callable
from typing import Any

from .asking import stand_in
from .outbox import Outbox

_OS_FUNCTIONS = ("system", "posix_spawn", "posix_spawnp", "execv", "execve")


def watch(outbox: Outbox) -> None:
    """From now on, `outbox` is drained before any child process of this one. Called once, in the worker."""
    os.register_at_fork(
        before=outbox.before_fork,
        after_in_parent=outbox.after_fork_in_parent,
        after_in_child=outbox.after_fork_in_child,
    )
    for name in _OS_FUNCTIONS:
        wrapper = _after(outbox.before_child, getattr(os, name))
        setattr(os, name, stand_in(wrapper, "os", name))
    fork_exec = _after(outbox.before_child, _posixsubprocess.fork_exec)
    _posixsubprocess.fork_exec = fork_exec
    if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and later keep their own reference
        subprocess._fork_exec = fork_exec


def _after(first: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        first()
        return function(*args, **kwargs)

    return wrapper
