"""The rule for folders and files that nobody but their owner may have written to. A pure look at what stat says."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class NotPrivate(NamedTuple):
    """`hint` is None where no command mends it: what belongs to somebody else is not ours to take."""

    reason: str
    hint: str | None


def why_not_private(path: str | os.PathLike[str], status: os.stat_result, uid: int) -> NotPrivate | None:
    """Why what stands at `path` may not be uid's own work: another owner, or others may write to it. None when it is.

    That others may read it is another matter: the owner can close it (`is_open`).
    """
    if status.st_uid != uid:
        return NotPrivate(f"{os.fspath(path)} belongs to uid {status.st_uid}, not to you", None)
    if status.st_mode & 0o022:
        reason = f"others may write to {os.fspath(path)}, so what stands there may not be yours"
        return NotPrivate(
            reason, f"Look what is in it, then: chmod {private_mode(status):o} {os.fspath(path)}"
        )
    return None


def is_open(status: os.stat_result) -> bool:
    """Whether others have any right to it."""
    return bool(status.st_mode & 0o077)


def private_mode(status: os.stat_result) -> int:
    """The mode that closes it."""
    return 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
