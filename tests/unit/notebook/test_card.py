"""What the card says at each point of a job's life, in its three renderings."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from unit.notebook.views import SECOND, attempt, job, progress, task

from jupyter_gpucluster import describe
from jupyter_gpucluster.card import MIME, Card, Sent
from jupyter_gpucluster.drawing import CellDrawing
from jupyter_gpucluster.templates import style
from jupyter_gpucluster.track import Track


def card_of(view, **other):
    card = Card(**other)
    card.update(view)
    return card


def test_waiting_job_says_why_and_where_it_stands():
    card = card_of(job(state="pending", position=3, waits="all 16 GPUs are in use"))
    assert card.text(0) == "◌ job 12 train · pending, 3rd in queue vision: all 16 GPUs are in use"
    assert "3rd in queue vision: all 16 GPUs are in use" in card.html(0)


def test_job_that_waits_again_is_not_where_it_ran_before():
    card = card_of(job(state="pending", position=1, attempts_made=1, attempt=attempt(task(), ended_us=1)))
    assert "node-0" not in card.html(0)
    assert "node-0" not in card.text(0)


def test_place_in_the_queue_is_told_once():
    behind = "Number 2 in queue vision, behind job 3, which waits: all 16 GPUs are in use."
    card = card_of(job(state="pending", position=2, waits=behind))
    assert card.text(0) == f"◌ job 12 train · pending, {behind}"


def test_running_job_says_where_how_far_and_how_fast():
    running = {
        "state": "running",
        "started_us": 0,
        "attempts_made": 1,
        "attempt": attempt(task(indices=(2, 3))),
    }
    card = card_of(job(**running, progress=progress(10, 100, time_s=1, loss=0.51234)))
    card.update(job(**running, progress=progress(30, 100, time_s=3, loss=0.3), seq=2))
    assert card.text(3 * SECOND) == (
        "● job 12 train · running on node-0 (GPU 2, 3) · step 30/100 · loss 0.3 · 10 steps/s, 7.0 s left"
    )
    assert "width:30.0%" in card.html(0)


@pytest.mark.parametrize(
    ("indices", "wanted"),
    [((), ""), ((5,), "5"), ((3, 2), "2, 3"), (range(8), "0–7"), ((0, 2, 3, 5, 6, 7, 7), "0, 2, 3, 5–7")],
)
def test_gpus_in_a_row_are_drawn_together(indices, wanted):
    assert describe.numbers(indices) == wanted


def test_running_job_without_progress_says_how_long_it_has_been_running():
    card = card_of(job(state="running", started_us=0, attempt=attempt(task())))
    assert card.text(65 * SECOND) == "● job 12 train · running on node-0 (GPU 0) · 1 min 05 s so far"
    assert "1 min 05 s so far" in card.html(65 * SECOND)
    assert "so far" not in card.text(SECOND)
    card.update(job(state="running", started_us=0, progress=progress(1, 2), seq=2))
    assert "so far" not in card.text(65 * SECOND) + card.html(65 * SECOND)


def test_first_feedback_is_told_while_the_job_runs_and_afterwards():
    begun = {"submitted_us": SECOND, "started_us": 2 * SECOND, "progress": progress(1, 2, time_s=3)}
    card = card_of(job(**begun))
    assert "first step" not in card.text(0) + card.html(0)
    for state in ("running", "succeeded"):
        card.update(job(state=state, **begun, first_feedback_us=4_200_000, seq=card.job.seq + 1))
        assert card.text(4 * SECOND).endswith(" · first step after 3.2 s")
        assert "first step after 3.2 s" in card.html(4 * SECOND)


def test_metrics_that_are_drawn_are_not_told_twice():
    reports = [progress(step, 9, time_s=step, loss=1 / step, speed=7) for step in range(1, 5)]
    card = card_of(job(progress=reports[-1]))
    html = card.html(0, sparklines=Track(reports).sparklines(at_most=1))
    assert html.count("loss 0.25") == 1
    assert "speed 7" in html
    assert 'aria-label="loss went from 1 to 0.25"' in html


def test_card_says_how_it_was_drawn_and_what_went_with_the_job():
    card = card_of(
        job(),
        drawing=CellDrawing(fills_cell=True, rank=1, execution_count=7, display_prefix="p"),
        sent=Sent(names=["X"], asked_back=["net"]),
    )
    said = card.json()
    assert json.loads(json.dumps(said)) == said
    assert said["sent"] == {"names": ["X"], "asked_back": ["net"], "asks_limits": False}
    assert msgspec.convert(said["drawing"], CellDrawing) == card.drawing
    assert not card_of(job()).json()["drawing"]["fills_cell"]


def test_ended_job_says_how_long_it_took_and_what_went_in_and_out():
    card = card_of(job(state="succeeded", started_us=0, ended_us=65 * SECOND, attempt=attempt(task())))
    card.summary = "in: X · out: net"
    assert (
        card.text(0) == "✔ job 12 train · succeeded after 1 min 05 s · on node-0 (GPU 0)\n  in: X · out: net"
    )


def test_card_says_how_limits_are_kept():
    card = card_of(job(state="running"))
    assert "limits" not in card.text(0) + card.html(0)
    card.limits = "memory 8.0 GiB by cgroup v1"
    assert card.text(0).endswith("\n  limits: memory 8.0 GiB by cgroup v1")
    assert "limits: memory 8.0 GiB by cgroup v1" in card.html(0)
    assert card.json()["limits"] == "memory 8.0 GiB by cgroup v1"


def test_failed_job_says_the_reason():
    card = card_of(job(state="failed", reason="over the time limit of 2 h", started_us=0, ended_us=SECOND))
    assert card.text(0) == "✘ job 12 train · failed after 1.0 s · over the time limit of 2 h"


def test_reason_that_says_no_more_than_the_state_is_left_out():
    card = card_of(job(state="cancelled", reason="cancelled", started_us=0, ended_us=SECOND))
    assert card.text(0) == "⊘ job 12 train · cancelled after 1.0 s"
    assert card.html(0).count("cancelled") == card_of(job(state="cancelled", reason=None)).html(0).count(
        "cancelled"
    )
    card = card_of(job(state="cancelled", reason="too slow", started_us=0, ended_us=SECOND))
    assert card.text(0).endswith("· too slow")


def test_html_escapes_what_users_write():
    card = card_of(job(name="<script>alert(1)</script>", state="pending", waits="<b>"), notes=["<i>"])
    html = card.html(0)
    assert "<script>" not in html
    assert "<b>" not in html
    assert "<i>" not in html


def test_simulated_gpus_are_called_so():
    assert "2 GPUs (simulated)" in card_of(job(), simulated=True).html(0)


def test_json_names_the_job_and_neither_address_nor_code():
    content = card_of(job(), notes=["a note"]).json()
    assert json.loads(json.dumps(content)) == content
    assert (content["version"], content["job_id"], content["number"], content["state"]) == (
        1,
        job().id,
        12,
        "running",
    )
    assert not {"address", "source", "env", "notebook_path"} & set(content)


def test_json_shows_the_job_as_it_was_to_a_page_that_cannot_ask_the_cluster():
    gang = attempt(*(task(rank, f"node-{rank // 2}", (0, 1)) for rank in range(20)))
    content = card_of(
        job(attempt=gang, progress=progress(3, 4, loss=0.5), attempts_made=2, first_feedback_us=7, seq=9)
    ).json()
    assert content["place"] == {
        "nodes": 10,
        "names": ["node-0", "node-1", "node-2", "node-3"],
        "gpu_indices": [],
    }
    assert (content["progress"]["step"], content["progress"]["metrics"]) == (3, {"loss": 0.5})
    assert (content["attempts_made"], content["first_feedback_us"], content["seq"]) == (2, 7, 9)
    waits = card_of(job(state="pending", position=3, waits="all 16 GPUs are in use")).json()
    assert (waits["position"], waits["waits"], waits["place"]) == (3, "all 16 GPUs are in use", None)
    one_node = card_of(job(attempt=attempt(task(indices=(3, 2))))).json()
    assert one_node["place"] == {"nodes": 1, "names": ["node-0"], "gpu_indices": [2, 3]}


def test_card_before_the_acknowledgement_has_no_job():
    bundle = Card(title="train()", sending="sending 1.5 GiB of inputs: X").mimebundle(0)
    assert MIME not in bundle
    assert bundle["text/plain"] == "⇪ train() · sending 1.5 GiB of inputs: X"


def test_older_view_changes_nothing():
    card = card_of(job(state="succeeded", seq=9))
    card.update(job(state="running", seq=5))
    assert card.job.state == "succeeded"


def test_pace_is_that_of_the_last_half_minute():
    pace = describe.Pace()
    for second in range(0, 100, 10):  # slow at first
        pace.add(progress(second // 10, 1000, time_s=second))
    for second in range(100, 141):
        pace.add(progress(10 * (second - 100) + 10, 1000, time_s=second))
    assert pace.steps_per_s == 10
    assert pace.left_s == pytest.approx(59)


def test_pace_of_reports_that_are_far_apart_is_that_of_the_last_two():
    pace = describe.Pace()
    for step, second in ((1, 0), (2, 100), (4, 200)):
        pace.add(progress(step, 10, time_s=second))
    assert pace.steps_per_s == pytest.approx(0.02)


def test_pace_keeps_few_of_many_reports_and_yet_sees_half_a_minute():
    pace = describe.Pace()
    for step in range(10_000):  # a hundred a second; twice as fast in the last half minute
        pace.add(progress(step + max(step - 7_000, 0), 100_000, time_s=step / 100))
    assert pace.steps_per_s == pytest.approx(200, rel=0.02)
    assert len(pace._reports) <= 62


def test_new_attempt_measures_its_pace_anew():
    card = card_of(job(progress=progress(90, 100, time_s=1), attempts_made=1))
    card.update(job(progress=progress(99, 100, time_s=2), attempts_made=1, seq=2))
    assert card.pace.steps_per_s == 9
    card.update(job(progress=None, attempts_made=2, seq=3))
    assert card.pace.steps_per_s is None


def test_cards_stay_small_in_a_saved_notebook():
    bundle = card_of(job(state="pending", waits="x" * 100)).mimebundle(0)
    assert sum(len(str(value)) for value in bundle.values()) < 4096


@pytest.mark.parametrize("background", ["#ffffff", "#111111", "#1e1e1e", "#212121"])
def test_colours_of_states_stand_out_from_light_and_dark_pages(background: str):
    """At least 3 to 1, as WCAG asks of what is no text; the card's text has the page's own colour."""
    colours = re.findall(r"--gpc-state: (#[0-9a-f]{6});", style())
    assert len(colours) == 5
    assert all(contrast(colour, background) >= 3 for colour in colours)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
