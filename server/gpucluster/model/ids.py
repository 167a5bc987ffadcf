"""Identifiers: sortable by time and opaque inside, short numbers for people.

A long id is 26 characters of Crockford base 32 over 48 bits of milliseconds and 80 random bits (the ULID layout).
Time and randomness come from the caller, so that the simulator's ids are reproducible.
"""

from __future__ import annotations

import re

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(f"[{_ALPHABET}]{{26}}")


def make_id(time_us: int, random_bytes: bytes) -> str:
    """`time_us`: microseconds since the epoch; `random_bytes`: exactly 10 bytes."""
    if len(random_bytes) != 10:
        raise ValueError("an id takes exactly 10 random bytes")
    value = ((time_us // 1000) << 80) | int.from_bytes(random_bytes, "big")
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_id(text: str) -> bool:
    """True for a long id; a job's short number is not one."""
    return _ID.fullmatch(text) is not None


def time_of(long_id: str) -> int:
    """When the id was made, in microseconds since the epoch (to the millisecond); 0 for what is no long id."""
    if not is_id(long_id):
        return 0
    milliseconds = 0
    for letter in long_id[:10]:
        milliseconds = (milliseconds << 5) | _ALPHABET.index(letter)
    return milliseconds * 1000
