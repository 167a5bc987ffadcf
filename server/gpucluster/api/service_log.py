"""The scheduler's own log: scheduler.log in the data folder, one JSON object a line, rotated; and the terminal."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ..model.plain import plain, plain_json

LOG_NAME = "scheduler.log"
MAX_BYTES = 8 << 20
KEPT_FILES = 5
#: debug, info, warning or error; `debug` logs every request.
ENV_LEVEL = "GPUCLUSTER_LOG_LEVEL"
_SURROGATE = re.compile("[\ud800-\udfff]")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class JsonLines(logging.Formatter):
    """time (UTC), level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        text = {key: _SURROGATE.sub("\ufffd", value) for key, value in entry.items()}
        return plain_json(msgspec.json.encode(text).decode())


class PlainLines(logging.Formatter):
    """For a terminal: what jobs, users and nodes call themselves stands in messages, and must not steer it."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


class _Rotating(logging.handlers.RotatingFileHandler):
    """Readable by the owner only; a full disk costs log lines and nothing else."""

    def _open(self):  # type: ignore[no-untyped-def]
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return open(descriptor, "a", encoding=self.encoding, errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextlib.contextmanager
def service_log(folder: Path, *, to_terminal: bool) -> Iterator[None]:
    """Send everything that is logged to `folder`/scheduler.log; with `to_terminal` to standard error as well."""
    handlers: list[logging.Handler] = [
        _Rotating(folder / LOG_NAME, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8")
    ]
    handlers[0].setFormatter(JsonLines())
    if to_terminal:
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
        handlers.append(terminal)
    root = logging.getLogger()
    level = os.environ.get(ENV_LEVEL, "info").upper()
    before = root.level
    root.setLevel(level if level in _LEVELS else "INFO")
    for handler in handlers:
        root.addHandler(handler)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
