"""Queue specifications: the tree that divides the cluster among teams."""

from __future__ import annotations

import enum

import msgspec

ROOT = "root"


class Ordering(str, enum.Enum):
    """How jobs of one leaf queue are ordered. Only `fifo` is implemented so far; the others are refused by name."""

    FIFO = "fifo"
    PRIORITY = "priority"
    SHORTEST = "shortest"
    ATTAINED = "attained"


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the queue tree.

    `guaranteed` and `max` map resource names (see resources.py) to amounts; None = unset, which is not 0 (DESIGN
    section 6 *Queues*). A resource that `max` does not name has no maximum of its own.
    """

    name: str
    parent: str | None = ROOT
    guaranteed: dict[str, int] | None = None
    max: dict[str, int] | None = None
    weight: int = 1
    user_limit_factor: float | None = None
    ordering: Ordering = Ordering.FIFO
    submit_users: tuple[str, ...] = ("*",)
    admin_users: tuple[str, ...] = ()
    description: str = ""
