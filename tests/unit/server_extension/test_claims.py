"""Claims to cells, as tables of steps: what happens, and who is told what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.claims import Bench

GRANTED_LOG = (True, "log")
GRANTED_KERNEL = (True, "kernel")
BEHIND_LOG = (False, "log")
BEHIND_KERNEL = (False, "kernel")

Step = tuple[Callable[[Bench], None], dict[str, tuple[bool, str]]]


def log(page: str, key: str = "cell") -> Callable[[Bench], None]:
    return lambda bench: bench.claims.claim(page, key, "log")


def kernel(page: str, key: str = "cell") -> Callable[[Bench], None]:
    return lambda bench: bench.claims.claim(page, key, "kernel")


def release(page: str, key: str = "cell") -> Callable[[Bench], None]:
    return lambda bench: bench.claims.release(page, key)


def breaks(page: str) -> Callable[[Bench], None]:
    return lambda bench: bench.claims.disconnected(page)


def returns(page: str) -> Callable[[Bench], None]:
    return lambda bench: bench.claims.connected(page)


def leaves(page: str) -> Callable[[Bench], None]:
    return lambda bench: bench.claims.left(page)


def after(seconds: float) -> Callable[[Bench], None]:
    return lambda bench: bench.pass_time(seconds)


#: name -> steps, each with what is told by it: {page: (granted, holder)}
TABLES: dict[str, list[Step]] = {
    "the first who asks draws the cell": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (log("c"), {"c": BEHIND_LOG}),
    ],
    "who waits comes in the order of asking": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (log("c"), {"c": BEHIND_LOG}),
        (release("a"), {"b": GRANTED_LOG}),
        (release("b"), {"c": GRANTED_LOG}),
        (release("c"), {}),
        (log("a"), {"a": GRANTED_LOG}),
    ],
    "who leaves the line is passed over": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (log("c"), {"c": BEHIND_LOG}),
        (release("b"), {}),
        (release("a"), {"c": GRANTED_LOG}),
    ],
    "a kernel takes the cell from who drew it, who gets it back": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (kernel("c"), {"a": BEHIND_KERNEL, "b": BEHIND_KERNEL, "c": GRANTED_KERNEL}),
        (log("d"), {"d": BEHIND_KERNEL}),
        (release("c"), {"a": GRANTED_LOG, "b": BEHIND_LOG, "d": BEHIND_LOG}),
    ],
    "a kernel may write into several pages": [
        (kernel("a"), {"a": GRANTED_KERNEL}),
        (kernel("b"), {"b": GRANTED_KERNEL}),
        (log("c"), {"c": BEHIND_KERNEL}),
        (release("a"), {}),
        (release("b"), {"c": GRANTED_LOG}),
    ],
    "a page whose kernel is gone asks to draw from the log": [
        (kernel("a"), {"a": GRANTED_KERNEL}),
        (log("b"), {"b": BEHIND_KERNEL}),
        (log("a"), {"a": BEHIND_LOG, "b": GRANTED_LOG}),
    ],
    "a page that drew from the log runs the cell": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (kernel("a"), {"a": GRANTED_KERNEL, "b": BEHIND_KERNEL}),
    ],
    "asking again keeps the place in line and is answered": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (log("c"), {"c": BEHIND_LOG}),
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (release("a"), {"b": GRANTED_LOG}),
    ],
    "cells do not touch each other": [
        (log("a", "one"), {"a": GRANTED_LOG}),
        (log("b", "two"), {"b": GRANTED_LOG}),
        (kernel("b", "three"), {"b": GRANTED_KERNEL}),
        (release("a", "one"), {}),
    ],
    "what was not claimed is not released": [
        (release("a"), {}),
        (log("a"), {"a": GRANTED_LOG}),
        (release("b"), {}),
        (log("b"), {"b": BEHIND_LOG}),
    ],
    "a page whose connection broke keeps the cell for the grace": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (breaks("a"), {}),
        (after(2.9), {}),
        (after(0.2), {"b": GRANTED_LOG}),
    ],
    "a page that is back in time goes on as before": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (breaks("a"), {}),
        (after(2.9), {}),
        (returns("a"), {}),
        (after(2.9), {}),
        (log("a"), {"a": GRANTED_LOG}),
        (after(100), {}),
    ],
    "a page that is back and claims no more has given up": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (breaks("a"), {}),
        (returns("a"), {}),
        (after(3.1), {"b": GRANTED_LOG}),
    ],
    "a page that is back too late stands at the end of the line": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (breaks("a"), {}),
        (after(3.1), {"b": GRANTED_LOG}),
        (returns("a"), {}),
        (log("a"), {"a": BEHIND_LOG}),
    ],
    "a connection that takes over from one that nobody missed": [
        (log("a"), {"a": GRANTED_LOG}),
        (returns("a"), {}),
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (after(100), {}),
    ],
    "a kernel's page that broke keeps its cell for the grace": [
        (kernel("a"), {"a": GRANTED_KERNEL}),
        (log("b"), {"b": BEHIND_KERNEL}),
        (breaks("a"), {}),
        (after(2.9), {}),
        (after(0.2), {"b": GRANTED_LOG}),
    ],
    "a page that is closed leaves at once": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (leaves("a"), {"b": GRANTED_LOG}),
        (after(100), {}),
    ],
    "a page that broke twice has the grace of the second time": [
        (log("a"), {"a": GRANTED_LOG}),
        (log("b"), {"b": BEHIND_LOG}),
        (breaks("a"), {}),
        (after(2), {}),
        (returns("a"), {}),
        (after(2), {}),
        (breaks("a"), {}),
        (after(2), {}),
        (after(1.1), {"b": GRANTED_LOG}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", TABLES.values(), ids=TABLES.keys())
def test_claims(steps: list[Step]) -> None:
    bench = Bench()
    for number, (step, expected) in enumerate(steps):
        step(bench)
        told = bench.take_told()
        assert told == expected, f"step {number}"


def test_page_that_loses_the_cell_hears_of_it_before_the_one_that_gets_it() -> None:
    bench = Bench()
    bench.claims.claim("a", "cell", "log")
    bench.take_told()
    bench.claims.claim("b", "cell", "kernel")
    assert [(page, claimed.granted) for page, claimed in bench.told] == [("a", False), ("b", True)]


def test_nothing_is_remembered_of_pages_that_left() -> None:
    bench = Bench()
    for number in range(20):
        bench.claims.claim(f"page-{number}", f"cell-{number % 3}", "kernel" if number % 2 else "log")
        bench.claims.disconnected(f"page-{number}")
    bench.pass_time(3.1)
    claims = bench.claims
    assert (claims._cells, claims._keys, claims._unconfirmed, bench.timers) == ({}, {}, {}, [])
