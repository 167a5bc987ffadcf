"""sys.stdout and sys.stderr of a cell: text and raw bytes into the outbox, never refused for their encoding."""

from __future__ import annotations

import io
import sys
from typing import Any

from .frames import Kind
from .outbox import Outbox


def standard_stream(name: str) -> Any:
    """The current sys.stdout or sys.stderr: what a pickled reference to one becomes where it is loaded."""
    return getattr(sys, name)


def standard_bytes(name: str) -> Any:
    """As standard_stream, of `sys.stdout.buffer`."""
    return getattr(sys, name).buffer


def encode(text: str) -> bytes:
    """UTF-8. Bytes of a file name that is none come out as they were, other lone surrogates as escapes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes go out as they are."""

    def __init__(self, outbox: Outbox, kind: Kind) -> None:
        self._outbox = outbox
        self._kind = kind
        self.name = f"<{kind.name.lower()}>"
        self.mode = "wb"

    @property
    def raw(self) -> Any:
        return self

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._outbox.write(self._kind, content)
        return len(content)

    def flush(self) -> None:
        self._outbox.flush()

    def fileno(self) -> int:
        return int(self._kind)  # STDOUT is 1, STDERR is 2

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Flush only: a wrapper somebody put around this must not close the task's output when it is collected."""
        self._outbox.flush()

    @property
    def closed(self) -> bool:
        return False

    def __reduce_ex__(self, protocol: Any) -> Any:
        return standard_bytes, (self._kind.name.lower(),)


class TextStream(io.TextIOBase):
    """A text stream of the task, like the one a notebook kernel has."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = False
    mode = "w"

    def __init__(self, outbox: Outbox, kind: Kind) -> None:
        self._outbox = outbox
        self._kind = kind
        self.name = f"<{kind.name.lower()}>"
        self.buffer = _Bytes(outbox, kind)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._outbox.write(self._kind, encode(text))
        return len(text)

    def flush(self) -> None:
        self._outbox.flush()

    def fileno(self) -> int:
        return int(self._kind)

    def isatty(self) -> bool:
        return False

    def reconfigure(self, **_settings: Any) -> None:
        """Nothing to set: always UTF-8, always sent line by line."""
        self._outbox.flush()

    def detach(self) -> Any:
        self._outbox.flush()
        return self.buffer

    def close(self) -> None:
        self._outbox.flush()

    @property
    def closed(self) -> bool:
        return False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """An object that refers to its stdout can go back to the notebook; there it means the notebook's own."""
        return standard_stream, (self._kind.name.lower(),)


def install(outbox: Outbox) -> None:
    """Make the outbox the standard output and error of this process."""
    sys.stdout = TextStream(outbox, Kind.STDOUT)
    sys.stderr = TextStream(outbox, Kind.STDERR)
