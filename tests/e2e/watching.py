"""What goes wrong in a page without anybody seeing it: errors and warnings of ours, requests to a wrong address."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

#: What names us in a message or in the address of its source.
OURS = ("gpucluster", "gpu cluster")
#: Faults of Notebook itself, which it has without us too.
FOREIGN = (
    "Cannot read properties of undefined (reading 'schema')",  # its shortcuts, in 7.6
    'Window name candidate "null" already exists',  # its second page in a browser
)
#: What Lab says of any plugin on a machine that has much to do.
SLOW = "to activate"


class Watch:
    """A browser context and what its pages log and ask for; `close` fails when something was wrong."""

    def __init__(self, context: Any, base_url: str) -> None:
        self.context = context
        self.base_url = base_url
        self.complaints: list[str] = []
        #: Messages that a test brings about on purpose, by a part of their text.
        self.expected: list[str] = []
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        source = message.location.get("url", "")
        is_ours = (
            any(name in f"{message.text} {source}".lower() for name in OURS) and SLOW not in message.text
        )
        if message.type in ("error", "warning") and is_ours:
            self.complaints.append(f"{message.type}: {message.text} ({source})")

    def _on_error(self, error: Any) -> None:
        if str(error.error) not in FOREIGN or "gpucluster" in (error.error.stack or ""):
            self.complaints.append(f"not caught: {error.error} {error.error.stack}")

    def _on_request(self, request: Any) -> None:
        """Whatever goes to this server must stand below its base URL, and nothing may go elsewhere."""
        url = request.url
        if urlsplit(url).scheme in ("http", "https") and not url.startswith(self.base_url):
            self.complaints.append(f"request outside of {self.base_url}: {url}")

    def close(self) -> None:
        self.context.close()
        wrong = [text for text in self.complaints if not any(part in text for part in self.expected)]
        assert not wrong, "\n".join(wrong)
