"""What a page does with the steps of a cell drawn anew: it applies them to the outputs of a notebook's cell."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_gpucluster.card import MIME
from jupyter_gpucluster.drawing import CellOp


class PageCell:
    """A cell's outputs (nbformat 4), from an empty cell on."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.is_done = False
        #: Every card that was shown, in order.
        self.cards: list[dict[str, Any]] = []
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self._clears_next = False

    def apply(self, batch: list[bytes]) -> None:
        for line in batch:
            self._draw(msgspec.json.decode(line, type=CellOp))

    @property
    def card(self) -> dict[str, Any]:
        return self.cards[-1]

    @property
    def body(self) -> list[dict[str, Any]]:
        """The outputs behind the card."""
        return self.outputs[1:]

    def _draw(self, op: CellOp) -> None:
        assert not self.is_done, f"after the last step came {op}"
        if op.op == "card":
            self._draw_card(op)
        elif op.op == "clear":
            self._clear(op.wait)
        elif op.op == "update":
            for output in self._displays.get(op.display_id or "", ()):
                output["data"], output["metadata"] = op.data, op.metadata
        elif op.op == "done":
            self.is_done = True
        else:
            self._add(op)

    def _draw_card(self, op: CellOp) -> None:
        card = {"output_type": "display_data", "data": op.data, "metadata": op.metadata}
        self.outputs[:1] = [card]
        self.cards.append(op.data[MIME])

    def _clear(self, wait: bool) -> None:
        self._clears_next = wait
        if not wait:
            del self.outputs[1:]
            self._displays.clear()

    def _add(self, op: CellOp) -> None:
        assert self.outputs, "the card comes first"
        if self._clears_next:
            self._clear(False)
        last = self.outputs[-1]
        if op.op == "stream" and last["output_type"] == "stream" and last["name"] == op.name:
            last["text"] += op.text
            return
        output = self._output(op)
        self.outputs.append(output)
        if op.display_id:
            self._displays.setdefault(op.display_id, []).append(output)

    def _output(self, op: CellOp) -> dict[str, Any]:
        if op.op == "stream":
            return {"output_type": "stream", "name": op.name, "text": op.text}
        if op.op == "error":
            return {
                "output_type": "error",
                "ename": op.ename,
                "evalue": op.evalue,
                "traceback": op.traceback,
            }
        shown = {"data": op.data, "metadata": op.metadata}
        if op.op == "result":
            count = self.card["drawing"]["execution_count"]
            return {"output_type": "execute_result", "execution_count": count, **shown}
        return {"output_type": "display_data", **shown}


def visible(text: str) -> str:
    """The text as JupyterLab keeps it: what follows a carriage return overwrites the line, character by character."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for piece in line.split("\r"):
            shown = piece + shown[len(piece) :]
        lines.append(shown)
    return "\n".join(lines)
