"""How log records are shown in a terminal."""

from __future__ import annotations

import json

import pytest

from gpucluster.api.schemas import StreamItem
from gpucluster.cli_colors import Decolored, keeps_colors
from gpucluster.cli_output import Chunk, chunk_of, last_lines


def record(kind: str, payload: bytes | dict) -> StreamItem:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return StreamItem(type="record", kind=kind, payload=data)


def text_of(chunks) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def test_what_was_written_is_shown_as_it_was_written():
    assert chunk_of(record("stdout", b"\xff\x00a\r")) == Chunk(b"\xff\x00a\r", False)
    assert chunk_of(record("stderr", b"e")) == Chunk(b"e", True)


def test_display_shows_its_text_and_an_exception_its_traceback_on_standard_error():
    display = {"data": {"text/plain": "<Figure>", "image/png": "…"}}
    assert chunk_of(record("display", display)) == Chunk(b"<Figure>\n", False)
    assert chunk_of(record("display", {"data": {"text/plain": ["a\n", "b"]}})) == Chunk(b"a\nb\n", False)
    assert chunk_of(record("error", {"traceback": ["line 1", "line 2"]})) == Chunk(b"line 1\nline 2\n", True)


@pytest.mark.parametrize(
    "item",
    [
        record("status", {"event": "ended"}),
        record("clear", {"wait": True}),
        record("display", {"data": {"image/png": "…"}}),
        record("display", b"no json"),
        record("display", b"[]"),
    ],
)
def test_what_has_no_text_shows_nothing(item):
    assert chunk_of(item) is None


@pytest.mark.parametrize(
    ("parts", "count", "wanted", "enough"),
    [
        ([b"a\nb\nc\n"], 2, b"b\nc\n", True),
        ([b"a\nb\nc"], 2, b"b\nc", True),
        ([b"a\n", b"b", b"b\n", b"c\n"], 2, b"bb\nc\n", True),
        ([b"a\nb\n", b"c\n"], 1, b"c\n", True),
        ([b"a\n"], 5, b"a\n", False),
        ([], 5, b"", False),
        ([b"x\nlast without end"], 1, b"last without end", True),
    ],
)
def test_tail_is_counted_in_lines_however_they_were_written(parts, count, wanted, enough):
    lines, found = last_lines([Chunk(part, False) for part in parts], count)
    assert text_of(lines) == wanted
    assert found is enough


# ---- colours


class Stream:
    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("choice", "is_terminal", "kept"),
    [("auto", True, True), ("auto", False, False), ("always", False, True), ("never", True, False)],
)
def test_colours_go_to_a_terminal_unless_asked_otherwise(choice, is_terminal, kept):
    assert keeps_colors(choice, Stream(is_terminal)) is kept


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"\x1b[1;31mred\x1b[0m\n", b"red\n"),
        (b"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x07b", b"alinkb"),
        (b"\x1b[2K\x1b[1Gstep\r\x1b(B", b"step\r"),
        (b"\x1bPpicture\x1b\\after", b"after"),
        (b"\xff\x00a\r\n\t", b"\xff\x00a\r\n\t"),
        (b"an escape at the end \x1b", b"an escape at the end \x1b"),
        (b"\x1b[31", b"\x1b[31"),
        (b"\x1b]" + b"x" * 10_000, b"\x1b]" + b"x" * 10_000),
    ],
)
def test_escape_sequences_are_taken_out_wherever_the_log_is_cut(written, shown):
    for step in (1, 2, 3, len(written)):
        decolored = Decolored()
        pieces = [decolored.passed(written[start : start + step]) for start in range(0, len(written), step)]
        assert b"".join([*pieces, decolored.rest()]) == shown
