"""Steps of drawing that wait to be shown, as few as they can be: what would be overdrawn at once is never shown."""

from __future__ import annotations

from .carriage import collapsed
from .drawing import CellOp

#: What counts for data of a display that is no text (JSON of some kind).
_OTHER_BYTES = 1000
#: What counts for a step beside what is in it: a job may send any number of empty ones.
_STEP_BYTES = 100


class Steps:
    """Steps in their order. Text of a stream is joined, of the updates of a display the last one is kept, and what a clear
    would remove or a carriage return be written over is left out; so a job that floods its output, or draws a plot a
    thousand times a second, costs little.

    `size`: of what waits, in bytes, about.
    """

    def __init__(self) -> None:
        self._ops: list[CellOp] = []
        #: Parts of the text of the last step, when that is a stream.
        self._parts: list[str] = []
        #: Display id -> its step "update", while no display of that id came after it.
        self._updates: dict[str, CellOp] = {}
        #: The first card of all, which must come first; None once it was taken.
        self._first_card: CellOp | None = None
        self._has_card = False
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._ops)

    def add(self, op: CellOp) -> None:
        if op.op == "stream":
            self._add_text(op)
        elif op.op == "update":
            self._add_update(op)
        elif op.op == "card":
            self._add_card(op)
        elif op.op == "clear":
            self._clear(op)
        else:
            if op.display_id:
                self._updates.pop(op.display_id, None)
            self._append(op)

    def take(self) -> list[CellOp]:
        """All steps; none waits after that."""
        self._join()
        ops, self._ops = self._ops, []
        self._updates.clear()
        self._first_card = None
        self.size = 0
        return ops

    def _append(self, op: CellOp) -> None:
        self._join()
        self._ops.append(op)
        self.size += _size(op)

    def compact(self) -> None:
        """Make less of the newest text, if it can be."""
        self._join()

    def _join(self) -> None:
        """The text that came for the last step becomes one."""
        if self._parts:
            last = self._ops[-1]
            whole = last.text + "".join(self._parts)
            last.text = collapsed(whole)
            self.size -= len(whole) - len(last.text)
            self._parts = []

    def _add_text(self, op: CellOp) -> None:
        last = self._ops[-1] if self._ops else None
        if last is None or last.op != "stream" or last.name != op.name:
            self._append(CellOp(op="stream", name=op.name))
        self._parts.append(op.text)
        self.size += len(op.text)

    def _add_update(self, op: CellOp) -> None:
        waiting = self._updates.get(op.display_id or "")
        if waiting is None:
            waiting = self._updates[op.display_id or ""] = CellOp(op="update", display_id=op.display_id)
            self._append(waiting)
        self.size -= _size(waiting)
        waiting.data, waiting.metadata = op.data, op.metadata
        self.size += _size(waiting)

    def _add_card(self, op: CellOp) -> None:
        """A newer card takes the place of one that waits; but the first one of all stays first."""
        older = [each for each in self._ops if each.op == "card" and each is not self._first_card]
        for each in older:
            self._ops = [op for op in self._ops if op is not each]
            self.size -= _size(each)
        self._append(op)
        if not self._has_card:
            self._has_card, self._first_card = True, op

    def _clear(self, op: CellOp) -> None:
        cards = [each for each in self._ops if each.op == "card"]
        self._parts = []
        self._updates.clear()
        self._ops = cards
        self.size = sum(map(_size, cards))
        self._append(op)


def _size(op: CellOp) -> int:
    values = [*op.data.values(), *op.metadata.values()]
    return _STEP_BYTES + sum(len(value) if isinstance(value, str) else _OTHER_BYTES for value in values)
