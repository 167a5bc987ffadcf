"""Terminal escape sequences in a job's log: left in where a terminal shows it, taken out where a file or a pipe gets it."""

from __future__ import annotations

import re
from typing import Any

#: CSI (colours, cursor), those that carry a text up to BEL or ST (titles, links, pictures), and the short ones.
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
#: What may be the beginning of one that the next piece of the log ends.
_BEGINNING = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")
#: Nothing that is longer is waited for: it is no sequence.
_LONGEST = 4096

CHOICES = ("auto", "always", "never")


def keeps_colors(choice: str, stream: Any) -> bool:
    """`choice`: one of CHOICES; auto keeps them for a terminal."""
    return choice == "always" or (choice == "auto" and bool(stream.isatty()))


class Decolored:
    """Takes the sequences out of a stream of bytes that comes in pieces; all other bytes pass as they are."""

    def __init__(self) -> None:
        self._held = b""

    def passed(self, data: bytes) -> bytes:
        """What can be shown now. The beginning of a sequence is held back for the next piece."""
        data = self._held + data
        begun = _BEGINNING.search(data, max(0, len(data) - _LONGEST))
        cut = begun.start() if begun else len(data)
        self._held = data[cut:]
        return _SEQUENCE.sub(b"", data[:cut])

    def rest(self) -> bytes:
        """What was held back and never became a sequence."""
        held, self._held = self._held, b""
        return held
