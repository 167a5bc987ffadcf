"""The one error of a start: why a task could not be started, and whether another try may help."""

from __future__ import annotations


class StartFailed(Exception):
    """The task did not start. `retry`: worth another node or another try; else the job fails with `reason`."""

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
