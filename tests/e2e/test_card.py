"""The card of a job in its notebook: live while the kernel is busy, without a kernel, and after one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pages import CARD, NotebookPage, wait_for, write_notebook
from panel_pages import Card, Log, Sidebar
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import LOAD, Submitted, Training

CLUSTER = """
nodes:
  - name: node-0
    gpus: 4
    gpu_type: A100
queues:
  - name: vision
    guaranteed: 4
"""


@pytest.fixture
def training(page: Any, lab: JupyterServer, request: Any) -> Iterator[Training]:
    """A training at its first step, waited for by its cell, so the kernel is busy."""
    name = request.node.name.removeprefix("test_").replace("_", "-")
    training = Training(page, lab, name).open().run()
    yield training
    training.finish()


def test_card_shows_progress_its_course_and_the_first_feedback(training: Training, page: Any) -> None:
    card = Card(page, training.name)
    expect(card.root).to_contain_text("running")
    expect(card.root).to_contain_text("on node-0 (GPU 0, 1)")
    expect(card.root).to_contain_text("simulated")
    expect(card.bar).to_have_attribute("aria-valuenow", "25")
    expect(card.root).to_contain_text("step 1/4")
    expect(card.root).to_contain_text("loss 1")
    expect(card.root).to_contain_text("first step after")
    expect(card.sparkline).to_have_count(0)

    training.go_on_after(1)
    expect(card.bar).to_have_attribute("aria-valuenow", "50")
    expect(card.root).to_contain_text("loss 0.5")
    expect(card.sparkline).to_have_accessible_name("loss: first 1, last 0.5, lowest 0.5, highest 1")

    training.finish()
    expect(card.root).to_contain_text("succeeded after")
    expect(card.root.get_by_role("button", name="Cancel job")).to_have_count(0)
    expect(card.root.get_by_role("button", name="Open log")).to_be_visible()


def test_cancel_from_the_card_while_the_kernel_is_busy(training: Training, page: Any) -> None:
    assert training.notebook.is_running(1)
    card = Card(page, training.name)
    card.cancel()
    expect(card.root).to_contain_text("cancelled after")
    training.wait_for_the_cell()
    assert training.notebook.outputs(1)[-1]["output_type"] == "error"
    assert training.notebook.card(1)["state"] == "cancelled"


def test_card_of_a_job_that_nobody_waits_for_moves_and_shows_the_end_of_its_output(
    page: Any, lab: JupyterServer
) -> None:
    training = Training(page, lab, "alone", "--gpus 1 --no-wait").open().run()
    training.wait_for_the_cell()
    card = Card(page, "alone")
    expect(card.bar).to_have_attribute("aria-valuenow", "25")
    expect(card.tail).to_contain_text("begun step 1")
    training.go_on_after(1)
    expect(card.bar).to_have_attribute("aria-valuenow", "50")
    expect(card.tail).to_contain_text("begun step 2")
    training.finish()
    expect(card.root).to_contain_text("succeeded after")
    expect(card.tail).to_contain_text("trained")


def test_log_opens_from_card_and_sidebar_once_and_goes_on(training: Training, page: Any) -> None:
    card = Card(page, training.name)
    expect(card.root).to_contain_text("running")
    card.open_log()
    log = Log(page, training.name)
    expect(log.line("begun step 1")).to_be_visible()
    expect(log.root).to_contain_text("simulated")
    training.go_on_after(1)
    expect(log.line("begun step 2")).to_be_visible()

    Sidebar(page).show().job(training.name).press("Log of job")
    expect(log.line("begun step 2")).to_be_visible()
    expect(log.tab).to_have_count(1)
    training.finish()
    expect(log.line("trained")).to_be_visible()
    expect(log.root).to_contain_text("succeeded after")


def test_saved_notebook_holds_the_card_as_html_and_text_too(training: Training, page: Any) -> None:
    training.finish()
    expect(Card(page, training.name).root).to_contain_text("succeeded after")
    wait_for(lambda: training.notebook.is_whole(1), "the end of the cell")
    training.notebook.save()
    data = training.notebook.saved()[1]["outputs"][0]["data"]
    assert data[CARD]["state"] == "succeeded"
    html, text = "".join(data["text/html"]), "".join(data["text/plain"])
    for shown in (html, text):
        assert training.name in shown
        assert "succeeded after" in shown
    assert "<script" not in html
    assert len(json.dumps(data)) < 10_000


def test_job_that_is_tried_again_says_what_happened_and_what_comes(
    page: Any, lab: JupyterServer, submitted: Callable[..., Submitted]
) -> None:
    gate = lab.folder / "second-chance"
    source = f"""%%submit --gpus 4 --name again --retries 1 --no-wait
import os, time
while not os.path.exists({str(gate)!r}):
    time.sleep(0.05)
assert os.environ["GPUCLUSTER_ATTEMPT"] != "1", "the first attempt fails"
"""
    notebook = NotebookPage(page, lab, write_notebook(lab, "again.ipynb", LOAD, source)).in_lab()
    notebook.run(0)
    notebook.run(1)
    card = Card(page, "again")
    expect(card.root).to_contain_text("running")
    submitted("next-in-line", "--gpus 4")
    gate.touch()
    expect(card.root).to_contain_text("Attempt 1 is over")
    expect(card.root).to_contain_text("The job starts again by itself.")
    expect(card.root).to_contain_text("in queue vision")


def test_card_from_another_cluster_says_so(page: Any, lab: JupyterServer) -> None:
    training = Training(page, lab, "elsewhere").open().run()
    wait_for(lambda: training.notebook.card(1).get("state") == "running", "a running job's card")
    training.notebook.save()
    page.goto("about:blank")
    training.finish()
    body = json.loads(training.path.read_text())
    data = body["cells"][1]["outputs"][0]["data"]
    data[CARD]["job_id"] = "0" * 26
    other = training.path.with_name("other.ipynb")
    other.write_text(json.dumps(body))
    NotebookPage(page, lab, other).in_lab()
    card = Card(page, "elsewhere").root
    expect(card).to_contain_text("this cluster does not know this job (any more)")
    expect(card.get_by_role("button")).to_have_count(0)


def test_card_goes_on_when_the_kernel_is_restarted(training: Training, page: Any) -> None:
    card = Card(page, training.name)
    expect(card.bar).to_have_attribute("aria-valuenow", "25")
    training.notebook.restart_kernel()
    wait_for(lambda: training.notebook.kernel_status() == "idle", "the new kernel")
    training.go_on_after(1)
    expect(card.bar).to_have_attribute("aria-valuenow", "50")
    card.cancel()
    expect(card.root).to_contain_text("cancelled after")
