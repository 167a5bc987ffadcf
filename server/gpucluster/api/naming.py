"""The name of a job that nobody named: the line of its code, or the part of its command, that tells most.

It stands in lists next to dozens of others, and everybody who may submit to the queue sees it. So what all cells begin with
is passed over (imports, magics, comments), and so is a line that speaks of a credential.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Sequence

from .environment import looks_secret

SHOWN_NAME = 40
#: Characters of a source that are looked at: a name is found at its beginning or nowhere.
SCANNED = 16 << 10

#: The pieces of a source, as far as they say which lines belong together.
_PIECE = re.compile(
    r"(?P<magic>^[ \t]*[%!?][^\n]*)"
    r"|(?P<text>(?P<quotes>\"\"\"|''')(?:\\.|(?!(?P=quotes))[\s\S])*(?:(?P=quotes)|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<comment>#[^\n]*)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<end>\n)|(?P<other>[^\"'#\[\](){}\n]+|.)",
    re.MULTILINE,
)
_MAGIC = re.compile(r"\s*[%!?]")
_IMPORT = re.compile(r"(?:import|from)\s")
_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+\w+")
#: Says nothing by itself: the beginning of a block, its end, or a statement that is one word.
_EMPTY = re.compile(r"(?:try|else|finally|pass|return|except\b[^:]*|if __name__ == .*):?|[\])},]+")
#: Calls that stand at the head of many cells and are of none the point.
_QUIET_CALL = re.compile(r"(?:print|display)\(|[\w.]*seed(?:_all)?\(")
_TEXT_STARTS = ("#", '"', "'", 'r"', "r'")
_WORD = re.compile(r"[A-Za-z_]\w*")


class Worth(enum.IntEnum):
    """How much a line tells, best first. Of equal ones the first counts."""

    CALL = 0
    STATEMENT = 1
    DEFINITION = 2
    NESTED = 3
    IMPORT = 4
    MAGIC = 5
    TEXT = 6  # a comment or docstring


def default_name(kind: str, source: str, command: Sequence[str] = ()) -> str:
    """At most SHOWN_NAME printable characters, never empty. `kind`: cell, function or command."""
    text = command_name(command) if kind == "command" else telling_line(source)
    return shortened(text) or kind


def shortened(text: str) -> str:
    """On one line, without what cannot be printed, cut with an ellipsis."""
    text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_NAME else text[: SHOWN_NAME - 1].rstrip() + "…"


def command_name(command: Sequence[str]) -> str:
    """The program without its folder, and its arguments up to the first that speaks of a credential."""
    words: list[str] = []
    for word in command:
        if _speaks_of_credential(word):
            words.append("…")
            break
        words.append(word)
    if words:
        words[0] = os.path.basename(words[0].rstrip("/")) or words[0]
    return " ".join(words)


def telling_line(source: str) -> str:
    """The line of Python code that says best what it does; "" when there is none."""
    lines = [
        (_worth(line, is_nested), line)
        for line, is_nested in _logical_lines(source[:SCANNED])
        if not _speaks_of_credential(line)
    ]
    if not lines:
        return ""
    worth, line = min(lines, key=lambda rated: rated[0])
    if worth is Worth.TEXT:
        return line.removeprefix("r").strip("#\"' \n\t").split("\n")[0]
    if worth is Worth.DEFINITION:
        return line.partition("(")[0].rstrip(": ")
    return line.rstrip(": ")


def _speaks_of_credential(text: str) -> bool:
    return any(looks_secret(word) for word in _WORD.findall(text.replace("-", "_")))


def _worth(line: str, is_nested: bool) -> Worth:
    if line.startswith(_TEXT_STARTS):
        return Worth.TEXT
    if _MAGIC.match(line):
        return Worth.MAGIC
    if _IMPORT.match(line) or line.startswith("@") or _EMPTY.fullmatch(line):
        return Worth.IMPORT
    if _DEFINITION.match(line):
        return Worth.NESTED if is_nested else Worth.DEFINITION
    if is_nested:
        return Worth.NESTED
    return Worth.CALL if "(" in line and not _QUIET_CALL.match(line) else Worth.STATEMENT


def _logical_lines(source: str) -> Iterator[tuple[str, bool]]:
    """Each statement on one line, without its comment, and whether it is indented. Comments of their own come too.

    Not a parser: whatever is written here, also what is no Python, gives some lines.
    """
    line, depth = "", 0
    for piece in _PIECE.finditer(source.replace("\\\n", " ")):
        kind = piece.lastgroup
        if kind == "end" and depth == 0:
            yield from _statement(line)
            line = ""
        elif kind != "comment" or not line.strip():
            line += piece[0]
            depth = max(0, depth + {"open": 1, "close": -1}.get(kind or "", 0))
    yield from _statement(line)


def _statement(text: str) -> Iterator[tuple[str, bool]]:
    """Of a docstring or comment its lines are kept apart: the first is the title."""
    stripped = text.strip()
    if stripped:
        is_text = stripped.startswith(_TEXT_STARTS)
        yield stripped if is_text else " ".join(stripped.split()), text[0] in " \t"
