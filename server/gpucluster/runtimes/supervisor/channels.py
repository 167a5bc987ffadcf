"""What the worker sends: packets on its message socket, and the raw pipes behind fd 1 and fd 2.

The order that a reader sees must be the order of writing. The worker waits until its socket is drained before a child
may write to the pipes (worker/protocol.py); the other way round it is on this side: how many packet bytes wait is
looked at *first*, then the pipes are drained, then exactly those bytes are taken. Whatever stood in a pipe before a
packet was sent is thereby logged before it, and nothing is taken as drained that was not.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator

from gpucluster.worker import protocol
from gpucluster.worker.bounds import MAX_REPORT_BYTES
from gpucluster.worker.frames import MAX_PAYLOAD, Kind

_HEADER = struct.Struct("<IB")
_CHUNK = 256 << 10
#: A packet over the limit of its kind is read and thrown away. What is not named here may fill a log record.
MAX_PACKET = MAX_PAYLOAD
_MAX_BY_KIND = {
    protocol.PACKET_STEP: MAX_REPORT_BYTES,
    protocol.PACKET_UP: 64 << 10,
    protocol.PACKET_NOTE: 64 << 10,
    Kind.ERROR: 8 << 20,
    Kind.CLEAR: 4 << 10,
    Kind.STATUS: 64 << 10,
}
_MAX_NOTED = 16


def readable_bytes(descriptor: int) -> int:
    """How many bytes wait in a pipe or stream socket."""
    amount = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, amount)
    return amount[0]


class RawPipe:
    """The reading end of the pipe behind the worker's fd 1 or fd 2."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        os.set_blocking(descriptor, False)

    def drain(self) -> Iterator[bytes]:
        """All that stood in the pipe at the time of the call; closes at its end."""
        waiting = readable_bytes(self.descriptor) if self.is_open else 0
        while self.is_open:
            try:
                data = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            yield data
            waiting -= len(data)
            if waiting <= 0:
                return

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.descriptor)


class LineReader:
    """A named pipe that any process of the task may write lines into; held open for both ways, so it has no end."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path, 0o600)
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def drain(self) -> Iterator[bytes]:
        """The lines that stood in the pipe at the time of the call."""
        waiting = readable_bytes(self.descriptor)
        while waiting > 0:
            try:
                data = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            waiting -= len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_REPORT_BYTES:  # no report, wherever it ends
                self._rest = self._rest[: MAX_REPORT_BYTES + 1]
            yield from lines


class PacketReader:
    """Cuts the bytes of the message socket into packets. Breaks no matter what comes: `failure` says what was wrong."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._skip = 0  # bytes of an oversized packet still to come
        self._oversized: list[int] = []  # kinds of packets thrown away
        self.failure: str | None = None
        self.is_open = True
        connection.setblocking(False)

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def waiting(self) -> int:
        """Bytes that can be taken now; 1 also at the end of the stream, so that `take` sees it."""
        return max(readable_bytes(self.descriptor), 1) if self.is_open else 0

    def take(self, amount: int) -> Iterator[tuple[int, bytes]]:
        """Take that many bytes and yield the packets (kind, payload) that are whole with them."""
        while amount > 0 and self.is_open:
            try:
                data = self._socket.recv(min(amount, _CHUNK))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ECONNRESET:
                    self.failure = str(error)
                data = b""
            if not data:
                self.close()
                return
            amount -= len(data)
            yield from self._cut(data)

    def take_oversized(self) -> list[int]:
        """The kinds of packets that were thrown away since the last call, as far as they were noted."""
        kinds, self._oversized = self._oversized, []
        return kinds

    def _cut(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= _HEADER.size:
            length, kind = _HEADER.unpack_from(self._buffer, position)
            end = position + _HEADER.size + length
            if length > _MAX_BY_KIND.get(kind, MAX_PACKET):
                if len(self._oversized) < _MAX_NOTED:
                    self._oversized.append(kind)
                self._skip = max(end - len(self._buffer), 0)
                position = min(end, len(self._buffer))
                continue
            if end > len(self._buffer):
                break
            yield kind, bytes(self._buffer[position + _HEADER.size : end])
            position = end
        del self._buffer[:position]

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._socket.close()
