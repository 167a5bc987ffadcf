"""Packets go out whole, once and in order, whatever interrupts them."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from gpucluster.worker.frames import MAX_PAYLOAD, Kind
from gpucluster.worker.outbox import CHUNK_BYTES, Outbox, as_plain_output


@pytest.fixture
def pair() -> Iterator[tuple[Outbox, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    yield Outbox(ours.fileno()), theirs
    ours.close()
    theirs.close()


def packets(reader: socket.socket, count: int | None = None) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    stream = reader.makefile("rb")
    while count is None or len(found) < count:
        header = stream.read(5)
        if not header:
            return found
        length, kind = struct.unpack("<IB", header)
        found.append((kind, stream.read(length)))
    return found


def test_a_line_is_one_packet(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, reader = pair
    for piece in (b"a", b" ", b"b", b"\n"):
        outbox.write(Kind.STDOUT, piece)
    assert packets(reader, 1) == [(Kind.STDOUT, b"a b\n")]


def test_another_stream_or_a_packet_ends_what_waits(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, reader = pair
    outbox.write(Kind.STDOUT, b"out")
    outbox.write(Kind.STDERR, b"err")
    outbox.send(Kind.CLEAR, b"{}")
    assert packets(reader, 3) == [(Kind.STDOUT, b"out"), (Kind.STDERR, b"err"), (Kind.CLEAR, b"{}")]


def test_an_unfinished_line_follows_by_itself(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, reader = pair
    outbox.write(Kind.STDOUT, b"loading")
    assert packets(reader, 1) == [(Kind.STDOUT, b"loading")]


def test_a_large_write_is_cut_between_characters(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, reader = pair
    text = ("x" + "€" * 100_000).encode()
    writer = threading.Thread(target=outbox.write, args=(Kind.STDOUT, text + b"\n"))
    writer.start()
    parts = [payload for _, payload in packets(reader, -(-len(text) // CHUNK_BYTES))]
    writer.join()
    assert b"".join(parts) == text + b"\n"
    assert all(part.decode() for part in parts)


def test_a_packet_over_the_limit_is_refused(pair: tuple[Outbox, socket.socket]) -> None:
    with pytest.raises(ValueError, match="over the limit"):
        pair[0].send(Kind.DISPLAY, bytes(MAX_PAYLOAD + 1))


class Interrupted(BaseException):
    pass


def test_interrupted_anywhere_the_stream_stays_whole(pair: tuple[Outbox, socket.socket]) -> None:
    """The system takes what it likes of a write, and a signal may follow any of them: the bytes still add up."""
    outbox, reader = pair
    chance = random.Random(5)

    def unreliable(descriptor: int, data: memoryview) -> int:
        if chance.random() < 0.3:
            raise Interrupted
        return os.write(descriptor, data[: chance.randint(1, 40)])

    outbox._write_out = unreliable  # type: ignore[method-assign, assignment]
    outbox._ticker.arm = lambda: None  # type: ignore[method-assign]
    found: list[tuple[int, bytes]] = []
    reading = threading.Thread(target=lambda: found.extend(packets(reader, 300)))
    reading.start()
    for number in range(300):
        with contextlib.suppress(Interrupted):
            outbox.write(Kind.STDOUT, b"line %d\n" % number)
    while outbox._queue:
        with contextlib.suppress(Interrupted):
            outbox.flush()
    reading.join()
    assert found == [(Kind.STDOUT, b"line %d\n" % number) for number in range(300)]


def test_draining_waits_until_all_is_taken(pair: tuple[Outbox, socket.socket]) -> None:
    outbox, reader = pair
    outbox.write(Kind.STDOUT, b"x\n")
    assert outbox.drain(0.01) is False
    packets(reader, 1)
    assert outbox.drain(10) is True


def test_a_child_writes_what_can_be_read_as_text() -> None:
    assert as_plain_output(Kind.STDERR, b"raw\xff") == (2, b"raw\xff")
    display = b'{"data": {"text/plain": "hi", "text/html": "<b>"}}'
    assert as_plain_output(Kind.DISPLAY, display) == (1, b"hi\n")
    assert as_plain_output(Kind.DISPLAY, b'{"data": {"text/html": "<b>"}}') == (1, b"")
    assert as_plain_output(Kind.ERROR, b'{"traceback": ["a", "b"]}') == (2, b"a\nb\n")
    assert as_plain_output(Kind.CLEAR, b'{"wait": true}') == (1, b"")
