"""The scheduler process: puts store, engine, backend and HTTP together, and takes them apart again in order.

One scheduler per data folder. It never needs root, tells where it is by its runtime file (discovery.py), and ends
without ending a single task: those stay with their supervisors and are adopted by the next scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from .. import __version__
from ..backends.local import LocalBackend
from ..engine.core import Engine, EngineOptions
from ..engine.driver import EngineDriver
from ..engine.protocols import ChangeSet, Recovered
from ..model.errors import InvalidRequest, Unavailable
from ..model.events import PublishedEvent
from ..model.ids import make_id
from ..model.jobs import ENDED_STATES
from ..model.queues import QueueSpec
from ..model.topology import Node
from ..policy.words import counted
from ..store import Store
from ..store.database import Superseded
from . import discovery
from .app import Activity, Identity, LastKnown, Parts, Streams, make_app
from .auth import Authenticator, PeerAuthenticator
from .clock import SystemClock
from .config import BUILT_IN, ClusterConfig, load_config
from .deadline import end_within
from .directory import JobDirectory
from .discovery import RuntimeInfo
from .feed import READ_BYTES, EventFeed
from .housekeeping import Housekeeping
from .live_source import LiveSource
from .node_watch import NodeWatch
from .orders import OrderMaker
from .ownership import DataFolderOwnership
from .remembered import choose_config, remember_config
from .schemas import PROTOCOL_MAX, PROTOCOL_MIN
from .self_check import SelfCheck
from .service_log import service_log
from .submission import Submissions
from .usage import UsageWatch
from .views import Views
from .visibility import Visibility

#: Threads for reading the store, logs and blobs beside the loop.
WORKER_THREADS = 16
#: A body above every handler's own limit is refused by the HTTP server itself.
MAX_BODY_BYTES = 64 << 20
MAX_HEADER_BYTES = 64 << 10
SOCKET_MODE = 0o600
#: How long an end in order may take; a thread that hangs on a file system is not waited for any longer.
END_PATIENCE_S = 8.0

log = logging.getLogger("gpucluster.service")


def serve(
    config: str | os.PathLike[str] | None = None,
    *,
    embedded: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> int:
    """Run the scheduler until it is told to end; the exit code. `config`: a cluster.yaml (see remembered.py without it).

    `embedded`: started by a notebook or Jupyter server, so it ends after an idle time and writes to its log only.
    Raises InvalidConfig, VersionMismatch, Conflict (another scheduler has the data folder) and Unavailable.
    """
    folder = discovery.data_folder(
        data_dir or os.environ.get(discovery.ENV_DATA) or load_config(config).data_dir
    )
    file = choose_config(folder, config)
    service = Service(load_config(file or BUILT_IN), folder, embedded=embedded, config_file=file)
    service.on_stop = lambda code: end_within(END_PATIENCE_S, code)
    return asyncio.run(service.run())


class Service:
    """One run of the scheduler."""

    def __init__(
        self,
        config: ClusterConfig,
        folder: Path,
        *,
        embedded: bool,
        config_file: Path | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.config = config
        self._config_file = config_file
        self.folder = folder
        self.embedded = embedded
        self._authenticator = authenticator or PeerAuthenticator()
        self._clock = SystemClock()
        self._runtime = discovery.runtime_folder()
        self._key = discovery.scheduler_key(folder)
        self._socket_path = self._choose_socket()
        self._activity = Activity()
        self._streams = Streams()
        self._notes: list[str] = []
        self._watch = NodeWatch(config)
        self._usage = UsageWatch()
        self._self_check = SelfCheck()
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._has_failed = False
        #: Called with the exit code when the end begins.
        self.on_stop: Callable[[int], None] = lambda code: None

    # ---- life

    async def run(self) -> int:
        """Come up, serve, come down."""
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="service")
        )
        async with contextlib.AsyncExitStack() as stack:
            ownership = stack.enter_context(DataFolderOwnership(self.folder, self._runtime, self._key))
            stack.enter_context(service_log(self.folder, to_terminal=not self.embedded))
            self._catch_signals()
            log.info(
                "gpucluster %s starts, pid %s, data folder %s, configuration %s",
                __version__, os.getpid(), self.folder, self._config_file or BUILT_IN,
            )  # fmt: skip
            remember_config(self.folder, self._config_file)
            try:
                await self._serve(stack, ownership)
            except Exception as error:
                log.error("the scheduler ends: %s", error)
                raise
        return 1 if self._has_failed else 0

    async def _serve(self, stack: contextlib.AsyncExitStack, ownership: DataFolderOwnership) -> None:
        store = await asyncio.to_thread(Store.open, self.folder, self._clock)
        stack.callback(store.close)
        stack.push_async_callback(self._watch.close)
        nodes = await asyncio.to_thread(self._watch.open)
        backend = self._make_backend(store, nodes)
        await asyncio.to_thread(store.keep_queues, self.config.queue_specs(nodes)[0])
        driver = self._make_driver(store, backend)
        driver.on_fault = self._failed
        await driver.start()
        stack.push_async_callback(driver.close)
        await asyncio.to_thread(store.secrets.sweep, list(driver.engine.state.jobs))
        parts = self._make_parts(store, backend, driver)
        listener = self._listen(parts)
        stack.push_async_callback(self._hang_up, listener)
        info = self._info()
        ownership.publish(info)
        housekeeping = Housekeeping(
            parts, self.config, ownership, info, clock=self._clock, reopen=listener.ensure_open
        )
        stack.push_async_callback(housekeeping.close)
        housekeeping.start(self.config.idle_after_s(self.embedded))
        self._watch.start(lambda: driver.engine.state, driver.post)
        stack.push_async_callback(self._usage.close)
        self._usage.start(self._watch.inventory, backend.running_folders)
        stack.push_async_callback(self._self_check.close)
        self._self_check.start(lambda: driver.engine.state)
        log.info("listening at %s; %s", info.address, _how_it_stands(driver))
        await self._stop.wait()
        ownership.withdraw()
        log.info("ends: %s; %s", self._stop_reason, _what_stays(driver))

    def request_stop(self, reason: str) -> None:
        """End soon, in order. May be called more than once."""
        if not self._stop.is_set():
            self.on_stop(1 if self._has_failed else 0)
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    def _failed(self, reason: str) -> None:
        """The engine cannot go on: end, so that whoever comes next starts a scheduler that recovers from the store."""
        self._has_failed = True
        self.request_stop(reason)

    def _superseded(self, error: Superseded) -> None:
        log.error("%s", error)
        self.request_stop("another scheduler has taken the data folder over")

    def _catch_signals(self) -> None:
        """A shell that started us in the background left SIGINT and SIGQUIT ignored; tasks must not inherit that."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.request_stop, f"got {number.name}")
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)

    # ---- parts

    def _make_backend(self, store: Store, nodes: Sequence[Node]) -> LocalBackend:
        return LocalBackend(
            data_dir=str(self.folder),
            runtime_dir=str(discovery.socket_folder(self._runtime)),
            nodes=nodes,
            blobs=store.blobs,
            clock=self._clock,
            log_limit_bytes=self.config.limits.log_bytes_per_task,
        )

    def _make_driver(self, store: Store, backend: LocalBackend) -> EngineDriver:
        orders = OrderMaker(lambda: driver.engine.state, store.secrets, backend.meeting_point)
        driver = EngineDriver(
            new_engine=self._new_engine,
            journal=_Journal(store, self._superseded),
            backend=backend,
            clock=self._clock,
            make_order=orders,
            log=logging.getLogger("gpucluster.engine"),
        )
        return driver

    def _new_engine(self, nodes: Sequence[Node]) -> Engine:
        queues, notes = self.config.queue_specs(nodes)
        self._notes = list(dict.fromkeys([*self._notes, *notes]))
        return Engine(
            queues=queues,
            nodes=nodes,
            new_id=lambda time_us: make_id(time_us, os.urandom(10)),
            options=EngineOptions(),
        )

    def _make_parts(self, store: Store, backend: LocalBackend, driver: EngineDriver) -> Parts:
        async def read_older(after: int, limit: int) -> Sequence[PublishedEvent]:
            return (await asyncio.to_thread(store.events, after, limit, READ_BYTES)).events

        feed = EventFeed(driver.last_seq, read_older)
        visibility = Visibility(lambda name: _queue_spec(driver, name))
        views = Views(
            engine=lambda: driver.engine,
            now_us=self._clock.now_us,
            last_seq=lambda: feed.last_seq,
            visibility=visibility,
            usage=self._usage,
            task_notes=backend.task_notes,
            cluster=self.config.name,
            levels=self.config.levels,
        )
        live = LiveSource(
            driver=driver,
            store=store,
            feed=feed,
            views=views,
            visibility=visibility,
            notes=lambda: self._all_notes(driver, backend),
            now_us=self._clock.now_us,
        )
        driver.add_listener(live.ended.forget)
        driver.add_listener(feed.publish)
        driver.add_listener(lambda events: _forget_secrets(store, events))
        directory = JobDirectory(lambda: driver.engine.state, driver.settled, store, visibility)
        submissions = Submissions(
            config=self.config,
            driver=driver,
            store=store,
            directory=directory,
            visibility=visibility,
            views=views,
            clock=self._clock,
        )
        return Parts(
            config=self.config,
            identity=Identity(
                version=__version__,
                pid=os.getpid(),
                started_us=self._clock.now_us(),
                data_dir=str(self.folder),
                address=f"unix:{self._socket_path}",
            ),
            authenticator=self._authenticator,
            driver=driver,
            backend=backend,
            store=store,
            feed=feed,
            live=live,
            visibility=visibility,
            views=views,
            directory=directory,
            submissions=submissions,
            activity=self._activity,
            last_known=LastKnown(),
            streams=self._streams,
            log=log,
            request_stop=self.request_stop,
            notes=lambda: self._all_notes(driver, backend),
        )

    def _all_notes(self, driver: EngineDriver, backend: LocalBackend) -> list[str]:
        """What whoever runs the cluster should know, the standing notes first."""
        return [
            *self._watch.notes,
            *self._notes,
            *([driver.trouble] if driver.trouble else []),
            *self._self_check.notes,
            *(
                f"{counted(count, 'running task')} {note}"
                for note, count in Counter(backend.task_notes().values()).items()
            ),
        ]

    # ---- the socket

    def _choose_socket(self) -> Path:
        configured = self.config.socket_path
        path = Path(configured) if configured else discovery.socket_path(self._runtime, self._key)
        if len(os.fsencode(path)) >= discovery.SOCKET_PATH_LIMIT:
            raise InvalidRequest(
                "listen",
                f"the path {path} is too long for a socket ({discovery.SOCKET_PATH_LIMIT} bytes at most)",
                f"Set {discovery.ENV_RUNTIME} to a folder with a shorter path.",
            )
        return path

    def _listen(self, parts: Parts) -> Listener:
        server = HTTPServer(
            make_app(parts),
            max_body_size=MAX_BODY_BYTES,
            max_buffer_size=MAX_BODY_BYTES + MAX_HEADER_BYTES,
            max_header_size=MAX_HEADER_BYTES,
        )
        listener = Listener(server, self._socket_path)
        listener.ensure_open()
        return listener

    async def _hang_up(self, listener: Listener) -> None:
        """Take no more requests, end the streams (their clients come back to the next scheduler), let answers out."""
        listener.close()
        await self._streams.end_all()
        await listener.server.close_all_connections()

    def _info(self) -> RuntimeInfo:
        pid = os.getpid()
        now_us = self._clock.now_us()
        return RuntimeInfo(
            pid=pid,
            start_ticks=discovery.start_ticks(pid) or 0,
            pid_namespace=discovery.pid_namespace(),
            host=discovery.host_name(),
            boot_id=discovery.boot_id(),
            protocol=(PROTOCOL_MIN, PROTOCOL_MAX),
            socket=str(self._socket_path),
            data_dir=str(self.folder),
            version=__version__,
            started_us=now_us,
            seen_us=now_us,
        )


class _Journal:
    """The store as the engine's journal. When another scheduler has taken the folder over, there is nothing to retry."""

    def __init__(self, store: Store, superseded: Callable[[Superseded], None]) -> None:
        self._store = store
        self._superseded = superseded
        self._loop = asyncio.get_running_loop()

    def commit(self, changes: ChangeSet) -> None:
        try:
            self._store.commit(changes)
        except Superseded as error:
            self._loop.call_soon_threadsafe(self._superseded, error)
            raise

    def recover(self) -> Recovered:
        return self._store.recover()


class Listener:
    """The Unix socket. It is bound again when somebody cleaned its file away (temporary folders are)."""

    def __init__(self, server: HTTPServer, path: Path) -> None:
        self.server = server
        self._path = path
        self._inode: int | None = None

    def ensure_open(self) -> None:
        """Listen, if nothing of ours listens at the path. Raises Unavailable."""
        with contextlib.suppress(OSError):
            if self._inode is not None and os.stat(self._path).st_ino == self._inode:
                os.utime(self._path)
                return
        try:
            bound = bind_unix_socket(str(self._path), mode=SOCKET_MODE, backlog=512)
        except (OSError, ValueError) as error:
            raise Unavailable(f"the socket {self._path} cannot be made: {error}") from None
        self._inode = os.stat(self._path).st_ino
        self.server.add_socket(bound)

    def close(self) -> None:
        self.server.stop()
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)


def _forget_secrets(store: Store, events: Sequence[PublishedEvent]) -> None:
    """The secrets of a job go when it has ended. What a crash leaves is swept at the next start."""
    ended = {state.value for state in ENDED_STATES}
    for event in events:
        if event.kind == "job.state" and event.job_id and event.data.get("state") in ended:
            asyncio.get_running_loop().run_in_executor(None, _remove_secrets, store, event.job_id)


def _remove_secrets(store: Store, job_id: str) -> None:
    try:
        store.secrets.remove(job_id)
    except Unavailable as error:
        log.warning("%s; the next start removes them", error)


def _queue_spec(driver: EngineDriver, name: str) -> QueueSpec | None:
    queue = driver.engine.state.tree.queues.get(name)
    return queue.spec if queue is not None else None


def _how_it_stands(driver: EngineDriver) -> str:
    state = driver.engine.state
    gpus = sum(len(node.gpus) for node in state.nodes.values())
    return f"{len(state.nodes)} nodes, {gpus} GPUs, {len(state.jobs)} jobs that wait or run"


def _what_stays(driver: EngineDriver) -> str:
    running = sum(len(job.attempt.tasks) for job in driver.engine.state.jobs.values() if job.attempt)
    return f"{running} tasks go on with their supervisors, the next scheduler adopts them"
