"""The log panel in a browser page, in Lab or in Notebook 7."""

from __future__ import annotations

import sys
from typing import Any

from pages import wait_for

_WIDGET = """
  const shell = window.jupyterapp.shell;
  const all = [...shell.widgets('main'), ...(shell.widgets('down') ?? [])];
  const widget = all.find(each => each.id === id);
"""
_TEXT = (
    "id => {" + _WIDGET + "return widget && widget.content.terminal ? widget.content.terminal.text : ''; }"
)
_OPEN = "async args => { await window.jupyterapp.commands.execute('gpucluster:open-log', args); }"


def python(code: str) -> tuple[str, ...]:
    """A command that runs `code` and gives what it prints at once."""
    return (sys.executable, "-u", "-c", code)


class LogPage:
    """The log of one rank of a job; `open` opens it or brings it to the front."""

    def __init__(self, page: Any, job: str, rank: int = 0) -> None:
        self.page = page
        self.job = job
        self.rank = rank
        self.id = f"jp-gpucluster-log-{job}-{rank}"
        self.root = page.locator(f"#{self.id}")
        self.screen = self.root.locator(".xterm")
        self.rows = self.root.locator(".xterm-rows")
        self.above = self.root.locator(".jp-gpucluster-logAbove")
        self.end = self.root.locator(".jp-gpucluster-logEnd")
        self.found = self.root.locator(".jp-gpucluster-logFound")

    def open(self) -> LogPage:
        self.page.evaluate(_OPEN, {"job": self.job, "rank": self.rank})
        self.screen.wait_for()
        return self

    def button(self, name: str) -> Any:
        return self.root.get_by_role("button", name=name)

    def lines(self) -> list[str]:
        """Everything that can be scrolled to."""
        return str(self.page.evaluate(_TEXT, self.id)).splitlines()

    def wait_for_line(self, line: str) -> list[str]:
        """All lines, once that one is among them."""
        wait_for(lambda: line in self.lines(), f"the line {line!r}")
        return self.lines()

    def focus(self) -> None:
        self.screen.click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def first_row(self) -> str:
        return str(self.rows.locator("> div").first.inner_text()).strip()

    def last_row(self) -> str:
        """The last row in view with text in it."""
        texts = [text.strip() for text in self.rows.locator("> div").all_inner_texts()]
        return next((text for text in reversed(texts) if text), "")


def open_logs(page: Any) -> list[str]:
    """Their ids, in the order of their tabs."""
    ids = page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].map(each => each.id)")
    return [each for each in ids if each.startswith("jp-gpucluster-log-")]
