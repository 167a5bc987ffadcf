"""Views for tests, with what a test does not care about filled in."""

from __future__ import annotations

from typing import Any

from gpucluster.api.schemas import AttemptView, JobView, Progress, TaskView

SECOND = 1_000_000


def task(rank: int = 0, node: str = "node-0", indices: tuple[int, ...] = (0,), **other: Any) -> TaskView:
    fields = {"role": "worker", "state": "running", **other}
    return TaskView(
        rank=rank, node=node, gpus=[f"GPU-{i}" for i in indices], gpu_indices=list(indices), **fields
    )


def attempt(*tasks: TaskView, number: int = 1, **other: Any) -> AttemptView:
    fields = {
        "state": "active",
        "created_us": 0,
        "started_us": 0,
        "ended_us": None,
        "outcome": None,
        "reason": None,
        **other,
    }
    return AttemptView(id=f"a{number}", number=number, tasks=list(tasks), **fields)


def progress(step: int, total: int | None = None, time_s: float = 0, **metrics: float) -> Progress:
    return Progress(step=step, total=total, metrics=metrics, time_us=round(time_s * SECOND))


def job(**other: Any) -> JobView:
    fields: dict[str, Any] = {
        "id": "01" + "a" * 24, "number": 12, "name": "train", "owner": "uid:1", "owner_name": "ada", "mine": True,
        "queue": "vision", "state": "running", "reason": None, "waits": None, "position": None, "tier": 1, "priority": 0,
        "gpus": 2.0, "gpu_types": [], "tasks": 1, "cpus": 4.0, "memory_bytes": 0, "time_limit_s": None, "submitted_us": 0,
        "started_us": None, "ended_us": None, "first_feedback_us": None, "attempts_made": 0, "attempt": None,
        "progress": None, "share": "owner", "notebook_path": None, "cell_id": None, "can_control": True, "can_read": True,
        "seq": 1, **other,
    }  # fmt: skip
    return JobView(**fields)
