"""What a log's STATUS records tell: how limits are kept, notices to stop, suspensions; in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucluster.api.errors import GpuclusterError
from gpucluster.api.schemas import JobView
from gpucluster.api.words import cause_text

from . import describe

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

#: The record that tells how limits are kept stands this near to the beginning of a log.
_NEAR = 64


def limits_text(view: JobView, means: Mapping[str, str]) -> str:
    """How the limits of one task are kept, e.g. "memory 8.0 GiB by cgroup v1, 2 CPU cores by cgroup v1"; "" for none.

    `means`: by limit, "cgroup v1", "rlimit" … or "none: why".
    """
    tasks = max(view.tasks, 1)
    amounts = {
        "memory": f"memory {describe.size(view.memory_bytes // tasks)}" if view.memory_bytes else "",
        "cpu": f"{describe.figure(view.cpus / tasks)} CPU core{'' if view.cpus == tasks else 's'}" if view.cpus else "",
    }  # fmt: skip
    parts = []
    for limit, amount in amounts.items():
        how = means.get(limit)
        if how and amount:
            why = how.removeprefix("none: ")
            parts.append(f"{amount} by {how}" if why == how else f"{amount} not enforced ({why})")
    return ", ".join(parts)


def status_text(view: JobView, said: Mapping[str, Any]) -> str | None:
    """A STATUS record as a line of `%logs`; None for one that tells a reader nothing."""
    event = said.get("event")
    if event == "up":
        limits = limits_text(view, said.get("limit_means") or {})
        return f"limits: {limits}" if limits else None
    if event == "notice" and said.get("cause"):
        return f"told to stop: {cause_text(str(said['cause']))}"
    if event == "notice":
        return str(said.get("text") or "") or None
    return str(event) if event in ("suspended", "resumed") else None


def limits_of(client: ApiClient, view: JobView) -> str:
    """How the limits of the job's present attempt are kept on rank 0, read from its log; "" when that is not told."""
    if view.attempt is None or view.state == "pending":
        return ""
    try:
        with client.log(view.id, attempt=view.attempt.number) as records:
            for count, item in enumerate(records):
                said = json.loads(item.payload or b"{}") if item.kind == "status" else {}
                if said.get("event") == "up":
                    return limits_text(view, said.get("limit_means") or {})
                if count >= _NEAR:
                    break
    except GpuclusterError:
        return ""  # a log that may not be read, or is gone
    return ""
