"""%jobs, %queues and %topology as text and as HTML."""

from __future__ import annotations

from unit.notebook.views import SECOND, attempt, job, progress, task

from gpucluster.api.schemas import GpuView, NodeView, QueueView, TopologyView
from jupyter_gpucluster.tables import JobTable, QueueTable, Topology


def queue(name: str, parent: str | None, **other) -> QueueView:
    fields = {
        "is_leaf": parent is not None, "guaranteed": {"gpu": 8000}, "max": {}, "used": {"gpu": 0}, "borrowed": {},
        "mine": {}, "waiting": 0, "running": 0, "weight": 1, "ordering": "fifo", "may_submit": True, **other,
    }  # fmt: skip
    return QueueView(name=name, parent=parent, **fields)


def gpu(index: int, **other) -> GpuView:
    fields = {"health": "ok", "note": None, "simulated": True, "nvlink_island": None, **other}
    return GpuView(
        uuid=f"G{index}",
        index=index,
        type="A100",
        memory_bytes=80 << 30,
        socket=index // 4,
        switch=index // 2,
        **fields,
    )


def node(*gpus: GpuView, **other) -> NodeView:
    fields = {"rack": "rack-0", "health": "ready", "simulated": True, "capacity": {}, "used": {}, **other}
    return NodeView(name="node-0", gpus=list(gpus), **fields)


def test_jobs_say_how_each_stands():
    table = JobTable(
        [
            job(number=14, state="pending", position=1, waits="all 8 GPUs are in use"),
            job(number=13, attempt=attempt(task(indices=(2,))), progress=progress(30, 100, loss=0.5)),
            job(number=12, state="succeeded", started_us=0, ended_us=9 * SECOND),
        ]
    )
    text = repr(table)
    assert "1st: all 8 GPUs are in use" in text
    assert "on node-0 (GPU 2) · step 30/100 · loss 0.5" in text
    assert "after 9.0 s" in text
    assert [each.number for each in table] == [14, 13, 12]
    assert "width:30.0%" in table._repr_html_()


def test_no_jobs_is_said():
    assert repr(JobTable([])) == "no jobs"
    assert "no jobs" in JobTable([])._repr_html_()


def test_names_are_escaped_in_html():
    assert "<b>" not in JobTable([job(name="<b>x</b>")])._repr_html_()


def test_queues_are_a_tree_with_their_figures():
    table = QueueTable(
        [
            queue("root", None, guaranteed={"gpu": 16000}),
            queue("batch", "root"),
            queue(
                "research",
                "root",
                used={"gpu": 10000},
                borrowed={"gpu": 2000},
                max={"gpu": 12000},
                waiting=3,
                free_for_good={"gpu": 0, "gpu/A100": 0},
                free_until_reclaimed={"gpu": 1000, "gpu/A100": 1000},
            ),
        ]
    )
    lines = repr(table).splitlines()
    assert lines[1].startswith("root ")
    assert lines[3].split() == ["research", "10", "8", "2", "12", "0", "1", "0", "0", "3"]
    assert "nobody can claim back" in lines[4]
    assert "nobody can claim back" in table._repr_html_()
    assert lines[3].startswith("  research")
    assert 'gpc-borrowed" style="width:16.7%"' in table._repr_html_()


def test_topology_groups_gpus_and_says_who_holds_them():
    text = repr(
        Topology(
            TopologyView(
                cluster="lab",
                levels=[],
                nodes=[
                    node(
                        gpu(0, job_number=12, occupied=True, mine=True),
                        gpu(1, occupied=True),
                        gpu(2),
                        gpu(4, health="bad"),
                    )
                ],
            )
        )
    )
    assert "socket 0  [0:job 12 1:used]  [2:free]" in text
    assert "socket 1  [4:bad]" in text
    assert "2 of 4 GPUs used" in text
    assert "simulated" in text
