"""The page that `ui.py` looks at: JupyterLab in Chromium with the sidebar open, scrolled as by a wheel, frame by frame."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pages import open_lab, show_sidebar
from panel_pages import LiveFrames, Sidebar
from support.jupyter_server import JupyterServer

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

#: `window.recorded` has the time of each frame and the tasks above 50 ms from here on.
_RECORD = """() => {
  const recorded = {frames: [], longTasks: 0};
  const observer = new PerformanceObserver(list => { recorded.longTasks += list.getEntries().length; });
  observer.observe({entryTypes: ['longtask']});
  const onFrame = now => {
    recorded.frames.push(now);
    recorded.request = requestAnimationFrame(onFrame);
  };
  recorded.request = requestAnimationFrame(onFrame);
  recorded.observer = observer;
  window.recorded = recorded;
}"""
_RECORDED = """() => {
  const {frames, observer, request} = window.recorded;
  cancelAnimationFrame(request);
  const longTasks = window.recorded.longTasks + observer.takeRecords().length;
  observer.disconnect();
  return {frames, longTasks};
}"""
#: A list of as many rows that a browser has nothing to do for but scroll, in the place of the jobs.
_STATIC_LIST = """({count, height, box}) => {
  const list = document.createElement('div');
  list.id = 'static-list';
  Object.assign(list.style, {
    position: 'fixed', zIndex: 10000, overflowY: 'scroll', color: 'var(--jp-ui-font-color1)',
    background: 'var(--jp-layout-color1)', font: 'var(--jp-ui-font-size1) var(--jp-ui-font-family)',
    left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px`
  });
  for (let number = 0; number < count; number++) {
    const row = document.createElement('div');
    Object.assign(row.style, {height: `${height}px`, borderBottom: '1px solid var(--jp-border-color3)'});
    row.innerText = `#${number} resnet50, 2 GPUs\\nrunning in team-03`;
    list.append(row);
  }
  document.body.append(list);
}"""


@dataclasses.dataclass
class Frames:
    """What a page did in one measurement. `busy_ms`: processor time of its main thread."""

    seconds: float
    deltas_ms: list[float]
    long_tasks: int
    busy_ms: float

    def __add__(self, other: Frames) -> Frames:
        return Frames(
            self.seconds + other.seconds,
            self.deltas_ms + other.deltas_ms,
            self.long_tasks + other.long_tasks,
            self.busy_ms + other.busy_ms,
        )


class BytesOfPage:
    """What a page that is about to be opened receives over its WebSocket to the cluster, uncompressed."""

    def __init__(self, page: Any) -> None:
        self.bytes = 0
        self.messages = 0
        page.on("websocket", self._on_socket)

    def _on_socket(self, socket: Any) -> None:
        if "/gpucluster/" in socket.url:
            socket.on("framereceived", self._on_frame)

    def _on_frame(self, frame: str | bytes) -> None:
        self.bytes += len(frame)
        self.messages += 1


class LabPage:
    """JupyterLab with the sidebar, the list of jobs on "All"."""

    def __init__(self, page: Any, server: JupyterServer) -> None:
        self._page = page
        self._frames = LiveFrames(page)
        self.received = BytesOfPage(page)
        open_lab(page, server)
        self._sidebar = Sidebar(page).show()
        self._sidebar.root.get_by_role("button", name="All", exact=True).click()
        self._sidebar.topology.wait_for()
        self._grid = self._sidebar.jobs
        self._grid.get_by_role("row").nth(3).wait_for()
        self._cdp = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable", {"timeDomain": "threadTicks"})

    @property
    def topics(self) -> set[str]:
        return self._frames.topics

    @property
    def rows(self) -> int:
        return int(self._grid.get_attribute("aria-rowcount"))

    def wait_for_rows(self, count: int) -> None:
        self._page.wait_for_function(
            "([grid, count]) => Number(grid.getAttribute('aria-rowcount')) >= count",
            arg=[self._grid.element_handle(), count],
        )

    def hide(self) -> None:
        self._page.evaluate("() => window.jupyterapp.shell.collapseLeft()")

    def show(self) -> None:
        show_sidebar(self._page)
        self._grid.wait_for()

    def stand_still(self, seconds: float) -> Frames:
        self._record()
        self.wait(seconds)
        return self._recorded()

    def scroll_jobs(self, seconds: float) -> Frames:
        """From top to bottom and back, in so many seconds."""
        self._grid.evaluate("grid => grid.scrollTo(0, 0)")
        self.wait(0.5)
        return self._scroll(self._grid, seconds)

    def scroll_static(self, seconds: float) -> Frames:
        """The same with the plain list, the sidebar hidden."""
        box, count = self._grid.bounding_box(), self.rows
        height = self._grid.evaluate("grid => grid.scrollHeight") / count
        self.hide()
        self._page.evaluate(_STATIC_LIST, {"count": count, "height": height, "box": box})
        self.wait(0.5)
        found = self._scroll(self._page.locator("#static-list"), seconds)
        self._page.evaluate("() => document.getElementById('static-list').remove()")
        self.show()
        return found

    def receive(self, seconds: float) -> tuple[float, float]:
        """Bytes and messages a second, doing nothing."""
        self.wait(0.1)  # takes in what was received before
        before, messages, begin = self.received.bytes, self.received.messages, time.monotonic()
        self.wait(seconds)
        took = time.monotonic() - begin
        return (self.received.bytes - before) / took, (self.received.messages - messages) / took

    def wait(self, seconds: float) -> None:
        self._page.wait_for_timeout(seconds * 1000)

    def screenshot(self, path: str) -> None:
        self._page.screenshot(path=path)

    def _scroll(self, target: Any, seconds: float) -> Frames:
        box = target.bounding_box()
        way = target.evaluate("list => list.scrollHeight - list.clientHeight")
        gesture = {
            "x": box["x"] + box["width"] / 2,
            "y": box["y"] + box["height"] / 2,
            "speed": round(2 * way / seconds),
            "gestureSourceType": "mouse",
        }
        self._record()
        for direction, end in ((-1, "bottom"), (1, "top")):
            self._cdp.send("Input.synthesizeScrollGesture", {**gesture, "yDistance": direction * way})
            # Rows that were never in view are only estimated, so the end may be somewhat farther away.
            gone = target.evaluate("list => list.scrollTop / (list.scrollHeight - list.clientHeight)")
            if (gone if end == "bottom" else 1 - gone) < 0.75:
                raise RuntimeError(f"the list was not scrolled to its {end}: it stands at {gone:.0%}")
        return self._recorded()

    def _record(self) -> None:
        self._page.evaluate(_RECORD)
        self._begin_s, self._busy_s = time.monotonic(), self._busy()

    def _recorded(self) -> Frames:
        seconds, busy_s = time.monotonic() - self._begin_s, self._busy() - self._busy_s
        recorded = self._page.evaluate(_RECORDED)
        times = recorded["frames"]
        deltas = [later - earlier for earlier, later in itertools.pairwise(times)]
        return Frames(seconds, deltas, recorded["longTasks"], busy_s * 1000)

    def _busy(self) -> float:
        metrics = self._cdp.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Raises ImportError or RuntimeError when this machine has none."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        raise RuntimeError("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()
