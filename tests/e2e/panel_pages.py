"""The panels of the extension as a person and a screen reader find them: the tests say what, this says how."""

from __future__ import annotations

import json
import re
from typing import Any

import playwright.sync_api as playwright_api
from pages import show_sidebar, wait_for


class Sidebar:
    """The panel in the left area."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.root = page.get_by_role("region", name="GPU cluster", exact=True)

    def show(self) -> Sidebar:
        show_sidebar(self.page)
        self.root.get_by_role("heading", name="GPU cluster").wait_for()
        return self

    @property
    def banner(self) -> Any:
        return self.root.get_by_text("Last update")

    def remember_banners(self) -> None:
        """From now on note what each banner said, and what the panel showed beside it, however short it was there."""
        self.root.evaluate(
            """root => {
              window.banners = [];
              const look = () => {
                const banner = root.querySelector('.jp-gpucluster-banner');
                if (banner) {
                  window.banners.push({text: banner.innerText, panel: root.innerText});
                }
              };
              new MutationObserver(look).observe(root, {subtree: true, childList: true, characterData: true});
            }"""
        )

    def remember_movements(self) -> None:
        """From now on note all that queues, GPUs and progress bars show, however short."""
        self.root.evaluate(
            """root => {
              const seen = window.movements = {queues: [], gpus: []};
              const note = (name, value) => {
                seen[name] ??= [];
                if (!seen[name].includes(value)) {
                  seen[name].push(value);
                }
              };
              const look = () => {
                root.querySelectorAll('[role=treeitem]').forEach(item => note('queues', item.innerText));
                root.querySelectorAll('[role=gridcell][data-node]').forEach(gpu => {
                  const job = /job \\d+ (\\S+)/.exec(gpu.getAttribute('aria-label'));
                  if (job) {
                    note('gpus', job[1]);
                  }
                });
                root.querySelectorAll('[role=progressbar]').forEach(bar => note(
                  bar.getAttribute('aria-label').replace(/^job \\d+ /, ''),
                  Number(bar.getAttribute('aria-valuenow'))
                ));
              };
              new MutationObserver(look).observe(
                root, {subtree: true, childList: true, characterData: true, attributes: true}
              );
            }"""
        )

    def movements(self) -> dict[str, list[Any]]:
        """`queues`: texts; `gpus`: names of jobs on them; by a job's name: percents."""
        return dict(self.page.evaluate("() => window.movements"))

    def banners(self) -> list[dict[str, str]]:
        seen = self.page.evaluate("() => window.banners")
        return [{name: text.replace("\xa0", " ") for name, text in banner.items()} for banner in seen]

    def resize(self, width: int) -> None:
        """Drag its edge."""
        edge = self.page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:visible").first
        box, panel = edge.bounding_box(), self.root.bounding_box()
        at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(*at)
        self.page.mouse.down()
        self.page.mouse.move(at[0] + width - panel["width"], at[1], steps=4)
        self.page.mouse.up()
        wait_for(lambda: abs(self.root.bounding_box()["width"] - width) <= 1, f"a width of {width}")

    # ---- sections

    def section(self, name: str) -> Any:
        return self.root.get_by_role("button", name=name).and_(self.root.locator("h3 button"))

    def queue(self, name: str) -> Queue:
        return Queue(self.root.get_by_role("tree", name="Queues").get_by_role("treeitem", name=f"{name}, "))

    @property
    def topology(self) -> Any:
        return self.root.get_by_role("grid", name="GPUs by node")

    def gpus(self, words: str) -> Any:
        """The GPUs that are told about with these words: a job, "free"."""
        return self.topology.get_by_role("gridcell", name=words)

    @property
    def jobs(self) -> Any:
        return self.root.get_by_role("grid", name="Jobs")

    def job(self, name: str) -> JobRow:
        return JobRow(self.jobs.get_by_role("row", name=re.compile(rf"^job \d+ {re.escape(name)}")))


class Queue:
    """One queue of the tree."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def bar_percent(self) -> int:
        """How much of the bar is filled, as the eye sees it."""
        widths = self.item.locator(".jp-gpucluster-bar").first.evaluate(
            """bar => ['within', 'borrowed'].map(
              part => bar.querySelector(`.jp-gpucluster-mod-${part}`).getBoundingClientRect().width
                / bar.getBoundingClientRect().width)"""
        )
        return round(100 * sum(widths))


class JobRow:
    """One job in the list of the sidebar."""

    def __init__(self, row: Any) -> None:
        self.row = row

    @property
    def bar(self) -> Any:
        return self.row.get_by_role("progressbar")

    def press(self, action: str) -> None:
        """A button of the row; they are there for the pointer that is on the row, and a row may still move."""

        def is_pressed() -> bool:
            self.row.hover()
            try:
                self.row.get_by_role("button", name=action).click(timeout=2_000)
            except playwright_api.TimeoutError:
                return False
            return True

        wait_for(is_pressed, f"the button {action!r}")

    def cancel(self) -> None:
        self.press("Cancel job")
        self.row.get_by_role("button", name="Yes").click()


class Card:
    """The card of a job in the output of a cell."""

    def __init__(self, page: Any, name: str) -> None:
        self.root = page.get_by_role("region", name=re.compile(rf"^job \d+ {re.escape(name)}: "))

    @property
    def bar(self) -> Any:
        return self.root.get_by_role("progressbar")

    @property
    def sparkline(self) -> Any:
        return self.root.get_by_role("img")

    @property
    def tail(self) -> Any:
        return self.root.get_by_role("group").filter(has_text="Output")

    def cancel(self) -> None:
        self.root.get_by_role("button", name="Cancel job").click()
        self.root.get_by_role("button", name="Yes").click()

    def open_log(self) -> None:
        self.root.get_by_role("button", name="Open log of job").click()


class Log:
    """The log of a job in the main area, as it is found by who opened it."""

    def __init__(self, page: Any, name: str) -> None:
        self.tab = page.get_by_role("tab", name=re.compile(rf"^Log \d+ {re.escape(name)}"))
        self.root = page.get_by_role("tabpanel", name=re.compile(rf"^Log \d+ {re.escape(name)}"))

    def line(self, text: str) -> Any:
        """A line in view that is this text."""
        return self.root.get_by_role("listitem").filter(has_text=re.compile(rf"^{re.escape(text)}\s*$"))


class Palette:
    """The palette of commands."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.root = page.get_by_role("region", name="Command Palette Section")

    def run(self, label: str) -> None:
        """Open it, which a page that is still loading may not do at once, or close again; find the command; run it."""
        words = self.root.get_by_role("textbox")
        found = self.root.locator(".lm-mod-active").filter(has_text=label)

        def is_found() -> bool:
            if not words.is_visible():
                self.page.keyboard.press("Control+Shift+C")
            elif words.input_value() != label:
                words.fill(label)
            return bool(found.is_visible())

        wait_for(is_found, f"{label!r} in the palette")
        words.press("Enter")


class LiveFrames:
    """What a page that is about to be opened asks for and is told over its WebSocket to the cluster."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._opened: list[dict[str, Any]] = []
        self._told: set[str] = set()
        self._requests: list[str] = []
        page.on("websocket", self._on_socket)
        page.on("request", self._on_request)

    def _on_socket(self, socket: Any) -> None:
        if "/gpucluster/" in socket.url:
            socket.on("framesent", lambda frame: self._on_sent(json.loads(frame)))
            socket.on("framereceived", lambda frame: self._on_received(json.loads(frame)))

    def _on_request(self, request: Any) -> None:
        if "/gpucluster/" in request.url:
            self._requests.append(request.url)

    def _on_sent(self, message: dict[str, Any]) -> None:
        if message["type"] == "open":
            self._told.clear()
            self._opened.append(message)
        elif message["type"] == "close":
            self._opened = [each for each in self._opened if each["channel"] != message["channel"]]

    def _on_received(self, message: dict[str, Any]) -> None:
        for item in message.get("items", []):
            self._told |= {"queues", "nodes", "jobs", "status"} & set(item)

    def _hear(self) -> None:
        """What happened in the page reaches us while we talk to it."""
        self._page.evaluate("() => 0")

    @property
    def topics(self) -> set[str]:
        """The topics that are followed at present."""
        self._hear()
        live = [each["query"].get("topics", "") for each in self._opened if each["path"] == "live"]
        return {topic for topics in live for topic in topics.split(",") if topic}

    def told_since_last_open(self) -> set[str]:
        self._hear()
        return set(self._told)

    def requests(self) -> list[str]:
        """Everything but what goes over the WebSocket."""
        self._hear()
        return list(self._requests)


def overlaps(root: Any) -> list[str]:
    """Texts and controls of a panel that stand in each other's place."""
    return list(root.evaluate(_OVERLAPS))


def sideways(root: Any) -> list[str]:
    """What can be scrolled sideways, or stands out of the panel."""
    return list(root.evaluate(_SIDEWAYS))


_OVERLAPS = """root => {
  // What the eye sees of an element: its box, less what is cut off by what scrolls or clips around it.
  const seen = element => {
    let {left, top, right, bottom} = element.getBoundingClientRect();
    for (let around = element.parentElement; around !== document.body; around = around.parentElement) {
      if (getComputedStyle(around).overflow !== 'visible') {
        const box = around.getBoundingClientRect();
        left = Math.max(left, box.left);
        right = Math.min(right, box.right);
        top = Math.max(top, box.top);
        bottom = Math.min(bottom, box.bottom);
      }
    }
    return {left, top, right, bottom, element};
  };
  const isThere = element =>
    element.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && !element.closest('.jp-gpucluster-spoken, [role=tooltip]');
  const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const isControl = element =>
    element.matches('button, input, select, svg, [role=progressbar], [role=gridcell], .jp-gpucluster-bar');
  const boxes = [...root.querySelectorAll('*')]
    .filter(element => isThere(element) && (hasText(element) || isControl(element)))
    .map(seen)
    .filter(box => box.right - box.left > 1 && box.bottom - box.top > 1);
  const named = ({element}) =>
    `${element.tagName} ${element.getAttribute('class')} "${element.textContent.slice(0, 30)}"`;
  const found = [];
  boxes.forEach((one, at) => boxes.slice(at + 1).forEach(other => {
    const isInside = one.element.contains(other.element) || other.element.contains(one.element);
    const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (!isInside && width > 2 && height > 2) {
      found.push(`${named(one)} and ${named(other)}`);
    }
  }));
  return found;
}"""

_SIDEWAYS = """root => {
  const {left, right} = root.getBoundingClientRect();
  // How far a bar is filled is shown by moving what fills it.
  const isMeant = element => element.closest('.jp-gpucluster-spoken, [role=tooltip], .jp-gpucluster-progress > span');
  const found = [];
  for (const element of [root, ...root.querySelectorAll('*')]) {
    const box = element.getBoundingClientRect();
    const isScrolled = ['auto', 'scroll'].includes(getComputedStyle(element).overflowX)
      && element.scrollWidth > element.clientWidth;
    const standsOut = box.width > 0 && (box.left < left - 1 || box.right > right + 1);
    if (element.checkVisibility() && !isMeant(element) && (isScrolled || standsOut)) {
      found.push(`${element.getAttribute('class')}: ${element.scrollWidth} > ${element.clientWidth}`);
    }
  }
  return found;
}"""
