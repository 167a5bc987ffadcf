"""`%jobs`, `%queues`, `%topology`: small tables with a text and an HTML form. Each is a list, to work on in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from gpucluster.api.schemas import GpuView, JobView, NodeView, QueueView, TopologyView

from . import describe
from .job import Job
from .output import now_us
from .templates import render

Row = Sequence[str]


def text_table(heads: Row, rows: Iterable[Row]) -> str:
    """Columns as wide as their widest entry, two blanks apart."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


class JobTable(list[Job]):
    """Jobs, newest first."""

    HEADS = ("job", "name", "owner", "queue", "state", "GPUs", "how it stands")

    def __init__(self, views: Iterable[JobView], address: str | None = None, more: bool = False) -> None:
        self._views = list(views)
        self._more = more
        super().__init__(Job.from_view(view, address) for view in self._views)

    def _rows(self) -> list[dict[str, Any]]:
        now = now_us()
        return [
            {
                "number": str(view.number),
                "name": view.name,
                "owner": view.owner_name,
                "queue": view.queue,
                "state": view.state,
                "icon": describe.ICONS.get(view.state, "·"),
                "gpus": f"{view.gpus:g}",
                "standing": _standing(view, now),
                "percent": describe.percent(view.progress) if view.state not in describe.ENDED else None,
            }
            for view in self._views
        ]

    def __repr__(self) -> str:
        if not self._views:
            return "no jobs"
        keys = ("number", "name", "owner", "queue", "state", "gpus", "standing")
        table = text_table(self.HEADS, ([row[key] for key in keys] for row in self._rows()))
        return f"{table}\n(older ones are left out; --limit shows more)" if self._more else table

    def _repr_html_(self) -> str:
        return render("jobs.html.j2", rows=self._rows(), heads=self.HEADS, more=self._more)


def _standing(view: JobView, now: int) -> str:
    text = describe.standing(view, now).removeprefix(view.state).lstrip(" ,·")
    return text.removeprefix(f"in queue {view.queue}: ").replace(f" in queue {view.queue}:", ":", 1)


class QueueTable(list[QueueView]):
    """The tree of queues, with what each has, lends and uses."""

    HEADS = (
        "queue", "GPUs used", "guaranteed", "borrowed", "max", "free", "to borrow", "mine", "running", "waiting",
    )  # fmt: skip
    LEGEND = "free: idle GPUs that nobody can claim back · to borrow: idle too, until a queue that is guaranteed them needs them"

    def _rows(self) -> list[dict[str, Any]]:
        return [_queue_row(queue, depth) for queue, depth in _tree(self)]

    def __repr__(self) -> str:
        keys = (
            "indented", "used", "guaranteed", "borrowed", "max", "free", "to_borrow", "mine", "running", "waiting",
        )  # fmt: skip
        table = text_table(self.HEADS, ([row[key] for key in keys] for row in self._rows()))
        return f"{table}\n({self.LEGEND})"

    def _repr_html_(self) -> str:
        return render("queues.html.j2", rows=self._rows(), heads=self.HEADS, legend=self.LEGEND)


def _tree(queues: Iterable[QueueView]) -> list[tuple[QueueView, int]]:
    """Queues with their depth, children below their parent, in the order they came in."""
    by_parent: dict[str | None, list[QueueView]] = {}
    for queue in queues:
        by_parent.setdefault(queue.parent, []).append(queue)
    found: list[tuple[QueueView, int]] = []

    def visit(parent: str | None, depth: int) -> None:
        for queue in by_parent.get(parent, ()):
            found.append((queue, depth))
            visit(queue.name, depth + 1)

    visit(None, 0)
    return found


def _queue_row(queue: QueueView, depth: int) -> dict[str, Any]:
    used, guaranteed, borrowed = (_gpus(each) for each in (queue.used, queue.guaranteed, queue.borrowed))
    limit = _gpus(queue.max) if "gpu" in queue.max else None
    scale = max(limit or 0, guaranteed, used, 1)
    return {
        "name": queue.name,
        "depth": depth,
        "indented": "  " * depth + queue.name,
        "description": queue.description,
        "used": f"{used:g}",
        "guaranteed": f"{guaranteed:g}",
        "borrowed": f"{borrowed:g}",
        "max": f"{limit:g}" if limit is not None else "–",
        "free": f"{_gpus(queue.free_for_good):g}",
        "to_borrow": f"{_gpus(queue.free_until_reclaimed):g}",
        "mine": f"{_gpus(queue.mine):g}",
        "running": str(queue.running),
        "waiting": str(queue.waiting),
        "own_percent": 100 * max(used - borrowed, 0) / scale,
        "borrowed_percent": 100 * borrowed / scale,
        "mark_percent": 100 * guaranteed / scale,
    }


def _gpus(amounts: dict[str, int]) -> float:
    """GPUs of all types in an amount per resource, which counts them in thousandths."""
    return amounts.get("gpu", 0) / 1000


class Topology(list[NodeView]):
    """Nodes with their GPUs by socket and switch."""

    def __init__(self, view: TopologyView) -> None:
        super().__init__(view.nodes)
        self.cluster = view.cluster

    def __repr__(self) -> str:
        return "\n".join([f"cluster {self.cluster}", *(line for node in self for line in _node_lines(node))])

    def _repr_html_(self) -> str:
        return render(
            "topology.html.j2",
            cluster=self.cluster,
            nodes=[
                {
                    "name": node.name,
                    "facts": _node_facts(node),
                    "notes": node.notes,
                    "sockets": [
                        {
                            "number": socket,
                            "switches": [[_gpu_box(gpu) for gpu in gpus] for _, gpus in switches],
                        }
                        for socket, switches in _by_place(node.gpus)
                    ],
                }
                for node in self
            ],
        )


def _by_place(gpus: Iterable[GpuView]) -> list[tuple[int, list[tuple[int, list[GpuView]]]]]:
    """GPUs grouped: [(socket, [(switch, [gpu, …]), …]), …]."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.socket, gpu.switch, gpu.index))
    return [
        (socket, [(switch, list(group)) for switch, group in groupby(of_socket, key=lambda gpu: gpu.switch)])
        for socket, of_socket in groupby(ordered, key=lambda gpu: gpu.socket)
    ]


def _node_facts(node: NodeView) -> str:
    used = sum(1 for gpu in node.gpus if gpu.occupied)
    types = ", ".join(dict.fromkeys(gpu.type for gpu in node.gpus))
    return describe.joined(
        [
            node.rack,
            node.health,
            f"{used} of {len(node.gpus)} GPUs used" if node.gpus else "no GPU",
            types,
            "simulated" if node.simulated else "",
        ]
    )


def _node_lines(node: NodeView) -> list[str]:
    lines = [f"  {node.name} · {_node_facts(node)}"]
    for socket, switches in _by_place(node.gpus):
        boxes = "  ".join("[" + " ".join(_gpu_text(gpu) for gpu in gpus) + "]" for _, gpus in switches)
        lines.append(f"    socket {socket}  {boxes}")
    return [*lines, *(f"    note: {note}" for note in node.notes)]


def _gpu_text(gpu: GpuView) -> str:
    if gpu.health != "ok":
        return f"{gpu.index}:{gpu.health}"
    if gpu.job_number is not None:
        return f"{gpu.index}:job {gpu.job_number}"
    return f"{gpu.index}:used" if gpu.occupied else f"{gpu.index}:free"


def _gpu_box(gpu: GpuView) -> dict[str, str]:
    healthy = gpu.health == "ok"
    kind = "bad" if not healthy else "mine" if gpu.mine else "occupied" if gpu.occupied else "free"
    holder = f"job {gpu.job_number} {gpu.job_name or ''}".strip() if gpu.job_number is not None else kind
    title = describe.joined(
        [f"GPU {gpu.index}", gpu.type, describe.size(gpu.memory_bytes), holder, gpu.note or ""]
    )
    label = f"{gpu.index}: {gpu.job_number}" if gpu.job_number is not None else str(gpu.index)
    return {"kind": kind, "label": label, "title": title}
