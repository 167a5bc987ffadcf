"""What jobs, users and nodes say is shown, and steers no terminal."""

from __future__ import annotations

import json
import re

import pytest
from view_samples import NOW_US, cluster, job, queue, status_view

from gpucluster.api.schemas import HistoryView, WhyView
from gpucluster.cli_output import Output
from gpucluster.cli_render import jobs, nodes, queues, status, why
from gpucluster.cli_topology import topology
from gpucluster.model.errors import GpuclusterError

HOSTILE = "[b]x[/b]\x1b]0;owned\x07\x1b[2J\x9b31m\x7fgone\u202ereversed\rover"
#: All of these would steer a terminal. Colours of our own are off here: nothing is written to one.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def history(text: str) -> HistoryView:
    return HistoryView(
        time_us=NOW_US, from_state=None, to_state="failed", cause=text, actor=text, attempt=1, detail=text
    )


def hostile_pages(output: Output):
    bad = job(1, name=HOSTILE, reason=HOSTILE, state="failed", ended_us=NOW_US, owner_name=HOSTILE)
    node = cluster().nodes[0]
    node.notes = [HOSTILE]
    answer = WhyView(job_id="1", verdict="ended", code="failed", sentence=f"Has failed: {HOSTILE}")
    page = cluster()
    page.nodes[0].notes = [HOSTILE]
    page.nodes[0].gpus[0].job_name, page.nodes[0].gpus[0].job_number = HOSTILE, 1
    return [
        ("jobs", lambda: jobs([bad], NOW_US, 200)),
        ("why", lambda: why(answer, bad, [history(HOSTILE)], NOW_US)),
        ("nodes", lambda: nodes([node], 200, output.glyphs)),
        ("queues", lambda: queues([queue("q", 1, 1, description=HOSTILE)], None, 200, output.glyphs)),
        ("status", lambda: status(status_view(notes=[HOSTILE]), NOW_US, output.glyphs)),
        ("topology", lambda: topology(page, 200, output.glyphs)),
    ]


@pytest.mark.parametrize("place", range(6))
def test_no_page_lets_a_text_steer_the_terminal(capsys: pytest.CaptureFixture[str], place: int) -> None:
    output = Output()
    _, draw = hostile_pages(output)[place]
    output.show(None, draw)
    said = capsys.readouterr().out
    assert not STEERING.search(said)
    assert "owned" in said, "it is shown, only harmless"
    assert "[b]x[/b]" in said, "and not taken for markup"


def test_table_keeps_its_columns_with_such_a_name_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    rows = [job(1, name="\x1b\x1b\x1bname"), job(2, name="ordinary")]
    output.show(None, lambda: jobs(rows, NOW_US, 200))
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index("running") for line in lines[1:]}) == 1


def test_neither_errors_nor_asides_nor_json_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        output = Output(as_json=as_json)
        output.line(HOSTILE)
        output.aside(HOSTILE)
        output.error(GpuclusterError(HOSTILE, hint=HOSTILE))
        if as_json:
            output.json({"name": HOSTILE})
        said = capsys.readouterr()
        assert not STEERING.search(said.out + said.err)
    assert json.loads(said.out) == {"name": HOSTILE}, "JSON keeps what was said, as escapes"
