"""Text of others, made harmless where it is shown: what a job says must not steer the terminal of who reads it.

Control characters begin the escape sequences that move the cursor, set the title, or answer for the user; the marks of
writing direction turn a line around. Tab and newline do no harm in a text, and do in a name.
"""

from __future__ import annotations

import re

_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_STEERING}]")
_IN_NAMES = re.compile(f"[\t\n{_STEERING}]")
#: Stands in place of each.
REPLACEMENT = "\ufffd"


def plain(text: str) -> str:
    """The text with every control character replaced; newlines and tabs stay."""
    return _IN_TEXT.sub(REPLACEMENT, text)


def plain_json(text: str) -> str:
    """JSON text with the control characters that JSON lets stand written as escapes: it decodes to the same."""
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def has_controls(name: str) -> bool:
    """Whether anything in a name (or another text of one line) is no character to be seen."""
    return _IN_NAMES.search(name) is not None
