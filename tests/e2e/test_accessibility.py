"""axe-core finds nothing to complain about in what we show, in the light and the dark theme, colours included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import missing
from pages import wait_for
from panel_pages import Card, Log, Palette, Sidebar
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted, Training, stop_scheduler
from watching import Watch

CLUSTER = """
nodes:
  - name: node-0
    gpus: 4
    gpu_type: A100
  - name: node-1
    gpus: 4
    gpu_type: T4
queues:
  - name: vision
    guaranteed: 6
  - name: speech
    guaranteed: 2
    max: 4
"""
NUMBERS = itertools.count(1)
AXE = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(params=["JupyterLab Light", "JupyterLab Dark"])
def scene(
    request: Any, page: Any, lab: JupyterServer, submitted: Callable[..., Submitted]
) -> Iterator[Training]:
    """A training beside a sidebar with something in each of its parts."""
    if not AXE.exists():
        missing("axe-core")
    holder = submitted("holder", "--gpus 4 --queue speech")
    waiting = submitted("waiting", "--gpus 1 --queue speech")
    training = Training(page, lab, f"training-{next(NUMBERS)}")
    training.open()
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", request.param
    )
    wait_for(
        lambda: page.evaluate("() => document.body.dataset.jpThemeName") == request.param, f"{request.param}"
    )
    training.run()
    sidebar = Sidebar(page).show()
    expect(sidebar.job(holder.name).row).to_contain_text("speech")
    expect(sidebar.job(waiting.name).row).to_contain_text("1st in queue speech")
    expect(sidebar.job(training.name).bar).to_have_attribute("aria-valuenow", "25")
    yield training
    training.finish()


def complaints(page: Any, root: Any) -> list[str]:
    """What axe-core finds wrong within `root`: the rule and the element."""
    if not page.evaluate("() => 'axe' in window"):
        page.add_script_tag(path=AXE)
        # The body of Lab has no height of its own; axe would take all that is in it for cut off, and look at no colour.
        page.add_style_tag(content="body { height: 100vh !important; }")
    found = root.evaluate("(root, values) => window.axe.run(root, {runOnly: {type: 'tag', values}})", RULES)
    looked_at = {rule["id"]: len(rule["nodes"]) for rule in found["passes"]}
    assert looked_at["color-contrast"] > 1, looked_at
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:300]} {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


def test_sidebar_with_all_its_sections(scene: Training, page: Any) -> None:
    sidebar = Sidebar(page)
    for section in ("Queues", "Topology", "Jobs"):
        expect(sidebar.section(section)).to_have_attribute("aria-expanded", "true")
    sidebar.queue("vision").item.press("Enter")
    expect(sidebar.queue("vision").item).to_contain_text("T4")
    sidebar.job(scene.name).press("Details of job")
    expect(sidebar.job(scene.name).row).to_contain_text("tier")
    assert complaints(page, sidebar.root) == []


def test_card(scene: Training, page: Any) -> None:
    scene.go_on_after(1)
    card = Card(page, scene.name)
    expect(card.sparkline).to_be_visible()
    assert complaints(page, card.root) == []
    card.cancel()
    expect(card.root).to_contain_text("cancelled after")
    assert complaints(page, card.root) == []


def test_log(scene: Training, page: Any) -> None:
    card = Card(page, scene.name)
    expect(card.root).to_contain_text("running")
    card.open_log()
    log = Log(page, scene.name)
    expect(log.line("begun step 1")).to_be_visible()
    log.root.get_by_role("button", name="Find in these lines").click()
    log.root.get_by_role("textbox", name="Find in these lines").fill("step")
    expect(log.root.get_by_role("search")).to_contain_text("1 of 1")
    assert complaints(page, log.root) == []


def test_large_topology(scene: Training, page: Any) -> None:
    Palette(page).run("Open the GPU Topology")
    topology = page.get_by_role("tabpanel", name="GPU topology")
    expect(topology.get_by_role("gridcell", name=scene.name).first).to_be_visible()
    assert complaints(page, topology) == []


def test_sidebar_and_card_while_the_scheduler_is_away(
    scene: Training, page: Any, lab: JupyterServer, watch: Watch, submitted: Callable[..., Submitted]
) -> None:
    watch.expected += ["502", "503"]  # what the browser itself says of a request that failed
    stop_scheduler(lab)
    sidebar, card = Sidebar(page), Card(page, scene.name)
    expect(sidebar.banner).to_be_visible()
    expect(card.root).to_contain_text("last update")
    found = complaints(page, sidebar.root) + complaints(page, card.root)
    submitted("whoever-starts-it-again", "--gpus 1")
    assert found == []
