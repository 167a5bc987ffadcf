"""A front end for tests: a real kernel, and a notebook's cells as a front end would draw them (streams joined, displays
updated by their id, outputs cleared), so that tests assert what a user sees.
"""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

CARD = "application/vnd.gpucluster.job+json"
TIMEOUT_S = 120.0


class Cell:
    """An executed cell: its outputs (nbformat), and how the kernel answered."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.reply: dict[str, Any] = {}
        self.clear_next = False
        #: Every state that the card has shown, in order.
        self.states: list[str] = []

    @property
    def status(self) -> str:
        return str(self.reply.get("status"))

    @property
    def ename(self) -> str:
        return str(self.reply.get("ename", ""))

    @property
    def error(self) -> str:
        """The traceback as shown, without its colours."""
        lines = [
            line for each in self.outputs if each["output_type"] == "error" for line in each["traceback"]
        ]
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))

    def stream(self, name: str) -> str:
        return "".join(
            each["text"] for each in self.outputs if each["output_type"] == "stream" and each["name"] == name
        )

    @property
    def stdout(self) -> str:
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        return self.stream("stderr")

    @property
    def card(self) -> dict[str, Any]:
        """The card's JSON; the card is the first output."""
        return self.outputs[0]["data"][CARD]

    @property
    def card_text(self) -> str:
        return str(self.outputs[0]["data"]["text/plain"])

    @property
    def result(self) -> str | None:
        """The text of Out[n]."""
        found = [
            each["data"]["text/plain"] for each in self.outputs if each["output_type"] == "execute_result"
        ]
        return found[-1] if found else None

    @property
    def body(self) -> list[dict[str, Any]]:
        """The outputs without cards and without what differs between two showings of one job."""
        return [
            {key: value for key, value in each.items() if key != "execution_count"}
            for each in self.outputs
            if CARD not in each.get("data", {})
        ]

    def describe(self) -> str:
        return f"{self.reply}\n{self.outputs}"


class Kernel:
    """A kernel of this interpreter with the extension loaded."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=env, cwd=str(folder))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT_S)
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self.run("%load_ext jupyter_gpucluster")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def kill(self) -> None:
        os.kill(self.manager.provisioner.pid, 9)

    def run(
        self, code: str, on_output: Callable[[Cell], None] | None = None, cell_id: str | None = None
    ) -> Cell:
        """Execute a cell to its end. `on_output` is called after each output has been drawn."""
        message = self.client.session.msg(
            "execute_request",
            {
                "code": textwrap.dedent(code).strip("\n"),
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
            },
            metadata={"cellId": cell_id} if cell_id else {},
        )
        self.client.shell_channel.send(message)
        return self.collect(message["header"]["msg_id"], on_output)

    def collect(self, msg_id: str, on_output: Callable[[Cell], None] | None = None) -> Cell:
        cell = Cell()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self.client.get_iopub_msg(timeout=max(deadline - time.monotonic(), 0.1))
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            self._draw(cell, kind, content)
            if on_output is not None:
                on_output(cell)
        cell.reply = self.reply(msg_id)
        return cell

    def reply(self, msg_id: str) -> dict[str, Any]:
        """How the kernel answered; cells that it did not run any more are `aborted`."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self.client.get_shell_msg(timeout=max(deadline - time.monotonic(), 0.1))
            if message["parent_header"].get("msg_id") == msg_id:
                return message["content"]

    def _draw(self, cell: Cell, kind: str, content: dict[str, Any]) -> None:
        if kind == "update_display_data":
            for output in self._displays.get(content["transient"]["display_id"], ()):
                output["data"], output["metadata"] = content["data"], content["metadata"]
            self._note_state(cell, content)
            return
        if kind == "clear_output":
            cell.clear_next = True
            if not content["wait"]:
                cell.outputs.clear()
                cell.clear_next = False
            return
        if kind not in ("stream", "display_data", "execute_result", "error"):
            return
        if cell.clear_next:
            cell.outputs.clear()
            cell.clear_next = False
        last = cell.outputs[-1] if cell.outputs else None
        if kind == "stream" and last and last["output_type"] == "stream" and last["name"] == content["name"]:
            last["text"] += content["text"]
            return
        output = {"output_type": kind, **{key: value for key, value in content.items() if key != "transient"}}
        cell.outputs.append(output)
        display_id = content.get("transient", {}).get("display_id")
        if display_id:
            self._displays.setdefault(display_id, []).append(output)
        self._note_state(cell, content)

    @staticmethod
    def _note_state(cell: Cell, content: dict[str, Any]) -> None:
        card = content.get("data", {}).get(CARD)
        if card and cell.states[-1:] != [card["state"]]:
            cell.states.append(card["state"])


@contextlib.contextmanager
def kernel(env: dict[str, str], folder: Path) -> Iterator[Kernel]:
    made = Kernel(env, folder)
    try:
        yield made
    finally:
        made.close()


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """The first true value of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


class Once:
    """Calls an action once, at the first output that fulfils a condition."""

    def __init__(self, condition: Callable[[Cell], bool], action: Callable[[], None]) -> None:
        self._condition = condition
        self._action = action
        self.done = False

    def __call__(self, cell: Cell) -> None:
        if not self.done and self._condition(cell):
            self.done = True
            self._action()


__all__ = ["CARD", "Cell", "Kernel", "Once", "eventually", "kernel"]
