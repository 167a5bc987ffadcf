"""The benchmark of the panels still measures something: its cluster of simulated tasks behaves, its servers and clients meet."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from support.place import ROOT, Place, eventually

JOBS = 60


@pytest.fixture
def ui_cluster() -> Iterator[ModuleType]:
    """That file of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location("ui_cluster", ROOT / "benchmarks" / "ui_cluster.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_simulated_tasks_run_report_and_end_as_told(here: Place, ui_cluster: ModuleType) -> None:
    with ui_cluster.Cluster(here.folder, here.env, JOBS) as cluster, here.client() as client:
        states = client.status().jobs
        assert states["succeeded"] == JOBS * ui_cluster.ENDED_SHARE
        assert states["running"] + states["starting"] == JOBS - states["succeeded"], "they all fit"
        assert client.status().gpus == ui_cluster.NODES * ui_cluster.GPUS_PER_NODE

        running = client.jobs(states=["running"]).jobs[0]
        client.cancel(running.id)
        ended = eventually(lambda: _ended(client.job(running.id)), "the end of the cancelled job")
        assert ended.state == "cancelled"

        seq = client.status().seq
        assert not any(job.progress for job in client.jobs(states=["running"]).jobs)
        cluster.set_rate(100)
        eventually(lambda: client.status().seq > seq + 100, "events")
        assert any(job.progress for job in client.jobs(states=["running"]).jobs)
        assert client.status().jobs["succeeded"] > states["succeeded"], "jobs end"
        assert sum(client.status().jobs.values()) > JOBS, "others are submitted"


def _ended(job):  # type: ignore[no-untyped-def]
    return job if job.state in ("succeeded", "failed", "cancelled") else None


def test_benchmark_of_the_panels_measures_watchers_and_pollers(here: Place) -> None:
    figures = here.folder / "figures.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "ui.py"), "--no-page", f"--jobs={JOBS}", "--watchers=2",
            "--poll=0.2", "--seconds=1", "--rounds=1", f"--json={figures}",
        ],
        env=here.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["watchers"]
    assert list(rows) == ["nobody", "watch 2", "poll 2", "idle 1"]
    assert rows["nobody"]["wire_bytes_per_s"] == 0
    assert rows["nobody"]["events_per_s"] > 0
    for kind in ("watch 2", "poll 2"):
        assert rows[kind]["messages_per_s"] > 0, kind
        assert rows[kind]["plain_bytes_per_s"] > 0, kind
    assert 0 < rows["watch 2"]["wire_bytes_per_s"] < rows["watch 2"]["plain_bytes_per_s"], "compressed"
    assert "| 2 watchers |" in done.stdout
