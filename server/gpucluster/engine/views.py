"""What published events say, compactly. Followers that need more ask the service."""

from __future__ import annotations

from typing import Any

from ..model.jobs import Job, JobState, Progress
from ..model.resources import GPU, WHOLE_GPU
from ..model.topology import GpuHealth, HealthSetting, Node
from ..policy.tree import Queue


def job_event(job: Job, source: JobState | None, cause: str, actor: str) -> dict[str, Any]:
    """For ``job.state``. `placement` (GPU uuids by node) comes with the start of an attempt, `freed` with its end."""
    attempt = job.attempt
    data: dict[str, Any] = {
        "number": job.number,
        "name": job.spec.name,
        "state": job.state.value,
        "from": source.value if source else None,
        "cause": cause,
        "actor": actor,
        "reason": job.reason,
        "queue": job.spec.queue,
        "owner_name": job.owner.name,
        "share": job.spec.share.value,
        "gpus": job.spec.request()[GPU] / WHOLE_GPU,
        "tasks": job.spec.task_count,
        "attempt": attempt.number if attempt else None,
    }
    if attempt is not None and job.state is JobState.STARTING:
        placement: dict[str, list[str]] = {}
        for task in attempt.placements:
            placement.setdefault(task.node, []).extend(task.gpus)
        data["placement"] = placement
    if attempt is not None and attempt.ended_us is not None and source is not JobState.PENDING:
        data["freed"] = sorted({task.node for task in attempt.placements})
    return data


def progress_event(job: Job, progress: Progress) -> dict[str, Any]:
    """For ``job.progress``."""
    return {
        "number": job.number,
        "step": progress.step,
        "total": progress.total,
        "metrics": progress.metrics,
        "time_us": progress.time_us,
        "rank": progress.rank,
        "source": progress.source,
        "description": progress.description,
        "share": job.spec.share.value,
        "first_feedback_us": job.first_feedback_us,
    }


def queue_event(queue: Queue, waiting: int, running: int) -> dict[str, Any]:
    """For ``queue.usage``: amounts in the units of model/resources.py, counts of jobs at or below the queue."""
    return {"queue": queue.name, "used": dict(queue.used), "waiting": waiting, "running": running}


def node_event(node: Node, before: Node | None, setting: HealthSetting | None) -> dict[str, Any]:
    """For ``node.health``. `before` None: the node is new. `setting`: what an administrator set, if anything."""
    return {
        "node": node.name,
        "rack": node.rack,
        "health": node.health.value,
        "was": before.health.value if before else None,
        "gpus": len(node.gpus),
        "gpus_not_ok": {gpu.uuid: gpu.health.value for gpu in node.gpus if gpu.health is not GpuHealth.OK},
        "simulated": node.simulated,
        "set_by": setting.actor_name if setting else None,
        "set_reason": setting.reason if setting else None,
        "set_us": setting.time_us if setting else None,
    }
