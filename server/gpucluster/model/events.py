"""Published events: every change that a follower may see. One sequence per cluster, versioned schema."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA_VERSION = 1


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the cluster's event sequence.

    `seq` grows by one with each event of the cluster; `kind` is e.g. ``job.state``, ``job.progress``, ``queue.usage``,
    ``node.health``; `job_id`, `owner`, `queue` and `share` serve to decide who may see it, so that a follower's view is
    filtered without visible gaps (a follower is told the last `seq` it has passed, not those it may not see).
    """

    seq: int
    time_us: int
    kind: str
    data: dict[str, Any]
    version: int = SCHEMA_VERSION
    job_id: str | None = None
    owner: str | None = None
    queue: str | None = None
