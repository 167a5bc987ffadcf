"""The worker's end of the message socket: packets in the order of writing (protocol.py, *Channels of the worker*).

Four things make this more than a `sendall`:

- A signal handler may raise in the middle of a send (KeyboardInterrupt, the notice to stop), or print. How many bytes
  went out is therefore noted by C code in the same breath as they are sent (`list.extend` over `map(os.write, …)`): no
  bytecode stands between, so no packet is ever torn or sent twice.
- Text is sent at each newline, so that a crash of the process loses no printed line; an unfinished line follows shortly.
- Before a child process starts, the socket is drained, so that what the child writes to fd 1 comes after it.
- A forked child leaves the socket to its parent at once and writes to fd 1 and fd 2, as other child processes do.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections import deque
from typing import Any

from .frames import MAX_PAYLOAD, Kind
from .ticker import Ticker

#: Exit code of a worker whose supervisor is gone: nobody is left to read what it says.
EXIT_ORPHANED = 75
CHUNK_BYTES = 64 << 10
FLUSH_S = 0.05
_CHILD_DRAIN_S = 1.0
_END_DRAIN_S = 10.0
_PACKET_HEADER = struct.Struct("<IB")
_STREAMS = (Kind.STDOUT, Kind.STDERR)


class _Packet:
    """`data` on its way; `sent` holds what each write took."""

    __slots__ = ("data", "sent")

    def __init__(self, kind: int, payload: bytes) -> None:
        self.data = memoryview(_PACKET_HEADER.pack(len(payload), kind) + payload)
        self.sent: list[int] = []


class Outbox:
    """Thread safe, safe in signal handlers, and aware of forks. Takes ownership of the socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, True)
        self._descriptor = descriptor
        self._queue: deque[_Packet] = deque()
        self._open_kind = Kind.STDOUT
        self._open: list[bytes] = []  # the unfinished line (or burst), all of `_open_kind`
        self._open_bytes = 0
        self._lock: Any = threading.RLock()
        self._ticker = Ticker(FLUSH_S, self.flush)
        self._was_ticking = False
        self._is_forking = False
        self.is_on_pipes = False

    def start(self) -> None:
        """Begin to look after unfinished lines; after the fork that made this process, and before the cell runs."""
        self._ticker.start()

    def write(self, kind: Kind, data: bytes) -> None:
        """Bytes of stdout or stderr. Blocks while the supervisor is slow."""
        if not data:
            return
        if self._is_sending():
            self._queue.append(_Packet(kind, data))
            self._ticker.arm()
            return
        with self._lock:
            if kind is not self._open_kind:
                self._seal()
                self._open_kind = kind
            self._open.append(data)
            self._open_bytes += len(data)
            if self._open_bytes < CHUNK_BYTES and b"\n" not in data:
                self._ticker.arm()
                return
            self._seal()
            self._send_queued()

    def send(self, kind: int, payload: bytes) -> None:
        """One packet, after everything written before. Raises ValueError when it is over MAX_PAYLOAD."""
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"a packet of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
        if self._is_sending():
            self._queue.append(_Packet(kind, payload))
            self._ticker.arm()
            return
        with self._lock:
            self._seal()
            self._queue.append(_Packet(kind, payload))
            self._send_queued()

    def flush(self) -> None:
        """Send what waits."""
        if self._is_sending():
            return
        with self._lock:
            self._seal()
            self._send_queued()

    def _is_sending(self) -> bool:
        """True in a signal handler that came while this very thread was sending: what it has to say must wait.

        Up to Python 3.10 an exception of a handler can strike between the end of a `with` block and the release. So a
        lock of ours, with none of its holders on the stack, is one that was left behind: it is released here.
        """
        if not self._lock._is_owned():
            return False
        if self._is_forking:
            return True
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code in _HOLDERS:
                return True
            frame = frame.f_back  # type: ignore[assignment]
        while self._lock._is_owned():
            self._lock.release()
        return False

    def _seal(self) -> None:
        """Turn the open line into packets, none cut within a UTF-8 character where that can be helped."""
        if not self._open:
            return
        parts, self._open, self._open_bytes = self._open, [], 0
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        start = 0
        while len(data) - start > CHUNK_BYTES:
            end = start + CHUNK_BYTES
            while end > start + CHUNK_BYTES - 3 and data[end] & 0xC0 == 0x80:
                end -= 1
            self._queue.append(_Packet(self._open_kind, data[start:end]))
            start = end
        self._queue.append(_Packet(self._open_kind, data[start:] if start else data))

    def _send_queued(self) -> None:
        """Send the queue's packets; interrupted at any point, the next call goes on with the very next byte."""
        queue = self._queue
        while queue:
            packet = queue[0]
            left = packet.data[sum(packet.sent) :] if packet.sent else packet.data
            if not left:
                queue.popleft()
                continue
            try:
                packet.sent.extend(map(self._write_out, (self._descriptor,), (left,)))
            except BlockingIOError:  # somebody made the shared socket non-blocking
                select.select((), (self._descriptor,), ())
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.ECONNRESET):
                    self._end_orphaned()
                self._use_pipes()
                os.write(2, f"the job's message socket was closed by the cell ({error.strerror})\n".encode())
                return self._send_queued()

    _write_out = staticmethod(os.write)

    def _end_orphaned(self) -> None:
        """The supervisor is dead: whatever is done from here on would be lost, and its GPUs are about to be given on."""
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(EXIT_ORPHANED)

    def drain(self, patience_s: float) -> bool:
        """Flush, then wait until the supervisor has taken everything. False when the patience ran out."""
        self.flush()
        if self.is_on_pipes:
            return True
        waiting = array.array("i", [0])
        deadline = time.monotonic() + patience_s
        pause_s = 0.00005
        while True:
            fcntl.ioctl(self._descriptor, termios.TIOCOUTQ, waiting)
            if not waiting[0]:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.005)

    def before_child(self) -> None:
        """Called before any child process starts."""
        if not self._is_sending():
            self.drain(_CHILD_DRAIN_S)

    def before_fork(self) -> None:
        """As `before_child`; no thread of ours and no half-done send goes into the child."""
        if not self._is_sending():
            self.drain(_CHILD_DRAIN_S)
            self._was_ticking = self._ticker.is_started
            self._ticker.pause()
        self._lock.acquire()
        self._is_forking = True

    def after_fork_in_parent(self) -> None:
        self._is_forking = False
        self._lock.release()
        if self._was_ticking:
            self._ticker.start()

    def after_fork_in_child(self) -> None:
        """The child's output goes to fd 1 and fd 2 from now on; the socket is its parent's alone."""
        self._lock = threading.RLock()
        self._is_forking = False
        self._ticker.forget()
        self._queue.clear()
        self._open, self._open_bytes = [], 0
        if not self.is_on_pipes:
            os.close(self._descriptor)
            self._use_pipes()

    def _use_pipes(self) -> None:
        self.is_on_pipes = True
        self._send_queued = self._write_to_pipes  # type: ignore[method-assign]

    def _write_to_pipes(self) -> None:
        while self._queue:
            packet = self._queue.popleft()
            _, kind = _PACKET_HEADER.unpack_from(packet.data)
            descriptor, data = as_plain_output(kind, bytes(packet.data[_PACKET_HEADER.size :]))
            while data:
                data = data[os.write(descriptor, data) :]

    def close(self) -> None:
        """Send and drain, at the end of the task. The socket itself closes with the process."""
        self.drain(_END_DRAIN_S)


#: The code that holds the lock.
_HOLDERS = frozenset(function.__code__ for function in (Outbox.write, Outbox.send, Outbox.flush))


def as_plain_output(kind: int, payload: bytes) -> tuple[int, bytes]:
    """What a forked child writes in place of a packet: (descriptor, bytes). Displays and errors as their plain text."""
    if kind in _STREAMS:
        return (1 if kind == Kind.STDOUT else 2), payload
    if kind in (Kind.DISPLAY, Kind.UPDATE):
        text = json.loads(payload)["data"].get("text/plain", "")
        return 1, f"{text}\n".encode("utf-8", "replace") if text else b""
    if kind == Kind.ERROR:
        return 2, ("\n".join(json.loads(payload)["traceback"]) + "\n").encode("utf-8", "replace")
    return 1, b""
