"""What a task on this machine may use, as its supervisor is told (how it is kept: supervisor/confinement.py)."""

from __future__ import annotations

import enum
from typing import Any

from ..model.resources import CPU, MEMORY, Resources


class CpuLimit(str, enum.Enum):
    """`share`: idle cores are anybody's, under contention each task gets its part. `quota`: never more than its part."""

    SHARE = "share"
    QUOTA = "quota"


def task_limits(resources: Resources, cpu_limit: CpuLimit, pids: int | None) -> dict[str, Any]:
    """The `limits` of spec.json. Memory is limited where some was asked for; `pids` is the node's limit for a task."""
    return {
        "memory_bytes": resources[MEMORY] or None,
        "cpu_milli": resources[CPU] or None,
        "cpu_hard": cpu_limit is CpuLimit.QUOTA,
        "pids": pids,
    }
