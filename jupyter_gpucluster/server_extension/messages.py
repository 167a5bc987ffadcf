"""What a page and the Jupyter server say to each other over the page's one WebSocket, `<base_url>/gpucluster/api/v1/streams/ws`.

A page opens channels; each carries the lines of one streaming GET of the API (`live`, `jobs/ID/output`, …) or of a cell's
outputs drawn anew (`cell`, see `redraw.py`). A channel has a window: the server sends at most `WINDOW` messages that the page
has not acknowledged, so that a job that floods its log neither fills memory nor holds up other channels.

A page also claims cells: of all pages that show a cell, one alone draws its outputs (`claims.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gpucluster.api.schemas import ErrorBody

from ..drawing import CellDrawing as CellDrawing
from ..drawing import CellOp as CellOp

#: Version of this protocol; a page of another one is told so in `Hello` and says that it needs a reload.
PAGE_PROTOCOL = 1
#: Messages of a channel that may be under way without an acknowledgement.
WINDOW = 8
#: An `Items` message carries at most about so many bytes of lines.
MESSAGE_BYTES = 256 << 10
#: A connection is never silent for longer.
ALIVE_S = 10.0

#: Who draws a cell: a `kernel` whose outputs reach this page, or the page itself from the job's `log`.
Role = Literal["kernel", "log"]


class FromPage(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    """Base of what a page sends."""


class Open(FromPage, tag="open"):
    """Begin a channel. `path` and `query` as of a GET below `/v1/`; for `path` "cell" the query is a CellQuery.

    The number must not be in use; a page counts upwards.
    """

    channel: int
    path: str
    query: dict[str, str] = {}
    cell: CellQuery | None = None


class CellQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which cell to draw: the job, and how the kernel would have drawn it (`CellDrawing` of the card)."""

    job_id: str
    drawing: CellDrawing | None = None  # None: no card was saved; drawn with the defaults
    card: dict[str, Any] | None = None  # the card's JSON as saved, for its notes, hints and warnings


class Close(FromPage, tag="close"):
    channel: int


class Ack(FromPage, tag="ack"):
    """The page has dealt with so many more messages of the channel."""

    channel: int
    count: int = 1


class Claim(FromPage, tag="claim"):
    """The page wants to draw the cell `key`, or (role kernel) says that a kernel draws it into this page."""

    key: str
    role: Role


class Release(FromPage, tag="release"):
    key: str


Request = Open | Close | Ack | Claim | Release


class ToPage(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True):
    """Base of what the server sends."""


class Hello(ToPage, tag="hello"):
    """The first message of a connection."""

    page_protocol: int
    version: str


class Alive(ToPage, tag="alive"):
    """Sent when the connection has carried nothing else for `ALIVE_S`: a page that hears nothing for 2.5 times as long takes it
    for lost (a laptop that slept, a proxy that forgot it) and reconnects, also when all its channels have nothing to tell.
    """


class Items(ToPage, tag="items"):
    """The next lines of a channel: LiveUpdate, StreamItem, EventView or CellOp, by the channel's path."""

    channel: int
    items: list[msgspec.Raw]


class Ended(ToPage, tag="ended"):
    """The channel's stream has come to its end; nothing more follows."""

    channel: int


class Failed(ToPage, tag="failed"):
    """The channel is over because of an error. `status`: as of the HTTP answer; 502 and above: it may be tried again."""

    channel: int
    status: int
    error: ErrorBody


class Claimed(ToPage, tag="claimed"):
    """How a claim stands, at once and whenever that changes. Not `granted`: wait, another page draws this cell."""

    key: str
    granted: bool
    holder: Role | None = None


Answer = Hello | Alive | Items | Ended | Failed | Claimed
