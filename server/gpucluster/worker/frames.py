"""The log of an attempt: a sequence of framed records, the one truth from which every view is redrawn (DESIGN 3.6).

A frame is a fixed header and its payload, little-endian:

    magic     2 bytes  b"GF"
    version   u8       FRAME_VERSION
    kind      u8       Kind
    length    u32      payload bytes, at most MAX_PAYLOAD
    sequence  u64      0, 1, 2, … within (attempt, rank)
    time_us   u64      microseconds since the epoch
    crc32     u32      of the payload

Payloads: STDOUT and STDERR hold raw bytes as written; the other kinds hold a JSON object:
    DISPLAY   {"data": {mime: …}, "metadata": {…}, "display_id": str | null, "execute_result": bool}
    UPDATE    the same; replaces every display of that display_id
    CLEAR     {"wait": bool}
    ERROR     {"ename": str, "evalue": str, "traceback": [str, …]}
    STATUS    {"event": str, …}: up, started, truncated, suspended, resumed, notice, ended
A record's offset is the position of its frame in the file. A torn last frame (a kill in the middle of a write) is cut
off when the log is opened again.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

FRAME_VERSION = 1
MAGIC = b"GF"
HEADER = struct.Struct("<2sBBIQQI")
MAX_PAYLOAD = 64 << 20


class Kind(enum.IntEnum):
    STDOUT = 1
    STDERR = 2
    DISPLAY = 3
    UPDATE = 4
    CLEAR = 5
    ERROR = 6
    STATUS = 7


class BadFrame(ValueError):
    """The bytes at this place are no frame. `offset` counts from the start of what was given."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"byte {offset}: {why}")
        self.offset = offset


class Frame(NamedTuple):
    """One record. `offset` is where it begins, `end` where the next one does."""

    kind: Kind
    sequence: int
    time_us: int
    payload: bytes
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + HEADER.size + len(self.payload)


def encode_frame(kind: Kind, sequence: int, time_us: int, payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a log record of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    return (
        HEADER.pack(MAGIC, FRAME_VERSION, kind, len(payload), sequence, time_us, zlib.crc32(payload))
        + payload
    )


def iter_frames(data: bytes, base_offset: int = 0) -> Iterator[Frame]:
    """The whole frames in `data`, whose first byte stands at `base_offset`; an unfinished last one is left out.

    Raises BadFrame when the bytes are not frames at all.
    """
    position, size = 0, len(data)
    while size - position >= HEADER.size:
        magic, version, kind, length, sequence, time_us, crc = HEADER.unpack_from(data, position)
        if magic != MAGIC or version > FRAME_VERSION or length > MAX_PAYLOAD:
            raise BadFrame(base_offset + position, "no log record begins here")
        end = position + HEADER.size + length
        if end > size:
            return
        payload = data[position + HEADER.size : end]
        if zlib.crc32(payload) != crc:
            raise BadFrame(base_offset + position, "the record's check sum is wrong")
        yield Frame(Kind(kind), sequence, time_us, payload, base_offset + position)
        position = end
