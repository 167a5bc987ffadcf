"""The topology in the main area: who holds which GPU, by eye and by keyboard, and what it asks for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pages import open_lab, wait_for
from panel_pages import LiveFrames, Log, Sidebar
from playwright.sync_api import expect
from support.jupyter_server import JupyterServer
from trainings import Submitted

CLUSTER = """
cluster: vision-lab
nodes:
  - names: "a100-[0-1]"
    gpus: 8
    gpu_type: A100
    nvlink: [[0, 1, 2, 3], [4, 5, 6, 7]]
    rack: rack-0
  - name: t4-0
    gpus: 4
    gpu_type: T4
    sockets: 1
    nvlink: none
    rack: rack-1
"""


class LargeTopology:
    """The panel in the main area."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.tab = page.get_by_role("tab", name="GPU topology")
        self.root = page.locator("#jp-gpucluster-topology")

    def open(self) -> LargeTopology:
        """By the button of the sidebar's section."""
        Sidebar(self.page).show().root.get_by_role("button", name="Show the topology large").click()
        expect(self.gpu("t4-0 GPU 3")).to_be_visible()
        return self

    def gpu(self, name: str) -> Any:
        return self.root.get_by_role("gridcell", name=re.compile(rf"^{re.escape(name)} · "))

    def node(self, name: str) -> Any:
        return self.root.get_by_role("row").filter(
            has=self.page.get_by_role("rowheader", name=re.compile(rf"^{re.escape(name)} · "))
        )


@pytest.fixture
def topology(page: Any, lab: JupyterServer) -> LargeTopology:
    open_lab(page, lab)
    return LargeTopology(page).open()


@pytest.fixture
def set_health(lab: JupyterServer) -> Iterator[Callable[..., None]]:
    """Sets the health of a node as an administrator does; it is ready again after the test."""
    changed = set()

    def set_health(node: str, health: str, *options: str) -> None:
        changed.add(node)
        subprocess.run(
            [sys.executable, "-m", "gpucluster", "nodes", "set", node, health, *options],
            env={key: value for key, value in lab.env.items() if key != "GPUCLUSTER_ADDRESS"},
            check=True,
            capture_output=True,
            timeout=60,
        )

    yield set_health
    for node in list(changed):
        set_health(node, "ready")


def test_closed_topology_can_be_opened_again(topology: LargeTopology) -> None:
    topology.tab.locator(".lm-TabBar-tabCloseIcon").click()
    expect(topology.root).to_have_count(0)
    topology.open()


def test_it_tells_who_holds_what_and_what_is_free_in_one_piece(
    topology: LargeTopology, submitted: Callable[..., Submitted]
) -> None:
    root = topology.root
    expect(root).to_contain_text("20 of 20 GPUs free")
    expect(root).to_contain_text("simulated")
    job = submitted("shown", "--gpus 3 --gpu-type A100")
    expect(root).to_contain_text("17 of 20 GPUs free")
    expect(root.get_by_role("gridcell", name=job.name)).to_have_count(3)
    a100 = root.get_by_role("row", name="A100").get_by_role("cell")
    expect(a100).to_have_text(["4", "8", "13 of 16"])
    expect(root.get_by_role("row", name="T4").get_by_role("cell")).to_have_text(["–", "4", "4 of 4"])
    expect(root.get_by_text("NVLink island 0: 1 of 4 free")).to_have_count(1)


def test_a_cordoned_node_says_by_whom_and_why(
    topology: LargeTopology, set_health: Callable[..., None]
) -> None:
    set_health("a100-1", "cordoned", "--reason", "new fans")
    node = topology.node("a100-1")
    expect(node).to_contain_text(re.compile(r"cordoned by \w+: new fans"))
    expect(node).to_contain_text("0 of 8 free")
    set_health("a100-1", "ready")
    expect(node).not_to_contain_text("new fans")
    expect(node).to_contain_text("8 of 8 free")


def test_arrow_keys_lead_to_a_gpu_and_enter_opens_the_log_of_its_job(
    topology: LargeTopology, page: Any, submitted: Callable[..., Submitted]
) -> None:
    job = submitted("logged", "--gpus 8", "sh", "-c", "echo here it is; sleep 600")
    expect(topology.gpu("a100-0 GPU 1")).to_contain_text("#")
    topology.root.get_by_role("rowheader", name="a100-0").focus()
    page.keyboard.press("ArrowRight")
    expect(topology.gpu("a100-0 GPU 0")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(topology.gpu("a100-0 GPU 1")).to_be_focused()
    expect(topology.gpu("a100-0 GPU 7")).to_have_attribute("aria-selected", "true")
    expect(topology.root.locator("footer")).to_contain_text("a100-0 GPU 1 · A100 80 GiB (simulated) · ")
    page.keyboard.press("Enter")
    log = Log(page, job.name)
    expect(log.line("here it is")).to_be_visible()


def test_a_job_that_is_picked_stays_shown_up_until_escape(
    topology: LargeTopology, page: Any, submitted: Callable[..., Submitted]
) -> None:
    job = submitted("picked", "--gpus 2")
    mine = topology.root.get_by_role("gridcell", name=job.name)
    expect(mine).to_have_count(2)
    mine.first.click()
    page.mouse.move(1, 1)
    footer = topology.root.locator("footer")
    expect(footer).to_contain_text(f"{job.name} (you) · 2 GPUs on 1 node · running")
    expect(topology.root.locator("[aria-selected=true]")).to_have_count(2)
    mine.first.press("Escape")
    page.mouse.move(1, 1)
    expect(topology.root.locator("[aria-selected=true]")).to_have_count(0)


def test_what_the_colours_stand_for_is_kept_over_a_reload(topology: LargeTopology, page: Any) -> None:
    button = topology.root.get_by_role("button", name="Utilisation")
    with page.expect_response(
        lambda answer: "/api/settings/" in answer.url and answer.request.method == "PUT"
    ):
        button.click()
    expect(topology.root.get_by_role("list", name="Legend")).to_have_text(re.compile("not measured"))
    page.reload()
    page.wait_for_function("window.jupyterapp !== undefined")
    page.evaluate("async () => { await window.jupyterapp.restored; }")
    topology.open()
    expect(button).to_have_attribute("aria-pressed", "true")


def test_behind_another_tab_it_asks_for_nothing(page: Any, lab: JupyterServer) -> None:
    frames = LiveFrames(page)
    open_lab(page, lab)
    topology = LargeTopology(page).open()
    page.get_by_role("tab", name="File Browser").click()
    wait_for(lambda: frames.topics >= {"nodes"}, "nodes are followed")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('launcher:create'); }")
    expect(topology.root).to_be_hidden()
    wait_for(lambda: "nodes" not in frames.topics, "nodes are followed no more")
    topology.tab.click()
    expect(topology.gpu("t4-0 GPU 3")).to_be_visible()
    wait_for(lambda: frames.topics >= {"nodes"}, "nodes are followed again")
