"""The sidebar beside a notebook: queues, topology and jobs move with what happens, whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pages import open_lab, wait_for
from panel_pages import LiveFrames, Sidebar, overlaps, sideways
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted, Training, scheduler_pid
from watching import Watch

CLUSTER = """
cluster: vision-lab
nodes:
  - names: "node-[0-1]"
    gpus: 4
    gpu_type: A100
queues:
  - name: vision
    guaranteed: 6
  - name: speech
    guaranteed: 2
    max: 4
default_queue: vision
"""


def test_bars_squares_and_progress_move_with_the_job(page: Any, lab: JupyterServer) -> None:
    training = Training(page, lab, "moving", "--gpus 3").open()
    sidebar = Sidebar(page).show()
    vision = sidebar.queue("vision")
    expect(vision.item).to_contain_text("0 used of 6 guaranteed")
    expect(vision.item).to_contain_text("6 free for good")
    expect(vision.item).to_contain_text("2 more until reclaimed")
    assert vision.bar_percent() == 0
    expect(sidebar.gpus("free")).to_have_count(8)
    expect(sidebar.root).to_contain_text("simulated")
    expect(sidebar.root).to_contain_text("0 of 8 GPUs in use")

    training.run()
    expect(vision.item).to_contain_text("3 used of 6 guaranteed")
    expect(vision.item).to_contain_text("3 mine")
    expect(vision.item).to_contain_text("3 free for good")
    assert vision.bar_percent() == 38, "3 of the 8 GPUs that the queue may have"
    expect(sidebar.gpus("moving")).to_have_count(3)
    expect(sidebar.gpus("free")).to_have_count(5)
    expect(sidebar.root).to_contain_text("3 of 8 GPUs in use")
    job = sidebar.job("moving")
    expect(job.bar).to_have_attribute("aria-valuenow", "25")
    expect(job.row).to_contain_text("loss 1")

    training.go_on_after(1)
    expect(job.bar).to_have_attribute("aria-valuenow", "50")
    expect(job.row).to_contain_text("step 2/4")
    expect(job.row).to_contain_text("loss 0.5")
    expect(job.row.get_by_role("img", name="loss: first 1, last 0.5")).to_be_visible()

    training.finish()
    expect(job.row).to_contain_text("succeeded")
    expect(vision.item).to_contain_text("0 used of 6 guaranteed")
    expect(sidebar.gpus("free")).to_have_count(8)
    assert vision.bar_percent() == 0


@pytest.fixture
def busy(page: Any, lab: JupyterServer, request: Any) -> Iterator[Training]:
    """A training that runs, waited for by its cell, so the kernel is busy; the sidebar is open."""
    training = Training(page, lab, request.node.name.removeprefix("test_")[:30]).open().run()
    Sidebar(page).show()
    assert training.notebook.is_running(1)
    yield training
    training.finish()


def test_cancel_from_the_sidebar_while_the_kernel_is_busy(busy: Training, page: Any) -> None:
    job = Sidebar(page).job(busy.name)
    job.cancel()
    expect(job.row).to_contain_text("cancelled")
    busy.wait_for_the_cell()
    outputs = busy.notebook.outputs(1)
    assert outputs[-1]["output_type"] == "error"
    assert "cancelled" in outputs[-1]["evalue"]
    assert busy.notebook.card(1)["state"] == "cancelled"


@pytest.fixture
def holder(submitted: Callable[..., Submitted]) -> Submitted:
    """A job that holds all that the queue speech may have."""
    return submitted("holder", "--gpus 4 --queue speech")


def test_waiting_job_says_its_place_and_why(
    page: Any, lab: JupyterServer, holder: Submitted, submitted: Callable[..., Submitted]
) -> None:
    first = submitted("first", "--gpus 2 --queue speech")
    second = submitted("second", "--gpus 1 --queue speech")
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    row = sidebar.job(first.name).row
    expect(row).to_contain_text("1st in queue speech")
    expect(row).to_contain_text("uses 4 GPUs of its maximum of 4 GPUs; this job needs 2 GPUs")
    expect(sidebar.job(second.name).row).to_contain_text("Number 2 in queue speech")
    expect(sidebar.queue("speech").item).to_contain_text("2 waiting")
    expect(sidebar.section("Jobs")).to_contain_text("1 running · 2 waiting")

    first.cancel()
    expect(sidebar.job(second.name).row).to_contain_text("1st in queue speech")
    expect(sidebar.queue("speech").item).to_contain_text("1 waiting")
    second.cancel()
    expect(sidebar.queue("speech").item).not_to_contain_text("waiting")


def test_lent_gpus_are_shown_with_who_borrows_and_who_lends(
    page: Any, lab: JupyterServer, holder: Submitted
) -> None:
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    speech, vision = sidebar.queue("speech"), sidebar.queue("vision")
    expect(speech.item).to_contain_text("4 used of 2 guaranteed (2 borrowed)")
    expect(speech.item).to_contain_text("nothing free now")
    assert speech.bar_percent() == 100
    expect(vision.item).to_contain_text("4 free for good")
    vision.item.hover()
    told = page.get_by_role("tooltip")
    expect(told).to_contain_text("2 of its guaranteed GPUs are lent to other queues at present.")


def test_killed_scheduler_leaves_the_contents_and_they_are_right_again(
    busy: Training, page: Any, lab: JupyterServer, watch: Watch
) -> None:
    watch.expected += ["502", "503"]  # what the browser itself says of a request that failed
    sidebar = Sidebar(page)
    job = sidebar.job(busy.name)
    expect(job.bar).to_have_attribute("aria-valuenow", "25")
    sidebar.remember_banners()
    os.kill(scheduler_pid(lab), signal.SIGKILL)
    banner = wait_for(sidebar.banners, "the banner")[0]
    assert "Last update" in banner["text"]
    assert "ago" in banner["text"]
    assert "Trying again" in banner["text"]
    for part in ("2 used of 6 guaranteed", "6 of 8 GPUs free", busy.name, "step 1/4"):
        assert part in banner["panel"]

    busy.go_on_after(1)
    expect(sidebar.banner).to_be_hidden()
    expect(job.bar).to_have_attribute("aria-valuenow", "50")
    expect(sidebar.queue("vision").item).to_contain_text("2 used of 6 guaranteed")
    expect(sidebar.gpus(busy.name)).to_have_count(2)
    busy.finish()
    expect(job.row).to_contain_text("succeeded")
    expect(sidebar.gpus("free")).to_have_count(8)


def test_hidden_sidebar_asks_for_nothing(
    page: Any, lab: JupyterServer, submitted: Callable[..., Submitted]
) -> None:
    frames = LiveFrames(page)
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    expect(sidebar.queue("vision").item).to_be_visible()
    wait_for(lambda: {"queues", "nodes"} <= frames.topics, "queues and nodes are followed")
    page.get_by_role("tab", name="File Browser").click()
    expect(sidebar.root).to_be_hidden()
    wait_for(lambda: not frames.topics & {"queues", "nodes"}, "queues and nodes are followed no more")

    asked = frames.requests()
    job = submitted("unseen", "--gpus 2")
    expect(page.get_by_role("button", name="GPU 2/8")).to_be_visible()
    job.cancel()
    expect(page.get_by_role("button", name="GPU 0/8")).to_be_visible()
    assert frames.told_since_last_open() <= {"status", "jobs"}, "what the status bar and the notices need"
    assert frames.requests() == asked

    sidebar.show()
    expect(sidebar.job(job.name).row).to_contain_text("cancelled")


def test_reload_keeps_which_sections_are_open(page: Any, lab: JupyterServer) -> None:
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    expect(sidebar.section("Topology")).to_have_attribute("aria-expanded", "true")
    with page.expect_response(
        lambda answer: (
            "/api/workspaces/" in answer.url
            and '"closedSections":["topology"]' in (answer.request.post_data or "")
        )
    ):
        sidebar.section("Topology").click()
    expect(sidebar.topology).to_have_count(0)
    page.wait_for_url(
        lambda url: "reset" not in url
    )  # Lab takes it away by and by; a reload would begin anew
    page.reload()
    expect(sidebar.section("Topology")).to_have_attribute("aria-expanded", "false")
    expect(sidebar.section("Queues")).to_have_attribute("aria-expanded", "true")
    expect(sidebar.queue("vision").item).to_be_visible()
    expect(sidebar.topology).to_have_count(0)


@pytest.mark.parametrize("width", [250, 520])
def test_nothing_is_cut_off_or_overlaps(
    page: Any, lab: JupyterServer, holder: Submitted, submitted: Callable[..., Submitted], width: int
) -> None:
    long = submitted("fine-tune-a-large-model-on-support-tickets", "--gpus 2 --queue speech")
    open_lab(page, lab)
    sidebar = Sidebar(page).show()
    sidebar.resize(width)
    expect(sidebar.job(long.name).row).to_contain_text("1st in queue speech")
    expect(sidebar.gpus(holder.name)).to_have_count(4)
    assert overlaps(sidebar.root) == []
    assert sideways(sidebar.root) == []

    row = sidebar.job(holder.name).row
    row.hover()
    expect(row.get_by_role("button", name="Cancel job")).to_be_visible()
    assert sideways(sidebar.root) == [], "the buttons of a row stand over what is there, within the panel"
