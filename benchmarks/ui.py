"""What the panels cost while a cluster is busy: frames of the page, bytes and processor time per watcher.

    python benchmarks/ui.py [--jobs 1000] [--events 50] [--watchers 1,20] [--seconds 10] [--rounds 3] [--json out.json]

Real: Jupyter server, scheduler process (store, engine, live stream), Chromium. A double: the tasks (ui_cluster.py), so that a
thousand jobs do not need a thousand processes. With what the tests need installed; the lab extension is the installed one, or
that of the folder LABEXTENSION_BUILD. Rounds are interleaved, each measurement has its baseline beside it in each round.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

from support.jupyter_server import TOKEN, JupyterServer  # noqa: E402
from ui_cluster import Cluster  # noqa: E402
from ui_watchers import HIDDEN, SIDEBAR, Received, Watchers  # noqa: E402

#: After something began, before it is measured; in a short run half as long as that.
SETTLE_S = 2.0
#: A page lets go of a connection that it does not need after five seconds.
HIDDEN_S = 7.0
FRAME_60_MS = 1000 / 60
LONG_MS = 50.0
#: Settings of a user who wants neither the item in the status bar nor notifications.
QUIET = '{"showStatusBar": false, "notifyOnEnd": "never"}'


@dataclasses.dataclass(frozen=True)
class Options:
    jobs: int
    events: float
    watchers: tuple[int, ...]
    poll_s: float
    seconds: float
    rounds: int


class Stage:
    """Cluster and Jupyter server, up."""

    def __init__(self, server: JupyterServer, cluster: Cluster, options: Options) -> None:
        self.server = server
        self.cluster = cluster
        self.options = options

    def cpu_s(self) -> dict[str, float]:
        """Processor time so far, of all threads."""
        assert self.server.process is not None
        pids = {"jupyter": self.server.process.pid, "scheduler": self.cluster.pid}
        return {name: _cpu_of(pid) for name, pid in pids.items()}

    def seq(self) -> int:
        status, answer = self.server.request("GET", "gpucluster/api/v1/status")
        if status != 200:
            raise RuntimeError(f"the cluster does not answer: {answer}")
        return int(answer["seq"])


def _cpu_of(pid: int) -> float:
    """By Linux's processor-time clock of a process, which has nanoseconds and its ended threads."""
    return time.clock_gettime((~pid << 3) | 2)


@contextlib.contextmanager
def stage(options: Options) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="gpb-"))
    server = JupyterServer(folder)
    build = os.environ.get("LABEXTENSION_BUILD")
    if build:
        shutil.copytree(build, folder / "jupyter/labextensions/jupyter-gpucluster")
        server.env["JUPYTER_PREFER_ENV_PATH"] = "0"  # else what is installed comes first
    try:
        with Cluster(folder, server.env, options.jobs) as cluster:
            server.start()
            yield Stage(server, cluster, options)
            server.stop_jupyter()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


# ---- watchers


@dataclasses.dataclass
class Load:
    """What the servers did, and the clients received, in all rounds of one situation."""

    clients: int
    seconds: float = 0.0
    events: int = 0
    jupyter_s: float = 0.0
    scheduler_s: float = 0.0
    received: Received = dataclasses.field(default_factory=Received)

    @property
    def jupyter_ms_per_s(self) -> float:
        return 1000 * self.jupyter_s / self.seconds

    @property
    def scheduler_ms_per_s(self) -> float:
        return 1000 * self.scheduler_s / self.seconds


def measure_load(stage: Stage, load: Load, clients: Watchers | None) -> None:
    """One round, added to `load`."""
    time.sleep(min(SETTLE_S, stage.options.seconds / 2))
    received = clients.received() if clients else Received()
    seq, cpu, begin = stage.seq(), stage.cpu_s(), time.monotonic()
    time.sleep(stage.options.seconds)
    load.seconds += time.monotonic() - begin
    after = stage.cpu_s()
    load.jupyter_s += after["jupyter"] - cpu["jupyter"]
    load.scheduler_s += after["scheduler"] - cpu["scheduler"]
    load.received += (clients.received() if clients else Received()) - received
    load.events += stage.seq() - seq


def measure_watchers(stage: Stage) -> dict[str, Any]:
    """Nobody, then so many watchers, so many pollers, each in each round."""
    situations = [("nobody", "", 0)]
    for count in stage.options.watchers:
        situations += [(f"{kind} {count}", kind, count) for kind in ("watch", "poll")]
    situations.append(("idle 1", "idle", 1))
    loads = {name: Load(count) for name, _, count in situations}
    stage.cluster.set_rate(stage.options.events)
    for number in range(stage.options.rounds):
        for name, kind, count in situations:
            _say(f"round {number + 1}/{stage.options.rounds}: {name}")
            if not count:
                measure_load(stage, loads[name], None)
                continue
            with Watchers(kind, stage.server.url, TOKEN, count, stage.options.poll_s) as clients:
                measure_load(stage, loads[name], clients)
    return {name: _figures_of(load, loads["nobody"]) for name, load in loads.items()}


def _figures_of(load: Load, nobody: Load) -> dict[str, float]:
    """Of each client: what it adds to nobody's."""
    each = max(load.clients, 1)
    base = nobody if load.clients else Load(0, seconds=1.0)
    return {
        "clients": load.clients,
        "events_per_s": load.events / load.seconds,
        "jupyter_ms_per_s": (load.jupyter_ms_per_s - base.jupyter_ms_per_s) / each,
        "scheduler_ms_per_s": (load.scheduler_ms_per_s - base.scheduler_ms_per_s) / each,
        "wire_bytes_per_s": load.received.wire_bytes / load.seconds / each,
        "plain_bytes_per_s": load.received.plain_bytes / load.seconds / each,
        "messages_per_s": load.received.messages / load.seconds / each,
    }


# ---- the page


def measure_page(stage: Stage, browser: Any, screenshot: str | None) -> dict[str, Any]:
    from ui_page import LabPage

    options, cluster = stage.options, stage.cluster
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    lab = LabPage(page, stage.server)
    lab.wait_for_rows(options.jobs)
    _compare(lab.topics, SIDEBAR)
    situations: dict[str, Any] = {
        "plain list, scrolled": lambda: lab.scroll_static(options.seconds),
        "jobs, scrolled, no events": lambda: _without_events(stage, lab),
        "jobs, scrolled": lambda: lab.scroll_jobs(options.seconds),
        "jobs, not scrolled": lambda: lab.stand_still(options.seconds),
    }
    found: dict[str, Any] = {}
    cluster.set_rate(options.events)
    for number in range(options.rounds):
        for name, measure in situations.items():
            _say(f"round {number + 1}/{options.rounds}: {name}")
            frames = measure()
            found[name] = found[name] + frames if name in found else frames
    if screenshot:
        lab.screenshot(screenshot)
    received = {"sidebar shown": lab.receive(options.seconds)}
    lab.hide()
    lab.wait(HIDDEN_S)
    _compare(lab.topics, HIDDEN)
    received["sidebar hidden"] = lab.receive(2 * options.seconds)
    page.close()
    received["sidebar hidden, no status item, no notifications"] = _receive_quiet(stage, browser)
    plain = _frame_figures(found["plain list, scrolled"])
    return {
        "rows": options.jobs,
        "frames": {
            name: {**figures, "p95_to_plain": figures["p95_ms"] / plain["p95_ms"]}
            for name, figures in ((name, _frame_figures(frames)) for name, frames in found.items())
        },
        "received": {
            name: {"plain_bytes_per_s": size, "messages_per_s": count}
            for name, (size, count) in received.items()
        },
    }


def _compare(followed: set[str], topics: str) -> None:
    if followed != set(topics.split(",")):
        raise RuntimeError(f"the page follows {followed}, the watchers of ui_watchers.py {topics}")


def _without_events(stage: Stage, lab: Any) -> Any:
    stage.cluster.set_rate(0)
    lab.wait(SETTLE_S)
    frames = lab.scroll_jobs(stage.options.seconds)
    stage.cluster.set_rate(stage.options.events)
    lab.wait(SETTLE_S)
    return frames


def _receive_quiet(stage: Stage, browser: Any) -> tuple[float, float]:
    from ui_page import LabPage

    status, answer = stage.server.request("PUT", "lab/api/settings/jupyter-gpucluster:plugin", {"raw": QUIET})
    if status != 204:
        raise RuntimeError(f"the setting was not taken: {answer}")
    page = browser.new_page()
    lab = LabPage(page, stage.server)
    lab.hide()
    lab.wait(HIDDEN_S)
    received = lab.receive(2 * stage.options.seconds)
    page.close()
    return received


def _frame_figures(frames: Any) -> dict[str, float]:
    deltas = sorted(frames.deltas_ms)

    def quantile(share: float) -> float:
        return float(deltas[min(len(deltas) - 1, round(share * (len(deltas) - 1)))])

    return {
        "frames": len(deltas),
        "p50_ms": quantile(0.5),
        "p95_ms": quantile(0.95),
        "longest_ms": deltas[-1],
        "missed_share": sum(delta > 1.5 * FRAME_60_MS for delta in deltas) / len(deltas),
        "tasks_above_50_ms": frames.long_tasks,
        "busy_ms_per_s": frames.busy_ms / frames.seconds,
        "busy_ms_per_frame": frames.busy_ms / len(deltas),
    }


# ---- what is printed


def report(figures: dict[str, Any]) -> str:
    parts = []
    if "page" in figures:
        parts += [frames_table(figures["page"]["frames"]), received_table(figures)]
    parts.append(watchers_table(figures["watchers"]))
    return "\n\n".join(parts)


def frames_table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        "| the page | frame p50 | p95 | longest | missed | tasks > 50 ms | main thread busy | in a frame | p95 ÷ plain list |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['p50_ms']:.1f} ms | {row['p95_ms']:.1f} ms | {row['longest_ms']:.0f} ms "
            f"| {row['missed_share']:.1%} | {row['tasks_above_50_ms']:.0f} | {row['busy_ms_per_s']:.0f} ms/s "
            f"| {row['busy_ms_per_frame']:.1f} ms | {row['p95_to_plain']:.2f} |"
        )
    return "\n".join(lines)


def received_table(figures: dict[str, Any]) -> str:
    lines = ["| the page receives, uncompressed | bytes/s | messages/s |", "|---|---|---|"]
    for name, row in figures["page"]["received"].items():
        lines.append(f"| {name} | {row['plain_bytes_per_s']:,.0f} | {row['messages_per_s']:.2f} |")
    return "\n".join(lines)


def watchers_table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        "| each of | Jupyter server | scheduler | messages | on the wire | uncompressed "
        "| servers ÷ watcher's | wire ÷ watcher's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    words = {"watch": "watcher", "poll": "poller", "idle": "page with the sidebar hidden"}
    for name, row in rows.items():
        kind, _, count = name.partition(" ")
        what = "nobody watches" if not count else f"{count} {words[kind]}{'s' if count != '1' else ''}"
        beside = rows[f"watch {count}"] if kind == "poll" else None
        lines.append(
            f"| {what} | {row['jupyter_ms_per_s']:.1f} ms/s | {row['scheduler_ms_per_s']:.1f} ms/s "
            f"| {row['messages_per_s']:.1f}/s | {row['wire_bytes_per_s'] / 1000:.1f} kB/s "
            f"| {row['plain_bytes_per_s'] / 1000:.1f} kB/s "
            f"| {_ratio(row, beside, _both)} | {_ratio(row, beside, lambda one: one['wire_bytes_per_s'])} |"
        )
    return "\n".join(lines)


def _ratio(
    row: dict[str, float], beside: dict[str, float] | None, figure: Callable[[dict[str, float]], float]
) -> str:
    """Nothing where there is nothing beside it, or the other is too small to have been measured in a short run."""
    return f"{figure(row) / figure(beside):.1f}" if beside and figure(beside) > 0 else ""


def _both(row: dict[str, float]) -> float:
    return row["jupyter_ms_per_s"] + row["scheduler_ms_per_s"]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def run(options: Options, *, has_page: bool, screenshot: str | None) -> dict[str, Any]:
    figures: dict[str, Any] = {"machine": machine(), "options": dataclasses.asdict(options)}
    with contextlib.ExitStack() as stack:
        browser = None
        if has_page:
            from ui_page import chromium

            browser = stack.enter_context(chromium())
        standing = stack.enter_context(stage(options))
        if browser is not None:
            figures["machine"]["chromium"] = browser.version
            figures["page"] = measure_page(standing, browser, screenshot)
        figures["watchers"] = measure_watchers(standing)
    figures["machine"]["load_after"] = os.getloadavg()[0]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--events", type=float, default=50.0, help="published by the cluster in a second")
    parser.add_argument("--watchers", default="1,20", help="how many at a time, comma-separated")
    parser.add_argument("--poll", type=float, default=2.0, help="seconds between two requests of a poller")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-page", action="store_true", help="without Chromium: watchers alone")
    parser.add_argument("--screenshot", help="write a picture of the page to this file")
    parser.add_argument("--json", help="write the figures to this file")
    asked = parser.parse_args()
    try:
        watchers = tuple(int(count) for count in asked.watchers.split(","))
    except ValueError:
        parser.error(f"--watchers: {asked.watchers!r} is not a list of numbers, such as 1,20")
    options = Options(asked.jobs, asked.events, watchers, asked.poll, asked.seconds, asked.rounds)
    figures = run(options, has_page=not asked.no_page, screenshot=asked.screenshot)
    print(report(figures))
    if asked.json:
        Path(asked.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
