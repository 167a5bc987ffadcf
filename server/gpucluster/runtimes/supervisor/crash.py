"""What Python wrote when the worker's process crashed (a segmentation fault, say): the stacks of the cell, without the frames
of what runs the cell. It stands in a file of the task folder, since a process that crashes cannot choose.
"""

from __future__ import annotations

import os
import re

from gpucluster.worker import protocol
from gpucluster.worker.files import read_regular

_MAX_BYTES = 1 << 20
_FRAME = re.compile(r'  File "(.*)", line \d+ in ')
_IPYTHON = "/IPython/core/"


def read_crash(task_dir: str, bundle: str) -> bytes:
    """The text for the task's standard error; empty when nothing crashed."""
    try:
        data = read_regular(os.path.join(task_dir, protocol.CRASH), _MAX_BYTES)
    except OSError:
        return b""
    return trimmed(data.decode("utf-8", "replace"), bundle).encode("utf-8", "replace")


def trimmed(text: str, bundle: str) -> str:
    """Blocks of one thread each; those of threads of ours go, the others end where the cell was called."""
    blocks = text.split("\n\n")
    return "\n\n".join(kept for block in blocks if (kept := _trim(block.split("\n"), bundle)) is not None)


def _trim(lines: list[str], bundle: str) -> str | None:
    frames = [found[1] for line in lines if (found := _FRAME.match(line))]
    is_thread_of_ours = lines[0].startswith("Thread ") and any(_is_in(path, bundle) for path in frames)
    if is_thread_of_ours:
        return None
    while frames and (_is_in(frames[-1], bundle) or _IPYTHON in frames[-1]):
        frames.pop()
    kept, left = [], len(frames)
    for line in lines:
        is_frame = _FRAME.match(line) is not None
        if is_frame and left == 0:
            continue
        left -= is_frame
        kept.append(line)
    return "\n".join(kept)


def _is_in(path: str, bundle: str) -> bool:
    return path.startswith(os.path.join(bundle, ""))
