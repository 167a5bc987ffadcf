"""What a channel of a page's WebSocket carries: the lines of a streaming GET of the scheduler, or a cell drawn anew."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from gpucluster.api.errors import InvalidRequest, NotFound

from .link import SchedulerLink
from .messages import CellQuery, Open
from .routes import is_streamed

CELL = "cell"


def source_of(request: Open, link: SchedulerLink) -> AsyncIterator[list[bytes]]:
    """Batches of lines, each a JSON value, as they come. Raises InvalidRequest, NotFound; nothing has begun then."""
    if request.path == CELL:
        if request.cell is None:
            raise InvalidRequest("cell", "this field is needed to draw a cell")
        if request.query:
            raise InvalidRequest("query", "a cell is asked for by the field cell alone")
        return _drawn(link, request.cell)
    if request.cell is not None:
        raise InvalidRequest("cell", f"it belongs to the path {CELL}, not to {request.path}")
    if not is_streamed(request.path):
        raise NotFound(f"there is no stream {request.path!r}", field="path")
    return link.lines(request.path, urlencode(request.query))


async def _drawn(link: SchedulerLink, query: CellQuery) -> AsyncIterator[list[bytes]]:
    from .redraw import CellRedraw  # it loads IPython's outputs; only a page that shows a cell needs it

    async with contextlib.aclosing(CellRedraw(query, connect=link.client).batches()) as batches:
        async for batch in batches:
            yield batch
