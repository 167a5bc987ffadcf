"""How a cell shows a job, as data: what a kernel notes of its way of drawing, and the steps by which a cell is drawn.

Kernels, the Jupyter server and the page share these; so nothing is imported here but msgspec.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

#: What a notebook takes from one job by default: text (head and tail together), and plots and other displays.
TEXT_BYTES = 256 << 10
DISPLAY_BYTES = 8 << 20


class CellDrawing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How a cell draws its job; stands in the card's JSON under "drawing", so that another may draw it the same.

    `fills_cell`: what stands after the card is the job's output and nothing else (a `%%submit` or `%attach` that waits).
    `complete`: everything was drawn, also the error of a job that did not succeed. It is set last of all, so a cell without
    it was cut off, or its job goes on.
    `display_prefix`: what makes display ids of the job unique in the notebook; "" = the job's id.
    """

    fills_cell: bool = False
    complete: bool = False
    rank: int = 0
    show_result: bool = True
    execution_count: int | None = None
    display_prefix: str = ""
    text_bytes: int | None = TEXT_BYTES  # None = no limit
    display_bytes: int | None = DISPLAY_BYTES


class CellOp(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step of drawing a cell anew. The first op of a channel starts from an empty cell.

    card: show the card (`data`), first output of the cell, in place of the one before · stream: append `text` to stream
    `name` · display: add a display (`display_id`: may be updated) · update: of all displays of that id · result: the value of
    the last expression, Out[n] with the `execution_count` of the drawing · clear: all outputs but the card (`wait`: when the
    next output comes) · error: the cell failed · done: everything was drawn.
    """

    op: Literal["card", "stream", "display", "update", "result", "clear", "error", "done"]
    name: Literal["stdout", "stderr"] | None = None
    text: str = ""
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    display_id: str | None = None
    wait: bool = False
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []
