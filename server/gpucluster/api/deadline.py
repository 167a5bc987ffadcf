"""The end of a process that was told to end: in order, but not later than a deadline.

A thread that hangs on a file system that is away cannot be ended, and Python would wait for it for ever. Nothing is lost
by not waiting: the scheduler may be killed at any instant.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback

log = logging.getLogger("gpucluster.service")


def end_within(patience_s: float, code: int) -> None:
    """End this process with `code` after that many seconds, wherever it hangs then; say in the log where that is."""
    thread = threading.Thread(target=_end, args=(patience_s, code), name="deadline", daemon=True)
    thread.start()


def _end(patience_s: float, code: int) -> None:
    time.sleep(patience_s)
    log.warning("did not end in order within %g s, ends now; still busy: %s", patience_s, _what_hangs())
    for handler in [*log.handlers, *logging.getLogger().handlers]:
        handler.flush()
    os._exit(code)


def _what_hangs() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    places = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            last = traceback.extract_stack(frame)[-1]
            places.append(f"{names.get(ident, ident)} in {last.name} ({last.filename}:{last.lineno})")
    return "; ".join(places)
