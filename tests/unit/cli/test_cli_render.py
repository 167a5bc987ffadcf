"""What the command line draws: that it says what matters, and that it fits the terminal."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from view_samples import MINUTE_US, NOW_US, cluster, job, node_view, queue, status_view

from gpucluster.api.schemas import AttemptView, DryRun, HistoryView, TaskView, WhyView
from gpucluster.cli_render import dry_run, jobs, nodes, placement, progress_text, queues, status, why
from gpucluster.cli_text import (
    ASCII,
    UNICODE,
    Column,
    facts,
    fitted,
    glyphs_for,
    local_time,
    size_text,
)
from gpucluster.cli_topology import topology
from gpucluster.model.jobs import Progress
from gpucluster.nodes.settings import NodeDeclaration


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def drawn(renderable, width: int = 80) -> str:
    console = Console(
        width=width, file=io.StringIO(), highlight=False, markup=False, emoji=False, color_system=None
    )
    console.print(renderable)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


# ---- words and numbers


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(0, "0 B"), (512, "512 B"), (1023, "1023 B"), (80 << 30, "80 GiB"), (3 << 39, "1.5 TiB")],
)
def test_sizes_are_short(size, wanted):
    assert size_text(size) == wanted


def test_times_are_local_and_name_their_zone():
    assert local_time(NOW_US) == "2027-01-15 09:00 CET"
    assert local_time(NOW_US, NOW_US + MINUTE_US) == "09:00:00 CET"
    assert local_time(NOW_US - 86400_000_000, NOW_US) == "2027-01-14 09:00 CET"


def test_terminal_that_knows_no_boxes_gets_ascii():
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for(None) is ASCII
    assert glyphs_for("no-such-encoding") is ASCII


def test_columns_of_least_weight_go_first_and_those_that_matter_stay():
    columns = [Column("A", ["x" * 30]), Column("B", ["y" * 30], keep=3), Column("C", ["z" * 30], keep=7)]
    assert [column.title for column in fitted(columns, 100)] == ["A", "B", "C"]
    assert [column.title for column in fitted(columns, 70)] == ["A", "C"]
    assert [column.title for column in fitted(columns, 10)] == ["A"]


def test_text_of_others_is_never_taken_for_markup():
    assert "[red]name[/red]" in drawn(facts([("Name", "[red]name[/red]")]))
    assert "[bold]x" in drawn(jobs([job(1, name="[bold]x")], NOW_US, 80))


# ---- status


def test_status_says_plainly_that_gpus_are_simulated():
    text = drawn(status(status_view(notes=["disk nearly full"]), NOW_US, UNICODE))
    assert "5 of 16 in use on 2 nodes; simulated (no hardware" in text
    assert "up 2 h 01 min" in text
    assert "1 pending, 2 running, 3 failed" in text
    assert "disk nearly full" in text
    assert "simulated" not in drawn(status(status_view(simulated=False), NOW_US, UNICODE))


def test_status_counts_gpus_that_cannot_be_used():
    assert "2 not usable" in drawn(status(status_view(gpus_healthy=14), NOW_US, UNICODE))


# ---- queues


def test_queues_show_guaranteed_used_and_borrowed_with_children_below_their_parent():
    views = [
        queue("batch", 6, 1),
        queue("research", 10, 12, parent="team", max={"gpu": 16_000}, waiting=3),
        queue("team", 10, 12, is_leaf=False, max={"gpu": 16_000}),
    ]
    text = drawn(queues(views, "research", 100, UNICODE), 100)
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["batch", "team", "research"]
    assert lines[3].startswith("  research *")
    assert lines[3].split()[2:6] == ["10", "12", "2", "16"]
    assert lines[1].split()[1:5] == ["6", "1", "0", "—"]
    assert "██████████▓▓····" in lines[3]  # 10 of its own, 2 borrowed, 4 more up to the maximum of 16
    assert "█░░░░░" in lines[1]
    assert "* default queue" in lines[-2]


def test_queues_say_how_many_gpus_are_free_for_good_and_how_many_to_borrow():
    views = [
        queue("batch", 6, 1, free_for_good={"gpu": 5000}, free_until_reclaimed={"gpu": 3000}),
        queue("research", 8, 0, free_for_good={"gpu": 8000}, free_until_reclaimed={"gpu": 0}),
    ]
    for width in (80, 140):
        lines = drawn(queues(views, "research", width, UNICODE), width).splitlines()
        column = lines[0].index("FREE") + len("FREE")
        assert [line[:column].split()[-1] for line in lines[:3]] == ["FREE", "5+3", "8"]
        assert "FREE: idle, for good + until another queue claims them back." in lines


def test_descriptions_of_queues_stand_below_the_table_whole():
    text = "Interactive work: most of the cluster is promised to it, and what it leaves idle is lent to the others"
    for width in (80, 140):
        shown = drawn(queues([queue("research", 10, 0, description=text)], None, width, UNICODE), width)
        assert text in " ".join(shown.split())
        assert "…" not in shown


def test_bars_fit_the_usual_terminal_and_their_legend_goes_when_they_do():
    views = [queue("research", 10, 2, mine={"gpu": 2000}, max={"gpu": 16_000}), queue("batch", 6, 0)]
    assert "█░░░░···" in drawn(queues(views, "research", 80, UNICODE))
    narrow = drawn(queues(views, "research", 60, UNICODE), 60)
    assert "█" not in narrow
    assert "borrowed" not in narrow
    assert "* default queue." in narrow


def test_bar_shows_something_of_every_amount_that_is_not_zero():
    views = [queue("big", 1000, 0), queue("small", 0, 1)]
    small = drawn(queues(views, None, 120, UNICODE), 120).splitlines()[2]
    assert "▓" in small


def test_queue_that_is_closed_to_the_caller_says_so():
    assert "batch (closed)" in drawn(queues([queue("batch", 1, 0, may_submit=False)], None, 80, UNICODE))


# ---- jobs


def test_jobs_say_what_they_wait_for_how_far_they_are_and_how_they_ended():
    views = [
        job(12, state="pending", started_us=None, waits="waits for 8 GPUs; 3 are free", progress=None),
        job(11),
        job(9, state="failed", reason="task 0 exited with code 1", ended_us=NOW_US),
    ]
    lines = drawn(jobs(views, NOW_US, 140), 140).splitlines()
    assert "waits for 8 GPUs; 3 are free" in lines[1]
    assert "5 min" in lines[1]  # since it was submitted
    assert "12/30 loss 0.3123" in lines[2]
    assert "3 min" in lines[2]  # since it started
    assert "task 0 exited with code 1" in lines[3]


def test_short_runs_are_told_as_on_the_card():
    ended = job(3, state="succeeded", started_us=NOW_US - 24_000, ended_us=NOW_US)
    assert "24 ms" in drawn(jobs([ended], NOW_US, 140), 140)


def test_list_that_is_cut_says_how_to_see_more():
    assert drawn(jobs([job(3)], NOW_US, 80, more=40)).endswith("Older ones are left out; -n 40 shows more.")


def test_list_without_jobs_says_so():
    assert drawn(jobs([], NOW_US, 80)) == "No jobs."


def test_progress_without_a_total_counts_steps():
    assert progress_text(Progress(step=3)) == "step 3"
    assert progress_text(Progress(step=3, total=4, metrics={"a": 1.0, "b": 2.0})) == "3/4 a 1 b 2"
    assert progress_text(None) == ""


# ---- nodes


def test_nodes_name_what_is_wrong_with_their_gpus():
    view = cluster().nodes[0]
    view.gpus[6].health, view.gpus[6].note = "foreign", "in use by python (pid 4711, user ada)"
    text = drawn(nodes([view], 80, UNICODE))
    assert "SIM-80G (simulated)" in text
    assert "2/8" in text
    assert "node-0: GPU 6 is foreign: in use by python (pid 4711, user ada)" in text


# ---- topology


def test_topology_draws_rack_node_socket_switch_and_gpu():
    assert drawn(topology(cluster(NodeDeclaration(name="node-0")), 80, UNICODE)) == "\n".join(
        [
            "local: 8 GPUs, 0 in use, all simulated (no hardware behind them)",
            "",
            "rack-0",
            "└─ node-0  ready  8 × SIM-80G, 80 GiB, simulated  0 of 8 in use  NVLink 0-7",
            "   ├─ socket 0  switch 0 [0 ·  1 ·]  switch 1 [2 ·  3 ·]",
            "   └─ socket 1  switch 2 [4 ·  5 ·]  switch 3 [6 ·  7 ·]",
            "",
            "· free",
        ]
    )


def test_topology_shows_who_holds_each_gpu_as_far_as_one_may_know():
    view = cluster()
    gpus = view.nodes[0].gpus
    for gpu in gpus[:2]:
        gpu.occupied, gpu.mine, gpu.job_number, gpu.job_name = True, True, 130, "wide-net"
    gpus[2].occupied = True
    gpus[3].health, gpus[3].note = "foreign", "in use by Xorg"
    gpus[4].health, gpus[4].note = "bad", "fell off the bus"
    text = drawn(topology(view, 80, UNICODE))
    assert "switch 0 [0 #130  1 #130]  switch 1 [2 #     3 !   ]" in text
    assert "switch 2 [4 x     5 ·   ]" in text
    assert "#130 wide-net  2 GPUs, yours" in text
    assert "! node-0 GPU 3: in use by Xorg" in text
    assert "x node-0 GPU 4: fell off the bus" in text
    assert "3 of 8 in use" in text
    assert "# held by somebody's job" in text


def test_switches_of_a_socket_go_onto_a_further_line_when_the_terminal_is_narrow():
    wide = NodeDeclaration(name="n", gpus=16, sockets=1, switches_per_socket=8)
    text = drawn(topology(cluster(wide), 80, UNICODE))
    lines = [line for line in text.splitlines() if "switch" in line]
    assert len(lines) == 3
    assert {line.index("switch") for line in lines} == {lines[0].index("switch")}
    assert (
        len([line for line in drawn(topology(cluster(wide), 300, UNICODE), 300).splitlines() if "[" in line])
        == 1
    )


def test_topology_tells_real_gpus_from_simulated_ones():
    view = cluster(NodeDeclaration(name="a", gpus=2), NodeDeclaration(name="b", gpus=2))
    for gpu in view.nodes[0].gpus:
        gpu.simulated = False
    text = drawn(topology(view, 100, UNICODE), 100)
    assert "4 GPUs, 0 in use, 2 of them simulated" in text
    for gpu in view.nodes[1].gpus:
        gpu.simulated = False
    assert "simulated" not in drawn(topology(view, 100, UNICODE), 100)


def test_topology_uses_the_level_names_of_the_site_and_names_partial_islands():
    view = cluster(NodeDeclaration(name="n", gpus=4, nvlink=((0, 1), (2, 3)), rack="row-7"))
    view.levels = ["gpu", "plx", "numa", "node", "row", "cluster"]
    text = drawn(topology(view, 100, UNICODE), 100)
    assert "numa 0  plx 0 [0 ·]" in text
    assert "NVLink 0-1 | 2-3" in text
    assert "row-7" in text


def test_node_without_gpus_is_drawn_too():
    assert "cpu-1  ready  no GPUs" in drawn(
        topology(cluster(NodeDeclaration(name="cpu-1", gpus=0)), 80, UNICODE)
    )


# ---- one job


def test_why_gives_the_sentence_the_place_and_the_history():
    answer = WhyView(
        job_id="x",
        verdict="starts_when",
        code="no_gpus_free",
        sentence="Starts when 2 GPUs are free.",
        position=2,
    )
    history = [
        HistoryView(
            time_us=NOW_US,
            from_state=None,
            to_state="pending",
            cause="submitted",
            actor="unix:1",
            attempt=None,
            detail=None,
        )
    ]
    text = drawn(why(answer, job(12, state="pending"), history, NOW_US))
    assert text.splitlines()[:3] == [
        "Job 12 wide-net: pending",
        "Starts when 2 GPUs are free.",
        "Place in queue research: 2.",
    ]
    assert "09:00:00 CET  pending    submitted" in text


def test_history_speaks_plainly_and_counts_attempts_where_there_were_several():
    def line(to_state, cause, attempt=None, detail=None):
        return HistoryView(
            time_us=NOW_US,
            from_state=None,
            to_state=to_state,
            cause=cause,
            actor="unix:1",
            attempt=attempt,
            detail=detail,
        )

    answer = WhyView(job_id="x", verdict="ended", code="cancelled", sentence="The job has been cancelled.")
    once = [
        line("starting", "placed", 1),
        line("running", "all_tasks_up", 1),
        line("cancelled", "cancel", 1, "cancelled"),
    ]
    text = drawn(why(answer, job(12, state="cancelled"), once, NOW_US))
    assert "starting   has its place" in text
    assert "running    all tasks are up" in text
    assert text.splitlines()[-1].endswith("cancelled")
    assert "attempt" not in text
    assert "_" not in text
    twice = [*once[:2], line("pending", "lost", 1, "its supervisor died"), line("starting", "placed", 2)]
    assert "starting   attempt 2 has its place" in drawn(why(answer, job(12), twice, NOW_US))


def test_dry_run_speaks_in_the_units_of_people():
    answer = DryRun(
        queue="batch",
        roles=[{"name": "worker", "count": 2, "gpus": 4000, "cpus": 32_000, "memory": 256 << 30}],
        starts_now=True,
        sentence="The job would start now on node-0.",
        placement=[TaskView(role="worker", rank=0, node="node-0", gpus=["u"], gpu_indices=[3, 1], state="")],
    )
    text = drawn(dry_run(answer))
    assert "2, each with 4 GPUs, 32 CPU cores and 256 GiB of memory" in text
    assert "node-0 GPUs 1,3" in text
    assert text.splitlines()[-2:] == ["The job would start now on node-0.", "Nothing was submitted."]


def test_placement_names_nodes_and_gpus_while_the_job_holds_them():
    tasks = [
        TaskView(role="worker", rank=0, node="node-0", gpus=[], gpu_indices=[0, 1], state="running"),
        TaskView(role="worker", rank=1, node="node-1", gpus=[], gpu_indices=[4], state="running"),
    ]
    attempt = AttemptView(
        id="a",
        number=1,
        state="active",
        created_us=0,
        started_us=0,
        ended_us=None,
        outcome=None,
        reason=None,
        tasks=tasks,
    )
    assert placement(job(1, attempt=attempt)) == "node-0 GPUs 0,1; node-1 GPU 4"
    assert placement(job(1, attempt=attempt, state="failed")) == ""


# ---- every view in every terminal


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_view_is_wider_than_the_terminal(width, glyphs):
    busy = cluster()
    for gpu in busy.nodes[0].gpus:
        gpu.occupied, gpu.job_number, gpu.job_name = True, 123_456, "a rather long name of a job"
    long = "a very long name of a job that somebody gave it without thinking of tables"
    waits = "waits for 8 GPUs on one node; 3 are free, and research may use 4 more of its 16"
    views = [
        status(status_view(notes=[waits * 3]), NOW_US, glyphs),
        queues(
            [queue("research", 10, 12, description=waits * 2), queue("b" * 63, 1, 0)],
            "research",
            width,
            glyphs,
        ),
        nodes([node_view_with_long_type()], width, glyphs),
        jobs([job(123_456, name=long, waits=waits, state="pending", queue="q" * 20)], NOW_US, width),
        topology(busy, width, glyphs),
    ]
    for view in views:
        text = drawn(view, width)
        assert widest(text) <= width
        if glyphs is ASCII:
            assert text.replace("…", "").isascii()


def node_view_with_long_type():
    from gpucluster.nodes.declared import declared_node

    return node_view(declared_node(NodeDeclaration(name="n" * 30, gpu_type="RTX-PRO-6000-Blackwell")))
