from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.runtimes.supervisor.channels import MAX_PACKET, LineReader, PacketReader, RawPipe
from gpucluster.worker import protocol

Channel = tuple[socket.socket, PacketReader]


@pytest.fixture
def channel() -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    reader = PacketReader(ours)
    yield theirs, reader
    theirs.close()
    reader.close()


def packet(kind: int, payload: bytes) -> bytes:
    return struct.pack("<IB", len(payload), kind) + payload


def taken(reader: PacketReader) -> list[tuple[int, bytes]]:
    return list(reader.take(reader.waiting()))


def test_packet_cut_anywhere_comes_out_whole(channel: Channel) -> None:
    theirs, reader = channel
    data = packet(1, b"hello") + packet(3, b"") + packet(2, b"x" * 100)
    found = []
    for place in range(len(data)):
        theirs.send(data[place : place + 1])
        found += taken(reader)
    assert found == [(1, b"hello"), (3, b""), (2, b"x" * 100)]


def test_only_what_waited_is_taken(channel: Channel) -> None:
    theirs, reader = channel
    theirs.send(packet(1, b"early"))
    waiting = reader.waiting()
    theirs.send(packet(1, b"late"))
    assert list(reader.take(waiting)) == [(1, b"early")]
    assert taken(reader) == [(1, b"late")]


def test_packet_that_is_too_large_is_skipped_and_counted(channel: Channel) -> None:
    theirs, reader = channel
    theirs.send(struct.pack("<IB", MAX_PACKET + 1, 3) + b"x")
    assert taken(reader) == []
    left = MAX_PACKET
    while left:
        sent = theirs.send(b"x" * min(left, 64 << 10))
        left -= sent
        assert taken(reader) == []
    theirs.send(packet(1, b"after"))
    assert taken(reader) == [(1, b"after")]
    assert reader.take_oversized() == [3]
    assert reader.take_oversized() == []


def test_packets_have_limits_by_their_kind(channel: Channel) -> None:
    theirs, reader = channel
    theirs.send(packet(protocol.PACKET_STEP, b"x" * 5000) + packet(1, b"y" * 5000))
    assert taken(reader) == [(1, b"y" * 5000)]
    assert reader.take_oversized() == [protocol.PACKET_STEP]


def test_end_of_the_socket_is_seen(channel: Channel) -> None:
    theirs, reader = channel
    theirs.send(packet(1, b"last"))
    theirs.close()
    assert taken(reader) == [(1, b"last")]
    assert taken(reader) == []
    assert not reader.is_open
    assert reader.failure is None


def test_raw_pipe_gives_what_stands_in_it_and_ends() -> None:
    reader, writer = os.pipe()
    pipe = RawPipe(reader)
    assert list(pipe.drain()) == []
    os.write(writer, b"one")
    assert b"".join(pipe.drain()) == b"one"
    os.write(writer, b"two")
    os.close(writer)
    assert b"".join(pipe.drain()) == b"two"
    assert list(pipe.drain()) == []
    assert not pipe.is_open


def test_lines_of_a_named_pipe_come_whole(tmp_path: Path) -> None:
    reader = LineReader(str(tmp_path / "fifo"))
    writer = os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, b'{"a": 1}\n{"b"')
    assert list(reader.drain()) == [b'{"a": 1}']
    os.write(writer, b": 2}\n")
    assert list(reader.drain()) == [b'{"b": 2}']
    os.close(writer)
    assert list(reader.drain()) == []
    os.close(reader.descriptor)


def test_a_line_without_end_does_not_pile_up_and_is_dropped_as_one(tmp_path: Path) -> None:
    reader = LineReader(str(tmp_path / "fifo"))
    writer = os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)
    for _ in range(20):
        os.write(writer, b"x" * 4000)
        assert list(reader.drain()) == []
    os.write(writer, b"\n{}\n")
    long, short = reader.drain()
    assert 4000 < len(long) < 10_000
    assert short == b"{}"
    os.close(writer)
    os.close(reader.descriptor)
