"""Pictures of all that we show, in the light and the dark theme; PICTURES=1 puts them into docs/images, for README and docs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gallery
import pytest
from pages import NotebookPage, wait_for, write_notebook
from panel_pages import Card, Log, Palette, Sidebar
from PIL import Image, ImageStat
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted, cancel
from watching import Watch

CLUSTER = gallery.CLUSTER
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
Take = Callable[..., None]


@pytest.fixture(scope="module")
def jobs(lab: JupyterServer) -> dict[str, Submitted]:
    return gallery.fill(lab)


@pytest.fixture
def watch(browser: Any, lab: JupyterServer) -> Iterator[Watch]:
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    context.set_default_timeout(60_000)
    watch = Watch(context, lab.url)
    yield watch
    watch.close()


@pytest.fixture
def take(page: Any, tmp_path: Path) -> Take:
    """Takes a picture in both themes, of the page or of an element; it must show something, lightly and darkly."""
    made = os.environ.get("PICTURES") == "1"
    folder = Path(__file__).parents[2] / "docs/images" if made else tmp_path

    def take(name: str, of: Any = None) -> None:
        brightness = {}
        for theme, title in THEMES.items():
            page.evaluate(
                "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", title
            )
            page.wait_for_function("title => document.body.dataset.jpThemeName === title", arg=title)
            path = folder / f"{name}-{theme}.png"
            (of or page).screenshot(path=path, animations="disabled")
            brightness[theme] = look_at(path)
        assert brightness["light"] > 180 > 100 > brightness["dark"], (name, brightness)

    return take


def look_at(path: Path) -> float:
    """How bright a picture is, 0 to 255; fails when it is blank."""
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24) or []
        area = picture.width * picture.height
        most, _ = max(colours)
        assert len(colours) > 100, f"{path.name} has {len(colours)} colours"
        assert most < 0.97 * area, f"{path.name} is nearly all of one colour"
        return float(ImageStat.Stat(picture.convert("L")).mean[0])


def percent(bar: Any) -> int:
    return int(bar.get_attribute("aria-valuenow") or 0)


def test_picture_of_lab_and_sidebar(
    page: Any, lab: JupyterServer, jobs: dict[str, Submitted], take: Take
) -> None:
    path = write_notebook(lab, "digits.ipynb", *gallery.NOTEBOOK)
    notebook = NotebookPage(page, lab, path).in_lab()
    sidebar = Sidebar(page).show()
    sidebar.resize(330)
    notebook.run(0)
    notebook.run(1)
    wait_for(lambda: notebook.is_whole(1), "the plot")
    notebook.run(2)
    card = Card(page, "noise-test")
    wait_for(lambda: percent(card.bar) >= 45, "a good part of the job")
    page.mouse.move(800, 500)
    take("lab")
    assert percent(card.bar) < 100, "the card of a running job"

    take("sidebar", sidebar.root)
    sidebar.resize(250)
    take("sidebar-narrow", sidebar.root)


def test_picture_of_cards(page: Any, lab: JupyterServer, jobs: dict[str, Submitted], take: Take) -> None:
    notebook = NotebookPage(page, lab, write_notebook(lab, "states.ipynb", *gallery.STATES)).in_lab()
    for at in range(len(gallery.STATES)):
        notebook.run(at)
    wait_for(lambda: percent(Card(page, "pretrain").bar) >= 20, "the running job")
    expect(Card(page, "pretrain").tail).to_contain_text("step 200")
    expect(Card(page, "ensemble").root).to_contain_text("in queue vision")
    expect(Card(page, "crop").root).to_contain_text("failed")
    expect(Card(page, "evaluate").root).to_contain_text("succeeded")
    take("cards", page.get_by_role("feed", name="Cells"))
    for at in (1, 2):
        cancel(lab, notebook.card(at)["job_id"])


def test_picture_of_the_log(page: Any, lab: JupyterServer, jobs: dict[str, Submitted], take: Take) -> None:
    NotebookPage(page, lab, write_notebook(lab, "empty.ipynb", "")).in_lab()
    Sidebar(page).show().job("resnet50").press("Log of job")
    log = Log(page, "resnet50")
    expect(log.root.get_by_role("list")).to_contain_text("loss")
    log.root.get_by_role("button", name="Find in these lines").click()
    log.root.get_by_role("textbox", name="Find in these lines").fill("step 50")
    expect(log.root.get_by_role("search")).to_contain_text("1 of")
    take("log", log.root)


def test_picture_of_the_large_topology(
    page: Any, lab: JupyterServer, jobs: dict[str, Submitted], take: Take
) -> None:
    NotebookPage(page, lab, write_notebook(lab, "empty.ipynb", "")).in_lab()
    Palette(page).run("Open the GPU Topology")
    topology = page.get_by_role("tabpanel", name="GPU topology")
    topology.get_by_role("gridcell", name="resnet50").first.click()
    expect(topology.get_by_role("button", name="resnet50")).to_have_attribute("aria-pressed", "true")
    page.mouse.move(20, 500)
    expect(topology).to_contain_text("8 GPUs on 1 node")
    take("topology", topology)


def test_picture_of_notebook7(page: Any, lab: JupyterServer, jobs: dict[str, Submitted], take: Take) -> None:
    notebook = NotebookPage(page, lab, write_notebook(lab, "notebook7.ipynb", *gallery.NOTEBOOK))
    notebook.in_notebook7()
    Palette(page).run("Show the GPU Cluster")
    expect(Sidebar(page).job("resnet50").bar).to_be_visible()
    notebook.run(0)
    notebook.run(1)
    wait_for(lambda: notebook.is_whole(1), "the plot")
    take("notebook7")
