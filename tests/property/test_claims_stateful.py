"""Claims to cells under pages that claim, release, break, come back and leave in any order.

What counts is what the pages believe: what each was told last, and nothing once its connection broke (api/claims.ts).
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.claims import Bench

from jupyter_gpucluster.server_extension.claims import GRACE_S
from jupyter_gpucluster.server_extension.messages import Role

PAGES = st.sampled_from("abcd")
KEYS = st.sampled_from(["one", "two"])
ROLES: st.SearchStrategy[Role] = st.sampled_from(["kernel", "log", "log"])


class ClaimsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.wanted: dict[str, dict[str, Role]] = {page: {} for page in "abcd"}
        self.here: set[str] = set()  # connected
        self.believed: dict[tuple[str, str], bool] = {}  # (page, key) -> granted

    def hear(self) -> None:
        for page, claimed in self.bench.told:
            # Who is away is not told, and asks again; who gave up meanwhile does not listen.
            if page in self.here and claimed.key in self.wanted[page]:
                assert claimed.holder is not None
                self.believed[page, claimed.key] = claimed.granted
        self.bench.told.clear()

    def forget(self, page: str) -> None:
        self.believed = {pair: granted for pair, granted in self.believed.items() if pair[0] != page}

    # ---- what pages do

    @rule(page=PAGES)
    def comes(self, page: str) -> None:
        """It connects (again, or anew while the old connection still seems to be there) and claims what it wants."""
        self.forget(page)
        self.here.add(page)
        self.bench.claims.connected(page)
        for key, role in self.wanted[page].items():
            self.bench.claims.claim(page, key, role)
        self.hear()

    @rule(page=PAGES, key=KEYS, role=ROLES)
    def wants(self, page: str, key: str, role: Role) -> None:
        self.wanted[page][key] = role
        if page in self.here:
            self.bench.claims.claim(page, key, role)
            self.hear()
            assert (page, key) in self.believed  # told at once

    @rule(page=PAGES, key=KEYS)
    def wants_no_more(self, page: str, key: str) -> None:
        self.wanted[page].pop(key, None)
        self.believed.pop((page, key), None)
        if page in self.here:
            self.bench.claims.release(page, key)
            self.hear()

    @rule(page=PAGES)
    def breaks(self, page: str) -> None:
        if page in self.here:
            self.here.remove(page)
            self.forget(page)
            self.bench.claims.disconnected(page)
            self.hear()

    @rule(page=PAGES)
    def leaves(self, page: str) -> None:
        if page in self.here:
            self.here.remove(page)
            self.forget(page)
            self.wanted[page] = {}
            self.bench.claims.left(page)
            self.hear()

    @rule(seconds=st.sampled_from([0.1, GRACE_S / 2, GRACE_S * 2]))
    def time_passes(self, seconds: float) -> None:
        self.bench.pass_time(seconds)
        self.hear()

    # ---- what always holds

    def believers(self, key: str, role: Role) -> list[str]:
        return [
            page
            for (page, of), granted in self.believed.items()
            if of == key and granted and self.wanted[page][key] == role
        ]

    @invariant()
    def one_page_alone_draws_a_cell_from_the_log_and_none_beside_a_kernel(self) -> None:
        for key in ("one", "two"):
            drawing = self.believers(key, "log")
            assert len(drawing) <= 1
            assert not drawing or not self.believers(key, "kernel")
            if drawing:
                assert self.bench.claims.granted(key) == drawing

    @invariant()
    def a_kernel_is_never_refused(self) -> None:
        for page in self.here:
            for key, role in self.wanted[page].items():
                assert role != "kernel" or self.believed[page, key]

    @precondition(lambda self: not self.bench.timers)
    @invariant()
    def nobody_waits_for_a_page_that_is_gone(self) -> None:
        for key in ("one", "two"):
            waiting = [page for page in self.here if key in self.wanted[page]]
            if waiting:
                assert self.believers(key, "log") or self.believers(key, "kernel")

    def teardown(self) -> None:
        """All but one leave: that one gets all that it wants."""
        for last in sorted(self.here)[:1]:
            for page in sorted(self.here - {last}):
                self.leaves(page)
            self.time_passes(GRACE_S * 2)
            assert all(self.believed[last, key] for key in self.wanted[last])
            self.leaves(last)
        self.time_passes(GRACE_S * 2)
        claims = self.bench.claims
        assert (claims._cells, claims._keys, claims._unconfirmed, self.bench.timers) == ({}, {}, {}, [])


TestClaims = ClaimsMachine.TestCase
TestClaims.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
