"""The HTTP application: the routes, and the parts of the service that their handlers use."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tornado.web import Application

from .auth import Authenticator
from .config import ClusterConfig
from .directory import JobDirectory
from .feed import EventFeed
from .handlers import base, blobs, cluster, events, jobs, live, output
from .live_source import LiveSource
from .schemas import API_PREFIX
from .submission import Submissions
from .views import Views
from .visibility import Visibility

if TYPE_CHECKING:
    from ..engine.driver import EngineDriver
    from ..engine.protocols import Backend
    from ..engine.state import ClusterState
    from ..store import Store

_JOB = r"/jobs/([0-9a-zA-Z]+)"

#: Path below /v1 -> handler. A test walks this table and fails on any that answers without authentication.
ROUTES: tuple[tuple[str, type], ...] = (
    (r"/hello", cluster.HelloHandler),
    (r"/status", cluster.StatusHandler),
    (r"/queues", cluster.QueuesHandler),
    (r"/nodes", cluster.NodesHandler),
    (r"/nodes/([^/]+)", cluster.NodeHandler),
    (r"/topology", cluster.TopologyHandler),
    (r"/warm", cluster.WarmHandler),
    (r"/stop", cluster.StopHandler),
    (r"/events", events.EventsHandler),
    (r"/events/ws", events.EventSocket),
    (r"/live", live.LiveHandler),
    (r"/jobs", jobs.JobsHandler),
    (r"/jobs/dry-run", jobs.DryRunHandler),
    (_JOB, jobs.JobHandler),
    (_JOB + r"/cancel", jobs.CancelHandler),
    (_JOB + r"/share", jobs.ShareHandler),
    (_JOB + r"/why", jobs.WhyHandler),
    (_JOB + r"/history", jobs.HistoryHandler),
    (_JOB + r"/steps", jobs.StepsHandler),
    (_JOB + r"/result", jobs.ResultHandler),
    (_JOB + r"/source", jobs.SourceHandler),
    (_JOB + r"/output", output.OutputHandler),
    (_JOB + r"/log", output.LogHandler),
    (r"/blobs/missing", blobs.MissingHandler),
    (r"/blobs/([0-9a-f]{64})", blobs.BlobHandler),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """What this process tells about itself. `started_us`: microseconds since the epoch."""

    version: str
    pid: int
    started_us: int
    data_dir: str
    address: str


class Activity:
    """When a client was last heard of, and how many streams are open: what the idle stop goes by."""

    def __init__(self) -> None:
        self._seen_s = time.monotonic()

    def seen(self) -> None:
        self._seen_s = time.monotonic()

    def idle_s(self) -> float:
        """Seconds since the last sign of a client."""
        return time.monotonic() - self._seen_s


@dataclasses.dataclass
class LastKnown:
    """What the status shows while the store does not answer."""

    gpus_used: int = 0


class Streams:
    """The streams that are open, so that a stop does not wait for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def hold(self, task: asyncio.Task[Any] | None) -> Iterator[None]:
        if task is not None:
            self._tasks.add(task)
        try:
            yield
        finally:
            if task is not None:
                self._tasks.discard(task)

    def __len__(self) -> int:
        return len(self._tasks)

    async def end_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """What handlers are given. Made in service.py, the one place that puts concrete parts together."""

    config: ClusterConfig
    identity: Identity
    authenticator: Authenticator
    driver: EngineDriver
    backend: Backend
    store: Store
    feed: EventFeed
    live: LiveSource
    visibility: Visibility
    views: Views
    directory: JobDirectory
    submissions: Submissions
    activity: Activity
    last_known: LastKnown
    streams: Streams
    log: logging.Logger
    request_stop: Callable[[str], None]
    notes: Callable[[], Sequence[str]]

    @property
    def state(self) -> ClusterState:
        """The engine's memory of this moment."""
        return self.driver.engine.state

    def is_simulated(self) -> bool:
        """Whether any GPU is declared rather than found."""
        return any(gpu.simulated for node in self.state.nodes.values() for gpu in node.gpus)


def make_app(parts: Parts) -> Application:
    routes: list[Any] = [(API_PREFIX + path, handler, {"parts": parts}) for path, handler in ROUTES]
    return Application(
        routes,
        default_handler_class=base.NoSuchResource,
        default_handler_args={"parts": parts},
        websocket_ping_interval=events.WEBSOCKET_PING_S,
        log_function=_log_request,
    )


def _log_request(handler: Any) -> None:
    base.log.debug(
        "%s %s %s %.1f ms",
        handler.get_status(),
        handler.request.method,
        handler.request.path,  # not the query, which may be long
        handler.request.request_time() * 1000,
    )
