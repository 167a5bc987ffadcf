"""Steps that wait: few, and with the same end as all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpucluster.drawing import CellOp
from jupyter_gpucluster.steps import Steps


def taken(*ops: CellOp) -> list[CellOp]:
    steps = Steps()
    for op in ops:
        steps.add(op)
    return steps.take()


def text(text: str, name: str = "stdout") -> CellOp:
    return CellOp(op="stream", name=name, text=text)


def display(shown: str, display_id: str | None = None) -> CellOp:
    return CellOp(op="display", data={"text/plain": shown}, display_id=display_id)


def update(shown: str, display_id: str) -> CellOp:
    return CellOp(op="update", data={"text/plain": shown}, display_id=display_id)


def card(state: str) -> CellOp:
    return CellOp(op="card", data={"text/plain": state})


CLEAR = CellOp(op="clear")


def test_text_of_a_stream_is_joined_and_streams_keep_their_order():
    assert taken(text("a"), text("b"), text("e", "stderr"), text("c"), text("d")) == [
        text("ab"),
        text("e", "stderr"),
        text("cd"),
    ]


def test_last_update_of_a_display_is_kept_in_the_place_of_the_first():
    assert taken(update("1", "a"), update("x", "b"), text("t"), update("2", "a")) == [
        update("2", "a"),
        update("x", "b"),
        text("t"),
    ]


def test_update_after_a_further_display_of_the_same_id_reaches_that_one_too():
    assert taken(update("1", "a"), display("again", "a"), update("2", "a")) == [
        update("1", "a"),
        display("again", "a"),
        update("2", "a"),
    ]


def test_what_a_clear_would_remove_is_left_out():
    assert taken(text("old"), display("old", "a"), update("old", "a"), CLEAR, text("new")) == [
        CLEAR,
        text("new"),
    ]
    assert taken(CLEAR, text("old"), CLEAR) == [CLEAR]


def test_update_after_a_clear_is_one_of_its_own():
    assert taken(update("1", "a"), CLEAR, update("2", "a")) == [CLEAR, update("2", "a")]


def test_first_card_stays_first_and_the_newest_comes_where_it_was_drawn():
    assert taken(card("pending"), text("a"), card("running"), text("b"), card("ended")) == [
        card("pending"),
        text("a"),
        text("b"),
        card("ended"),
    ]
    steps = Steps()
    steps.add(card("pending"))
    steps.take()
    for op in (card("running"), text("a"), CellOp(op="error", ename="E"), card("ended")):
        steps.add(op)
    assert steps.take() == [text("a"), CellOp(op="error", ename="E"), card("ended")]


def test_card_outlives_a_clear():
    assert taken(card("pending"), text("old"), CLEAR, text("new")) == [card("pending"), CLEAR, text("new")]


def test_nothing_waits_after_it_was_taken():
    steps = Steps()
    steps.add(text("a"))
    assert steps
    assert steps.size >= 1
    assert steps.take() == [text("a")]
    assert not steps
    assert steps.size == 0
    steps.add(text("b"))
    assert steps.take() == [text("b")]


def test_flood_that_overwrites_itself_is_small():
    steps = Steps()
    for number in range(100_000):
        steps.add(text(f"\r{number:6d}"))
    steps.compact()
    assert steps.size < 200
    steps.add(text("!"))
    assert steps.take() == [text("\r 99999!")]


def test_compacting_keeps_all_of_what_came():
    steps = Steps()
    for part in ("one\n", "\rtw", "o", "\r2"):
        steps.add(text(part))
        steps.compact()
    steps.add(text("e", "stderr"))
    assert steps.take() == [text("one\n\rtwo\r2"), text("e", "stderr")]


@pytest.mark.parametrize(
    "nothing",
    [
        lambda number: CellOp(op="display"),
        lambda number: CellOp(op="update", display_id=str(number)),
        lambda number: text("", "stdout" if number % 2 else "stderr"),
    ],
    ids=["displays", "updates", "texts"],
)
def test_steps_with_nothing_in_them_count_too(nothing: Callable[[int], CellOp]) -> None:
    """A hostile job may send any number of them: what waits has a bound by its size alone."""
    steps = Steps()
    for number in range(1000):
        steps.add(nothing(number))
    assert steps.size >= 100_000
