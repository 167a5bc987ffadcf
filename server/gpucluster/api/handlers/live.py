"""`GET /v1/live`: what a page follows of the cluster, first as it is, then as it changes."""

from __future__ import annotations

from typing import cast

from ...model.errors import InvalidRequest
from ..live import Follower, LiveQuery
from ..schemas import TOPICS, Topic
from .base import ApiHandler

#: So many jobs are watched at most.
MAX_WATCHED = 200
#: Characters of an id, whatever it names.
MAX_ID = 64


class LiveHandler(ApiHandler):
    """`GET /v1/live?after=SEQ&topics=queues,jobs&have=queues&jobs=ID,ID`: see schemas.LiveUpdate. It does not end by itself.

    First comes everything of the topics that are not in `have`, and of those what changed since `after`; without `after`, or
    with one that is too old, everything. `jobs` are watched beside the topics.
    """

    async def get(self) -> None:
        self.known_queries("after", "topics", "have", "jobs")
        follower = Follower(self.parts.live, self.principal, self._query())
        await self.stream(follower.lines())

    def _query(self) -> LiveQuery:
        after = self.query_int("after")
        topics, have = self._topics("topics"), self._topics("have")
        if have - topics:
            raise InvalidRequest("have", f"{sorted(have - topics)[0]!r} is not among the topics")
        if have and after is None:
            raise InvalidRequest(
                "have", "it needs `after`: the number of the newest update that the page has"
            )
        jobs = tuple(dict.fromkeys(self._words("jobs")))
        if len(jobs) > MAX_WATCHED:
            raise InvalidRequest("jobs", f"{len(jobs)} jobs are named; {MAX_WATCHED} are watched at most")
        too_long = next((job for job in jobs if len(job) > MAX_ID), None)
        if too_long is not None:
            raise InvalidRequest("jobs", f"{too_long[:MAX_ID]!r}… is no id of a job")
        return LiveQuery(after=after, topics=topics, have=have, jobs=jobs)

    def _topics(self, name: str) -> frozenset[Topic]:
        words = self._words(name)
        unknown = next((word for word in words if word not in TOPICS), None)
        if unknown is not None:
            raise InvalidRequest(
                name, f"there is no topic {unknown[:MAX_ID]!r}", f"Topics: {', '.join(TOPICS)}."
            )
        return frozenset(cast("list[Topic]", words))

    def _words(self, name: str) -> list[str]:
        return [word for word in (self.query(name) or "").split(",") if word]
