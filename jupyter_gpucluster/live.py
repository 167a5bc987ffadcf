"""Cards that no cell waits for (those of `--no-wait`, of a Job shown, of a job let go by ■), kept up to date while the
kernel lives.

One thread per kernel and scheduler follows the cluster's events for all cards; it ends when no job with a card is left.
It never prints and never raises: what it cannot learn leaves the card as it was.

A front end that runs cell after cell (nbclient) takes an update only during a cell. So what changed while none ran is
drawn once more when the next one begins.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucluster.api.errors import GpuclusterError, NotFound
from gpucluster.api.schemas import EventView, JobView

from . import connection, describe
from .card import Card
from .output import is_kernel, now_us

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient
    from gpucluster.api.feeds import EventFeed

log = logging.getLogger("jupyter_gpucluster")

#: Progress is asked for and drawn at most this often for a job; a new state at once.
PROGRESS_INTERVAL_S = 1.0
#: Of a job whose last look is older, the place in the queue and the elapsed time are looked up with the next event or
#: heartbeat.
STALE_S = 30.0
#: A scheduler that a feed has given up is tried again after this.
RETRY_S = 60.0


@dataclass
class _Shown:
    """A card on the page. `missed`: drawn last while no cell ran, so some front ends did not take it."""

    card: Card
    display_id: str
    publisher: Any
    missed: bool = False
    drawn_at: float = 0.0

    def take(self, view: JobView) -> bool:
        """Take a view of the job in; whether the card is to be drawn now."""
        before = _standing(self.card.job)
        self.card.update(view)
        due = time.monotonic() - self.drawn_at >= PROGRESS_INTERVAL_S
        return due or _standing(self.card.job) != before

    def draw(self) -> None:
        # In a context of its own the publisher names the newest cell as parent, which a front end is listening to.
        self.drawn_at = time.monotonic()
        try:
            contextvars.Context().run(self._publish)
        except Exception:  # a kernel that is ending; nobody looks at the card any more
            log.debug("a card was not drawn", exc_info=True)

    def _publish(self) -> None:
        self.publisher.publish(
            data=self.card.mimebundle(now_us()),
            metadata={},
            transient={"display_id": self.display_id},
            update=True,
        )


def _standing(job: JobView | None) -> tuple[object, ...]:
    """What of a job is told at once."""
    return () if job is None else (job.state, job.reason, job.attempts_made)


class Keeper:
    """Keeps the cards of one kernel for one scheduler."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._lock = threading.RLock()
        self._shown: dict[str, list[_Shown]] = {}
        self._looked_at: dict[str, float] = {}
        #: Cards of jobs that have ended, which are to be drawn once more during a cell.
        self._last_words: list[_Shown] = []
        self._thread: threading.Thread | None = None
        self._feed: EventFeed | None = None
        self._in_cell = True

    def keep(self, shown: _Shown) -> None:
        """Take a card over that is on the page; what has changed since it was drawn is looked up first."""
        job = shown.card.job
        assert job is not None
        with self._lock:
            self._shown.setdefault(job.id, []).append(shown)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpucluster-cards", daemon=True)
                self._thread.start()
            elif self._feed is not None:
                self._feed.close()  # the thread looks at all cards again and goes on

    def told(self, view: JobView) -> None:
        """Somebody has news of a job: draw its cards when they say more than before."""
        with self._lock:
            cards = self._shown.get(view.id)
            if not cards:
                return
            for shown in cards:
                if shown.take(view):
                    shown.draw()
                    shown.missed = not self._in_cell
            if view.state in describe.ENDED:
                self._last_words += [shown for shown in self._shown.pop(view.id) if shown.missed]
                self._looked_at.pop(view.id, None)

    # ---- cells

    def cell_begins(self, *_: object) -> None:
        with self._lock:
            self._in_cell = True
            missed = self._last_words + [
                shown for cards in self._shown.values() for shown in cards if shown.missed
            ]
            self._last_words = []
            for shown in missed:
                shown.missed = False
                shown.draw()

    def cell_ends(self, *_: object) -> None:
        with self._lock:
            self._in_cell = False

    # ---- the thread

    def _run(self) -> None:
        while (client := self._still_needed()) is not None:
            try:
                self._follow(client)
            except GpuclusterError as error:
                log.debug("cards are not brought up to date: %s", error)
                time.sleep(RETRY_S)
            except Exception:
                log.debug("cards are no longer brought up to date", exc_info=True)
                with self._lock:
                    self._thread = None
                return

    def _still_needed(self) -> ApiClient | None:
        """The client to go on with; None when no card is left, or the kernel has closed its connection."""
        with self._lock:
            client = connection.known(self._address) if self._shown else None
            if client is None:
                self._thread = None
            return client

    def _follow(self, client: ApiClient) -> None:
        """Until no card is left, or one came."""
        with client.events(after=client.jobs(limit=1).seq) as feed:
            with self._lock:
                self._feed = feed
            try:
                self._look_at(client, self._jobs())
                for event in feed if self._jobs() else ():
                    self._look_at(client, self._concerned(event))
                    if not self._jobs():
                        return
            finally:
                with self._lock:
                    self._feed = None

    def _jobs(self) -> list[str]:
        with self._lock:
            return list(self._shown)

    def _concerned(self, event: EventView) -> list[str]:
        """The jobs to look at after an event."""
        jobs = self._jobs()
        if event.kind == "resync":
            return jobs
        patience = PROGRESS_INTERVAL_S if event.kind == "job.progress" else 0.0
        now = time.monotonic()
        about = self._of_number(event.data.get("number")) if event.kind.startswith("job.") else None
        return [
            job
            for job in jobs
            if now - self._looked_at.get(job, 0.0) >= (patience if job == about else STALE_S)
        ]

    def _of_number(self, number: int | None) -> str | None:
        """The id of the job with a card that has this number."""
        with self._lock:
            jobs = ((job, cards[0].card.job) for job, cards in self._shown.items())
            return next((job for job, view in jobs if view is not None and view.number == number), None)

    def _look_at(self, client: ApiClient, jobs: list[str]) -> None:
        for job in jobs:
            try:
                view = client.job(job)
            except NotFound:  # forgotten by the scheduler, or not to be seen any more
                with self._lock:
                    self._shown.pop(job, None)
                continue
            self._looked_at[job] = time.monotonic()
            self.told(view)


_lock = threading.Lock()
#: (process id, address) -> keeper. A forked child has no thread and draws nothing.
_keepers: dict[tuple[int, str | None], Keeper] = {}


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _keeper(shell: Any, address: str | None) -> Keeper:
    with _lock:
        key = (os.getpid(), address)
        keeper = _keepers.get(key)
        if keeper is None:
            keeper = _keepers[key] = Keeper(address)
            shell.events.register("pre_run_cell", keeper.cell_begins)
            shell.events.register("post_run_cell", keeper.cell_ends)
        return keeper


def show(card: Card, address: str | None) -> bool:
    """Draw a card in the running cell and keep it up to date until its job has ended; False where no page is (a terminal)."""
    shell = _shell()
    if shell is None or not is_kernel(shell):
        return False
    display_id = uuid.uuid4().hex
    shell.display_pub.publish(
        data=card.mimebundle(now_us()), metadata={}, transient={"display_id": display_id}
    )
    keep(card, display_id, address)
    return True


def keep(card: Card, display_id: str, address: str | None) -> None:
    """Keep a card that is on the page up to date until its job has ended. Does nothing for what %%capture took."""
    shell = _shell()
    if card.job is None or card.job.state in describe.ENDED or shell is None or not is_kernel(shell):
        return
    publisher = shell.display_pub
    if getattr(publisher, "pub_socket", None) is None:
        return
    _keeper(shell, address).keep(_Shown(card, display_id, publisher, drawn_at=time.monotonic()))


def told(view: JobView) -> None:
    """A newer view of some job is here: its cards show it at once."""
    pid = os.getpid()
    for (owner, _), keeper in list(_keepers.items()):
        if owner == pid:
            keeper.told(view)
