"""For all tests."""

from __future__ import annotations

import signal

# A runner that was started in the background of a shell has SIGINT ignored, and so would every process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
