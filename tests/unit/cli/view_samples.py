"""Views as the scheduler gives them, for the tests of what the command line draws."""

from __future__ import annotations

from typing import Any

from gpucluster.api.schemas import GpuView, JobView, NodeView, QueueView, StatusView, TopologyView
from gpucluster.model.jobs import Progress
from gpucluster.model.topology import DEFAULT_LEVELS, Node
from gpucluster.nodes.declared import declared_nodes
from gpucluster.nodes.settings import DEFAULT_DECLARATIONS, NodeDeclaration

NOW_US = 1_800_000_000_000_000
MINUTE_US = 60_000_000


def queue(name: str, guaranteed: float, used: float, **changes: Any) -> QueueView:
    """Amounts in GPUs."""
    values: dict[str, Any] = {
        "name": name,
        "parent": None,
        "is_leaf": True,
        "guaranteed": {"gpu": int(guaranteed * 1000)},
        "max": {},
        "used": {"gpu": int(used * 1000)},
        "borrowed": {"gpu": int(max(used - guaranteed, 0) * 1000)},
        "mine": {},
        "waiting": 0,
        "running": 1,
        "weight": 1,
        "ordering": "fifo",
        "may_submit": True,
    }
    return QueueView(**{**values, **changes})


def job(number: int, **changes: Any) -> JobView:
    values: dict[str, Any] = {
        "id": f"id{number}",
        "number": number,
        "name": "wide-net",
        "owner": "unix:1000",
        "owner_name": "ada",
        "mine": True,
        "queue": "research",
        "state": "running",
        "reason": None,
        "waits": None,
        "position": None,
        "tier": 1,
        "priority": 0,
        "gpus": 2.0,
        "gpu_types": [],
        "tasks": 1,
        "cpus": 8.0,
        "memory_bytes": 8 << 30,
        "time_limit_s": None,
        "submitted_us": NOW_US - 5 * MINUTE_US,
        "started_us": NOW_US - 3 * MINUTE_US,
        "ended_us": None,
        "first_feedback_us": None,
        "attempts_made": 1,
        "attempt": None,
        "progress": Progress(step=12, total=30, metrics={"loss": 0.31234}),
        "share": "owner",
        "notebook_path": None,
        "cell_id": None,
        "can_control": True,
        "can_read": True,
        "seq": 1,
    }
    return JobView(**{**values, **changes})


def node_view(node: Node, **changes: Any) -> NodeView:
    values: dict[str, Any] = {
        "name": node.name,
        "rack": node.rack,
        "health": "ready",
        "simulated": node.simulated,
        "capacity": node.capacity().to_dict(),
        "used": {"gpu": 2000, "cpu": 16_000, "memory": 128 << 30},
        "gpus": [
            GpuView(
                uuid=gpu.uuid,
                index=gpu.index,
                type=gpu.type,
                memory_bytes=gpu.memory_bytes,
                socket=gpu.socket,
                switch=gpu.switch,
                nvlink_island=gpu.nvlink_island,
                health="ok",
                note=None,
                simulated=gpu.simulated,
            )
            for gpu in node.gpus
        ],
    }
    return NodeView(**{**values, **changes})


def cluster(*declarations: NodeDeclaration) -> TopologyView:
    """All GPUs free; by default the built-in cluster."""
    nodes = declared_nodes(declarations or DEFAULT_DECLARATIONS)
    return TopologyView(
        cluster="local", levels=list(DEFAULT_LEVELS), nodes=[node_view(node) for node in nodes]
    )


def status_view(**changes: Any) -> StatusView:
    values: dict[str, Any] = {
        "cluster": "local",
        "version": "0.1.0",
        "pid": 77,
        "started_us": NOW_US - 7_300_000_000,
        "data_dir": "/home/ada/.local/share/gpucluster",
        "address": "unix:/run/user/1000/gpucluster/abc.sock",
        "simulated": True,
        "nodes": 2,
        "gpus": 16,
        "gpus_used": 5,
        "gpus_healthy": 16,
        "jobs": {"running": 2, "pending": 1, "failed": 3},
    }
    return StatusView(**{**values, **changes})
