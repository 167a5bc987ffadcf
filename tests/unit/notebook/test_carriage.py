"""What is written over is left out, and only that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.cell_page import visible

from jupyter_gpucluster.carriage import VisibleCounter, collapsed

TEXT = st.text(alphabet="ab \r\n", max_size=40)


def test_progress_bar_keeps_its_last_state():
    assert collapsed("start\r 10%\r 20%\r100%\n") == "start\r100%\n"


def test_longer_line_shines_through_a_shorter_one():
    assert collapsed("\rlong line\rshort\rtiny") == "\rlong line\rshort\rtiny"


def test_windows_line_ends_stay():
    assert collapsed("one\r\ntwo\r\n") == "one\r\ntwo\r\n"


def test_colours_have_no_width_on_a_terminal_and_one_in_jupyterlab():
    assert collapsed("\r\x1b[32m10%\x1b[0m\r\x1b[32m20%\x1b[0m") == "\r\x1b[32m20%\x1b[0m"
    assert collapsed("\r\x1b[32m10%\x1b[0m\r20%") == "\r\x1b[32m10%\x1b[0m\r20%"


def test_colour_that_is_left_on_is_not_lost():
    assert collapsed("\r\x1b[31mred\rblue\rgreen") == "\r\x1b[31mred\rgreen"


def test_line_that_the_cursor_leaves_is_kept():
    assert collapsed("\rfirst\r\x1b[Aabove!\rback") == "\rfirst\r\x1b[Aabove!\rback"


@given(TEXT)
def test_collapsed_text_looks_the_same(text: str):
    assert visible(collapsed(text)) == visible(text)


@given(st.lists(TEXT, max_size=6))
def test_collapsing_pieces_as_they_come_looks_the_same(pieces: list[str]):
    whole = ""
    for piece in pieces:
        whole = collapsed(whole + piece)
    assert visible(whole) == visible("".join(pieces))


@given(st.lists(TEXT, max_size=6))
def test_visible_characters_are_counted_however_the_text_is_cut(pieces: list[str]):
    counter = VisibleCounter()
    assert sum(map(counter.add, pieces)) == len(visible("".join(pieces)))
