"""The panel, the card and the log in Notebook 7, which has neither Lab's shell nor its palette of panels."""

from __future__ import annotations

from typing import Any

from pages import wait_for
from panel_pages import Card, Log, Palette, Sidebar, overlaps, sideways
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Training


def test_sidebar_card_and_log_move_beside_the_notebook(page: Any, lab: JupyterServer) -> None:
    training = Training(page, lab, "beside")
    training.notebook.in_notebook7()
    training.run()
    card = Card(page, "beside")
    expect(card.bar).to_have_attribute("aria-valuenow", "25")

    page.get_by_role("menuitem", name="View").click()
    page.get_by_role("menu").get_by_text("Left Sidebar").hover()
    page.get_by_role("menuitem", name="Show GPU cluster").click()
    sidebar = Sidebar(page)
    job = sidebar.job("beside")
    expect(job.bar).to_have_attribute("aria-valuenow", "25")
    expect(sidebar.gpus("beside")).to_have_count(2)
    expect(sidebar.queue("research").item).to_contain_text("2 mine")
    assert overlaps(sidebar.root) == []
    assert sideways(sidebar.root) == []

    card.open_log()
    log = Log(page, "beside")
    expect(log.line("begun step 1")).to_be_visible()
    training.go_on_after(1)
    expect(card.bar).to_have_attribute("aria-valuenow", "50")
    expect(job.bar).to_have_attribute("aria-valuenow", "50")
    expect(log.line("begun step 2")).to_be_visible()

    job.cancel()
    expect(card.root).to_contain_text("cancelled after")
    expect(job.row).to_contain_text("cancelled")
    training.wait_for_the_cell()


def test_sidebar_leads_to_the_cell(page: Any, lab: JupyterServer) -> None:
    training = Training(page, lab, "chosen")
    notebook = training.notebook.in_notebook7()
    training.run()
    notebook.select(0)
    Palette(page).run("Show the GPU Cluster")
    Sidebar(page).job("chosen").press("Go to the cell")
    wait_for(lambda: notebook.active_cell() == 1, "the cell is selected")
    training.finish()
