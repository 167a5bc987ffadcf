"""How much of a channel may be under way: lines become messages, and messages wait until the page has dealt with earlier ones."""

from __future__ import annotations

from collections import deque

from gpucluster.api.errors import InvalidRequest

from .messages import MESSAGE_BYTES, WINDOW


class Window:
    """Lines of one channel on their way to the page.

    Lines that come while a message may be sent leave at once. Lines that come faster than the page acknowledges wait here,
    and share messages of about `message_bytes`; when so much waits that a message is full, no more should be added.
    """

    def __init__(self, messages: int = WINDOW, message_bytes: int = MESSAGE_BYTES) -> None:
        self._messages = messages
        self._message_bytes = message_bytes
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._under_way = 0

    @property
    def under_way(self) -> int:
        """Messages that the page has not acknowledged."""
        return self._under_way

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes >= self._message_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no line waits to be sent."""
        return not self._waiting

    def add(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def take(self) -> list[bytes]:
        """The lines of the next message, which is then under way; none when nothing waits or the page is behind.

        A line longer than a message should be gets a message of its own.
        """
        if not self._waiting or self._under_way >= self._messages:
            return []
        taken = [self._waiting.popleft()]
        taken_bytes = len(taken[0])
        while self._waiting and taken_bytes + len(self._waiting[0]) <= self._message_bytes:
            taken.append(self._waiting.popleft())
            taken_bytes += len(taken[-1])
        self._waiting_bytes -= taken_bytes
        self._under_way += 1
        return taken

    def acknowledge(self, count: int) -> None:
        """The page has dealt with `count` more messages. Raises InvalidRequest."""
        if not 1 <= count <= self._under_way:
            raise InvalidRequest(
                "count", f"{count} messages cannot be acknowledged: {self._under_way} are under way"
            )
        self._under_way -= count
