"""For tests that draw a cell anew, as the Jupyter server does for a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
from support.cell_page import PageCell, visible

from gpucluster.api import client as api
from jupyter_gpucluster.drawing import CellDrawing
from jupyter_gpucluster.server_extension.messages import CellQuery
from jupyter_gpucluster.server_extension.redraw import CellRedraw

from .frontend import CARD, Cell


class FirstCard:
    """Keeps the card as it was shown first, which is what a page saved that was closed a moment later."""

    def __init__(self, then: Callable[[Cell], None] | None = None) -> None:
        self.json: dict[str, Any] = {}
        self._then = then

    def __call__(self, cell: Cell) -> None:
        if not self.json and cell.outputs and CARD in cell.outputs[0]["data"]:
            self.json = json.loads(json.dumps(cell.card))
        if self._then is not None:
            self._then(cell)


def query(card: dict[str, Any]) -> CellQuery:
    return CellQuery(job_id=card["job_id"], drawing=msgspec.convert(card["drawing"], CellDrawing), card=card)


def draw(asked: CellQuery, connect: Callable[[], api.ApiClient]) -> PageCell:
    page = PageCell()

    async def work() -> None:
        async for batch in CellRedraw(asked, connect=connect).batches():
            page.apply(batch)

    asyncio.run(asyncio.wait_for(work(), 120))
    assert page.is_done
    return page


def body_of(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What two drawings of a job must agree on. The card's text and html tell the time; of what carriage returns wrote over
    more or less may be left out.
    """
    return [
        {**each, "text": visible(each["text"])} if each["output_type"] == "stream" else each
        for each in outputs
        if CARD not in each.get("data", {})
    ]
