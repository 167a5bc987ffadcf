"""`!command` and %pip in a job: output as on a terminal, in order, and no input to wait for.

IPython's own way gives the command a terminal to read from as well; with nobody to type, it would wait for ever.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios

_ROWS, _COLUMNS = 24, 80
_CHUNK_BYTES = 64 << 10
_POLL_S = 0.05
_END_PATIENCE_S = 1.0


def run_command(command: str) -> int:
    """Run it by /bin/sh and pass on what it writes. Returns the exit code, minus the signal's number if one ended it."""
    ours, theirs = pty.openpty()
    try:
        _make_raw(theirs)
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat", **os.environ},
        )
    finally:
        os.close(theirs)
    try:
        _pass_on(ours, process)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        os.close(ours)
    return -(code - 128) if code > 128 else code


def _make_raw(terminal: int) -> None:
    """Lines end as the command writes them, and are as wide as a terminal's."""
    mode = termios.tcgetattr(terminal)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", _ROWS, _COLUMNS, 0, 0))


def _pass_on(terminal: int, process: subprocess.Popen[bytes]) -> None:
    """Until the command has ended and all it wrote is taken; what it left in the background does not hold us."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while True:
        has_ended = process.poll() is not None
        if not select.select([terminal], [], [], 0 if has_ended else _POLL_S)[0]:
            if has_ended:
                break
            continue
        try:
            data = os.read(terminal, _CHUNK_BYTES)
        except OSError:  # EIO: the last writer is gone
            break
        if not data:
            break
        sys.stdout.write(decoder.decode(data))
    sys.stdout.write(decoder.decode(b"", final=True))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
