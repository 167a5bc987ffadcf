"""Parts of the live stream (live.py): what events tell to look at, what was sent already, and a line in the making."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..model.events import PublishedEvent
from .schemas import LiveProgress, Topic

encode = msgspec.json.Encoder().encode
Key = tuple[str, str]  # kind and name of a thing, e.g. ("queue", "research")


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A LiveUpdate whose parts are encoded already."""

    type: str
    seq: int
    time_us: int
    full: list[Topic] = []
    status: msgspec.Raw | None = None
    queues: list[msgspec.Raw] = []
    nodes: list[msgspec.Raw] = []
    nodes_gone: list[str] = []
    jobs: list[msgspec.Raw] = []
    jobs_gone: list[str] = []
    jobs_left_out: int = 0
    progress: list[LiveProgress] = []

    @property
    def is_empty(self) -> bool:
        parts = (self.queues, self.nodes, self.nodes_gone, self.jobs, self.jobs_gone, self.progress)
        return not self.full and self.status is None and not any(parts)


class Changes:
    """What to look at anew, gathered from events until it was sent."""

    def __init__(self, *, is_anew: bool = False) -> None:
        self.any = False
        self.books = False  # anything but step reports
        self.is_anew = is_anew  # nothing counts as sent: a first line, or one after events that are missing
        self.full: set[Topic] = set()  # topics of which all is to be sent
        self.jobs: dict[str, str] = {}  # id -> id of its owner
        self.reported: dict[str, None] = {}  # jobs that sent a step report
        self.nodes: dict[str, None] = {}
        self.shares: dict[str, PublishedEvent] = {}  # the first change of who may read a job

    def add(self, events: Iterable[PublishedEvent]) -> None:
        for event in events:
            self.any = True
            self.books |= event.kind != "job.progress"
            if event.kind == "node.health":
                self.nodes[str(event.data.get("node"))] = None
            elif event.kind == "job.progress" and event.job_id is not None:
                self.reported[event.job_id] = None
            elif event.job_id is not None:
                self._add_job(event.job_id, event)

    def _add_job(self, job_id: str, event: PublishedEvent) -> None:
        self.jobs[job_id] = event.owner or ""
        # Others' jobs too: they take and give back room on nodes.
        self.nodes.update(dict.fromkeys(event.data.get("placement") or ()))
        self.nodes.update(dict.fromkeys(event.data.get("freed") or ()))
        if event.kind == "job.share":
            self.shares.setdefault(job_id, event)

    def everything(self, topics: Collection[Topic]) -> None:
        """Events are missing: all is to be sent."""
        self.any = self.books = self.is_anew = True
        self.full.update(topics)


class Sent:
    """What a follower was sent, as hashes. What is noted counts once `commit` says that the line went out."""

    def __init__(self) -> None:
        self._digests: dict[Key, int] = {}
        self._noted: dict[Key, int | None] = {}

    def __contains__(self, key: Key) -> bool:
        return self._noted.get(key, self._digests.get(key)) is not None

    def note(self, key: Key, encoded: bytes) -> bool:
        """True when it differs from what was sent last."""
        digest = hash(encoded)
        if self._noted.get(key, self._digests.get(key)) == digest:
            return False
        self._noted[key] = digest
        return True

    def note_gone(self, key: Key) -> None:
        self._noted[key] = None

    def commit(self) -> None:
        for key, digest in self._noted.items():
            if digest is None:
                self._digests.pop(key, None)
            else:
                self._digests[key] = digest
        self._noted.clear()

    def roll_back(self) -> None:
        self._noted.clear()
