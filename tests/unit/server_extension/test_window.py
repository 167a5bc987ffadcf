"""The window of a channel, and how its messages and lines are put together."""

from __future__ import annotations

import msgspec
import pytest

from gpucluster.api.errors import InvalidRequest, TooLarge, Unavailable
from jupyter_gpucluster.server_extension.link import LineReader
from jupyter_gpucluster.server_extension.messages import MESSAGE_BYTES, WINDOW, Items
from jupyter_gpucluster.server_extension.routes import is_streamed
from jupyter_gpucluster.server_extension.streams import items_message
from jupyter_gpucluster.server_extension.window import Window


def window_with(*lines: bytes, messages: int = 2, message_bytes: int = 10) -> Window:
    window = Window(messages, message_bytes)
    for line in lines:
        window.add(line)
    return window


def test_lines_that_wait_share_a_message_up_to_its_size() -> None:
    window = window_with(b"aaaa", b"bbbb", b"cccc")
    assert window.take() == [b"aaaa", b"bbbb"]
    assert window.take() == [b"cccc"]
    assert window.is_empty


def test_line_that_is_longer_than_a_message_has_one_of_its_own() -> None:
    window = window_with(b"a", b"b" * 50, b"c")
    assert window.take() == [b"a"]
    assert window.take() == [b"b" * 50]
    window.acknowledge(1)
    assert window.take() == [b"c"]


def test_nothing_is_sent_beyond_the_window_until_the_page_acknowledges() -> None:
    window = window_with(b"a" * 10, b"b" * 10, b"c" * 10)
    assert [window.take(), window.take()] == [[b"a" * 10], [b"b" * 10]]
    assert window.under_way == 2
    assert window.take() == []
    assert not window.is_empty
    window.acknowledge(1)
    assert window.take() == [b"c" * 10]
    assert window.under_way == 2


def test_window_is_full_when_a_message_of_lines_waits() -> None:
    window = window_with(b"aaaa", b"bbbb")
    assert not window.is_full
    window.add(b"cc")
    assert window.is_full
    window.take()
    assert not window.is_full


def test_nothing_waits_nothing_is_taken() -> None:
    window = Window()
    assert window.take() == []
    assert window.under_way == 0


@pytest.mark.parametrize("count", [0, -1, 3])
def test_acknowledging_what_is_not_under_way_names_the_field(count: int) -> None:
    window = window_with(b"a" * 10, b"b" * 10)
    window.take(), window.take()
    with pytest.raises(InvalidRequest) as refused:
        window.acknowledge(count)
    assert refused.value.field == "count"
    assert window.under_way == 2


def test_window_is_of_the_protocols_size_unless_told_otherwise() -> None:
    window = Window()
    for _ in range(WINDOW + 1):
        window.add(b"x" * MESSAGE_BYTES)
    sent = 0
    while window.take():
        sent += 1
    assert sent == WINDOW


def test_message_is_the_one_of_the_protocol() -> None:
    lines = [b'{"a":1}', '{"ü":[null,"]}"]}'.encode()]
    expected = Items(channel=7, items=[msgspec.Raw(line) for line in lines])
    assert items_message(7, lines) == msgspec.json.encode(expected)


# ---- lines


def test_lines_are_put_together_from_pieces() -> None:
    reader = LineReader()
    pieces = [b'{"a', b'":', b'1}\n{"b":2}\n\n{"c"', b":3}\n"]
    assert [reader.take(piece) for piece in pieces] == [[], [], [b'{"a":1}', b'{"b":2}'], [b'{"c":3}']]
    reader.finish()


def test_stream_that_ends_within_a_line_is_broken() -> None:
    reader = LineReader()
    reader.take(b'{"a":1}\n{"b"')
    with pytest.raises(Unavailable):
        reader.finish()


def test_line_without_end_does_not_fill_memory() -> None:
    reader = LineReader(line_bytes=10)
    reader.take(b"x" * 10)
    with pytest.raises(TooLarge):
        reader.take(b"x")


# ---- what may be a channel

JOB = "0" * 26


@pytest.mark.parametrize("path", ["live", "events", f"jobs/{JOB}/output", f"jobs/{JOB}/log"])
def test_streams_may_be_channels(path: str) -> None:
    assert is_streamed(path)


@pytest.mark.parametrize(
    "path",
    ["", "status", "jobs", f"jobs/{JOB}", f"jobs/{JOB}/source", f"jobs/{JOB}/log/", "jobs/../output", "events/ws", "live\n",
     "/live", "live?after=1", f"jobs/{JOB}/../{JOB}/log", "stop"],
)  # fmt: skip
def test_nothing_else_may(path: str) -> None:
    assert not is_streamed(path)
