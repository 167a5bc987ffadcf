"""`analyse`: the names of a cell, from its text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from .cell import Transform, parse
from .flow import follow
from .hidden import Hidden, find_hidden


@dataclass(frozen=True)
class CellNames:
    """What a cell does with names of the notebook, each in the order of its first use.

    reads      used before the cell has surely assigned them; `perhaps` are those that it may have assigned before
    assigns    bound at the top of the cell when it ends, or possibly so: assignments, imports, defs, loop variables …
    mutates    changed through them (`x.a = 1`, `x[0] = 1`, `del x[0]`), as far as the code shows it
    attributes chains of attributes looked up on a name (`os.path.join`), to find submodules
    subscripts constant keys by which a name is subscripted, None among them for any other key (`Out[3]`)
    hidden     places where names hide in strings
    stars      modules of `from m import *`
    """

    reads: tuple[str, ...] = ()
    perhaps: frozenset[str] = frozenset()
    assigns: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    attributes: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    subscripts: dict[str, set[object]] = field(default_factory=dict)
    hidden: tuple[Hidden, ...] = ()
    stars: tuple[str, ...] = ()

    @property
    def may_get_names(self) -> bool:
        """Whether names may come to be in the cell that its code does not show."""
        return bool(self.stars) or any(place.brings and place.names is None for place in self.hidden)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each place where names hide, whether or not the notebook holds them."""
        return tuple(describe_hidden(place, place.names) for place in self.hidden)


def analyse(source: str, *, transform: Transform | None = None, first_line: int = 1) -> CellNames:
    """Find the names of a cell.

    `transform` turns IPython's syntax into Python (default: as the running IPython does it). Raises SyntaxError for a cell
    that would not run. Lines are those that the user sees when `source` begins at `first_line`.
    """
    parsed = parse(source, transform, first_line)
    flow = follow(parsed.tree)
    looks = _Looks()
    looks.visit(parsed.tree)
    return CellNames(
        reads=flow.reads,
        perhaps=flow.perhaps,
        assigns=flow.assigned,
        mutates=tuple(name for name in looks.mutated if name in flow.reads),
        attributes=looks.attributes,
        subscripts=looks.subscripts,
        hidden=tuple(
            place._replace(line=place.line + first_line - 1)
            for place in find_hidden(parsed.tree, parsed.magics)
        ),
        stars=flow.stars,
    )


class _Looks(ast.NodeVisitor):
    """How names are looked into, anywhere in the cell."""

    def __init__(self) -> None:
        self.attributes: dict[str, set[tuple[str, ...]]] = {}
        self.subscripts: dict[str, set[object]] = {}
        self.mutated: dict[str, None] = {}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._note_change(node)
        chain = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.attributes.setdefault(inner.id, set()).add(tuple(reversed(chain)))
        else:
            self.visit(inner)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._note_change(node)
        if isinstance(node.value, ast.Name):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            self.subscripts.setdefault(node.value.id, set()).add(key)
        self.generic_visit(node)

    def _note_change(self, node: ast.Attribute | ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load):
            return
        root: ast.expr = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name):
            self.mutated.setdefault(root.id)


def describe_hidden(place: Hidden, names: Iterable[str] | None) -> str:
    """The warning about one hiding place, for the names that matter in it."""
    at = f"{place.where} in line {place.line}"
    if names is None:
        also = ", and those it assigns with --out" if place.brings else ""
        return f"names inside {at} were not searched; add those it needs with --in{also}"
    listed, option = ", ".join(names), ",".join(names)
    if place.brings:
        return f"{listed}: assigned only inside {at}, so not brought back; add --out {option}"
    return f"{listed}: used only inside {at}, so not sent; add --in {option}"
