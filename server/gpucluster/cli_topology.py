"""The cluster drawn as text: rack, node, socket, switch, GPU, and who holds each GPU.

    rack-0
    ├─ node-0  ready  8 × SIM-80G, 80 GiB, simulated  3 of 8 in use  NVLink 0-7
    │  ├─ socket 0  switch 0 [0 #12  1 #12]  switch 1 [2 #13  3 ·  ]
    │  └─ socket 1  switch 2 [4 ·    5 ·  ]  switch 3 [6 ·    7 ·  ]

A socket's switches stand side by side as far as the width allows. Pure: from a view to text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from .api.schemas import GpuView, NodeView, TopologyView
from .cli_render import HEALTH_STYLES, SIMULATED
from .cli_text import Glyphs, plural, size_text

T = TypeVar("T")

#: Marks of GPUs that hold no job of which the caller may know.
OCCUPIED, FOREIGN, BAD = "#", "!", "x"
#: Colours of jobs, in the order in which they appear, repeated when there are more.
JOB_STYLES = (
    "green",
    "cyan",
    "magenta",
    "blue",
    "bright_green",
    "bright_cyan",
    "bright_magenta",
    "bright_blue",
)


def topology(view: TopologyView, width: int, glyphs: Glyphs) -> RenderableType:
    styles = _job_styles(view)
    lines: list[Text] = [_headline(view), Text()]
    by_rack: dict[str, list[NodeView]] = {}
    for node in view.nodes:
        by_rack.setdefault(node.rack, []).append(node)
    for rack, nodes in by_rack.items():
        lines.append(Text(rack, "bold"))
        for node, stem, stem_below in _stems(nodes, glyphs):
            lines += _node(node, view.levels, stem, stem_below, width, glyphs, styles)
    lines += [Text(), *_legend(view, glyphs, styles)]
    return Group(*lines)


def _job_styles(view: TopologyView) -> dict[int, str]:
    numbers = {gpu.job_number: None for gpu in _gpus(view) if gpu.job_number is not None}
    return {number: JOB_STYLES[place % len(JOB_STYLES)] for place, number in enumerate(numbers)}


def _gpus(view: TopologyView) -> Iterable[GpuView]:
    return (gpu for node in view.nodes for gpu in node.gpus)


def _headline(view: TopologyView) -> Text:
    gpus = list(_gpus(view))
    used = sum(gpu.occupied for gpu in gpus)
    simulated = sum(gpu.simulated for gpu in gpus)
    text = Text.assemble((view.cluster, "bold"), f": {plural(len(gpus), 'GPU')}, {used} in use")
    if simulated and simulated == len(gpus):
        text.append(f", all {SIMULATED}", "yellow")
    elif simulated:
        text.append(f", {simulated} of them {SIMULATED}", "yellow")
    return text


def _stems(items: Sequence[T], glyphs: Glyphs) -> Iterable[tuple[T, str, str]]:
    """Each item with what is drawn before its own line and before the lines below it."""
    for place, item in enumerate(items):
        is_last = place == len(items) - 1
        yield item, f"{glyphs.last if is_last else glyphs.branch} ", f"{'  ' if is_last else glyphs.down} "


def _node(
    node: NodeView,
    levels: Sequence[str],
    stem: str,
    below: str,
    width: int,
    glyphs: Glyphs,
    styles: dict[int, str],
) -> list[Text]:
    lines = [_node_line(node, stem, width, glyphs)]
    sockets = [(number, list(gpus)) for number, gpus in groupby(node.gpus, key=lambda gpu: gpu.socket)]
    cell_width = max((cell_len(_mark(gpu, glyphs)) for gpu in node.gpus), default=1)
    for (number, gpus), inner, inner_below in _stems(sockets, glyphs):
        head = Text.assemble((below + inner, "dim"), f"{_level(levels, 2)} {number}  ")
        indent = Text.assemble((below + inner_below, "dim"))
        indent.pad_right(head.cell_len - indent.cell_len)
        boxes = [
            _switch(switch, list(members), _level(levels, 1), cell_width, glyphs, styles)
            for switch, members in groupby(gpus, key=lambda gpu: gpu.switch)
        ]
        lines += _flow(head, indent, boxes, width)
    return lines


def _level(levels: Sequence[str], place: int) -> str:
    return levels[place] if len(levels) > place else ("gpu", "switch", "socket")[place]


def _node_line(node: NodeView, stem: str, width: int, glyphs: Glyphs) -> Text:
    line = Text.assemble(
        (stem, "dim"), (node.name, "bold"), "  ", (node.health, HEALTH_STYLES.get(node.health, ""))
    )
    parts = [
        *_kinds(node, glyphs),
        f"{sum(gpu.occupied for gpu in node.gpus)} of {len(node.gpus)} in use",
        _nvlink(node),
    ]
    if not node.gpus:
        parts = ["no GPUs"]
    for part in filter(None, parts):
        if line.cell_len + 2 + cell_len(part) <= width:
            line.append(f"  {part}", "dim")
    return line


def _kinds(node: NodeView, glyphs: Glyphs) -> list[str]:
    counts: dict[tuple[str, int, bool], int] = {}
    for gpu in node.gpus:
        key = (gpu.type, gpu.memory_bytes, gpu.simulated)
        counts[key] = counts.get(key, 0) + 1
    return [
        f"{count} {glyphs.times} {gpu_type}, {size_text(memory)}{', simulated' if simulated else ''}"
        for (gpu_type, memory, simulated), count in counts.items()
    ]


def _nvlink(node: NodeView) -> str:
    islands: dict[int, list[int]] = {}
    for gpu in node.gpus:
        if gpu.nvlink_island is not None:
            islands.setdefault(gpu.nvlink_island, []).append(gpu.index)
    return f"NVLink {' | '.join(_ranges(indices) for indices in islands.values())}" if islands else ""


def _ranges(indices: Sequence[int]) -> str:
    """Turns into "0-3,6": [0, 1, 2, 3, 6]."""
    parts = []
    for _, run in groupby(enumerate(sorted(indices)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ",".join(parts)


def _switch(
    number: int, gpus: Sequence[GpuView], level: str, cell_width: int, glyphs: Glyphs, styles: dict[int, str]
) -> Text:
    box = Text.assemble((f"{level} {number} {glyphs.open}", "dim"))
    for place, gpu in enumerate(gpus):
        mark = _mark(gpu, glyphs)
        box.append(f"{'  ' if place else ''}{gpu.index} ", "dim")
        box.append(mark + " " * (cell_width - cell_len(mark)), _mark_style(gpu, styles))
    return box.append(glyphs.close, "dim")


def _mark(gpu: GpuView, glyphs: Glyphs) -> str:
    if gpu.job_number is not None:
        return f"#{gpu.job_number}"
    if gpu.occupied:
        return OCCUPIED
    return {"foreign": FOREIGN, "bad": BAD}.get(gpu.health, glyphs.free)


def _mark_style(gpu: GpuView, styles: dict[int, str]) -> str:
    if gpu.job_number is not None:
        return f"bold {styles[gpu.job_number]}" if gpu.mine else styles[gpu.job_number]
    return {"foreign": "yellow", "bad": "bold red"}.get(gpu.health, "none" if gpu.occupied else "dim")


def _flow(head: Text, indent: Text, boxes: Sequence[Text], width: int) -> list[Text]:
    """The boxes one after another, on as many lines as the width makes necessary."""
    lines = [head.copy()]
    for place, box in enumerate(boxes):
        is_first_of_line = place == 0
        if not is_first_of_line and lines[-1].cell_len + 2 + box.cell_len > width:
            lines.append(indent.copy())
            is_first_of_line = True
        if not is_first_of_line:
            lines[-1].append("  ")
        lines[-1].append_text(box)
    return lines


def _legend(view: TopologyView, glyphs: Glyphs, styles: dict[int, str]) -> list[Text]:
    lines = []
    jobs: dict[int, list[GpuView]] = {}
    for gpu in _gpus(view):
        if gpu.job_number is not None:
            jobs.setdefault(gpu.job_number, []).append(gpu)
    for number, gpus in jobs.items():
        line = Text.assemble((f"#{number}", styles[number]), f" {gpus[0].job_name or ''}".rstrip())
        lines.append(line.append(f"  {plural(len(gpus), 'GPU')}{', yours' if gpus[0].mine else ''}", "dim"))
    lines += _notes(view)
    lines.append(_marks(view, glyphs))
    return lines


def _notes(view: TopologyView) -> list[Text]:
    found = [Text(f"{node.name}: {note}", "yellow") for node in view.nodes for note in node.notes]
    for node in view.nodes:
        for gpu in node.gpus:
            if gpu.health != "ok":
                mark = {"foreign": FOREIGN, "bad": BAD}.get(gpu.health, "?")
                found.append(Text(f"{mark} {node.name} GPU {gpu.index}: {gpu.note or gpu.health}", "yellow"))
    return found


def _marks(view: TopologyView, glyphs: Glyphs) -> Text:
    """Only the marks that stand in the drawing."""
    shown: list[tuple[str, Callable[[GpuView], bool]]] = [
        (f"{glyphs.free} free", lambda gpu: not gpu.occupied and gpu.health == "ok"),
        ("#N held by job N", lambda gpu: gpu.job_number is not None),
        (f"{OCCUPIED} held by somebody's job", lambda gpu: gpu.occupied and gpu.job_number is None),
        (f"{FOREIGN} used outside the cluster", lambda gpu: gpu.health == "foreign"),
        (f"{BAD} out of order", lambda gpu: gpu.health == "bad"),
    ]
    gpus = list(_gpus(view))
    return Text("   ".join(text for text, is_shown in shown if any(is_shown(gpu) for gpu in gpus)), "dim")
