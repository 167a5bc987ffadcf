"""The synchronous client of the scheduler: notebook, CLI, Jupyter server extension and scripts all use this one.

Thread-safe. It finds the scheduler (an address, the Jupyter server around the kernel, the user's own one, started when
there is none), keeps going across a restart of the scheduler, and raises nothing but GpuclusterError.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, Union

import msgspec

from ..model.errors import Conflict, InvalidRequest, Unavailable, VersionMismatch
from ..worker.protocol import common_version
from . import discovery, embedded
from .feeds import EventFeed, Follower, LiveFeed
from .schemas import (
    CHUNK_BYTES,
    INLINE_LIMIT_BYTES,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    BlobStatus,
    CancelRequest,
    Done,
    DryRun,
    Hello,
    HistoryView,
    JobList,
    JobSubmission,
    JobView,
    Missing,
    MissingRequest,
    NodeRequest,
    NodeView,
    QueueView,
    ResultView,
    ShareRequest,
    SourceView,
    StatusView,
    StepsView,
    Topic,
    TopologyView,
    WarmRequest,
    WhyView,
)
from .transport import Address, ConnectionLost, Transport, Unreached, back_off_s, parse_address

ENV_JUPYTER_URL = "JUPYTER_GPUCLUSTER_URL"
ENV_JUPYTER_TOKEN = "JUPYTER_GPUCLUSTER_TOKEN"

#: A request that may be repeated is repeated for this long while the scheduler is away after having been there.
RETRY_S = 20.0
#: A greeting is answered at once or not at all; somebody waits for it.
HELLO_TIMEOUT_S = 10.0
HELLO_RETRY_S = 3.0

T = TypeVar("T")
#: What a blob is read from: bytes in memory or the path of a file.
BlobSource = Union[bytes, bytearray, memoryview, str, "os.PathLike[str]"]


class Resolver(Protocol):
    """Finds the scheduler, at first and again after it went away.

    `revive`: asked by somebody who only waits. One that was stopped on purpose is not started again for them.
    """

    def __call__(self, *, revive: bool) -> Address:
        """Raises Unavailable."""
        ...


def connect(
    address: str | None = None,
    *,
    start: bool = True,
    data_dir: str | os.PathLike[str] | None = None,
    token: str | None = None,
) -> ApiClient:
    """A client of the scheduler, after a greeting.

    Looked at in this order: `address`, $GPUCLUSTER_ADDRESS, the Jupyter server around this kernel
    ($JUPYTER_GPUCLUSTER_URL), the user's running scheduler, and, with `start`, a new one.
    Raises Unavailable when there is none and VersionMismatch when it speaks another protocol.
    """
    client = ApiClient(_resolver(address, start, data_dir, token))
    try:
        client.hello()
    except BaseException:
        client.close()
        raise
    return client


def _resolver(
    address: str | None, start: bool, data_dir: str | os.PathLike[str] | None, token: str | None
) -> Resolver:
    given = address or (os.environ.get(discovery.ENV_ADDRESS) if data_dir is None else None)
    if given:
        fixed = parse_address(given, token=token, field="address" if address else discovery.ENV_ADDRESS)
        return lambda *, revive: fixed
    url = os.environ.get(ENV_JUPYTER_URL) if data_dir is None else None
    if url:
        jupyter = parse_address(url, token=os.environ.get(ENV_JUPYTER_TOKEN), field=ENV_JUPYTER_URL)
        return lambda *, revive: jupyter

    def find(*, revive: bool) -> Address:
        if not start:
            return parse_address(discovery.require_scheduler(data_dir).address)
        bring_up = embedded.revive_scheduler if revive else embedded.ensure_scheduler
        return parse_address(bring_up(data_dir).address)

    return find


def check_protocol(hello: Hello) -> int:
    """The protocol version that both sides speak. Raises VersionMismatch with one clear sentence."""
    version = common_version((PROTOCOL_MIN, PROTOCOL_MAX), hello.protocol)
    if version is None:
        older = "the scheduler" if hello.protocol[1] < PROTOCOL_MIN else "this side"
        raise VersionMismatch(
            f"the scheduler (version {hello.version}) speaks protocol {hello.protocol[0]} to {hello.protocol[1]}, "
            f"this side speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}: {older} is too old",
            hint="Install the same version of jupyter-gpucluster on both sides, then restart the kernel or the scheduler.",
        )
    return version


class ApiClient:
    """Every route of the API as a method. Close it when done (also a context manager)."""

    def __init__(self, resolve: Resolver | Address) -> None:
        self._resolve: Resolver = (lambda *, revive: resolve) if isinstance(resolve, Address) else resolve
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._retired: list[Transport] = []
        self._stale = False
        self._greeted = False

    # ---- connection

    @property
    def address(self) -> str:
        return str(self._connected().address)

    def _connected(self, *, revive: bool = False) -> Transport:
        with self._lock:
            if self._transport is None or self._stale:
                address = self._resolve(revive=revive)
                if self._transport is None or self._transport.address != address:
                    # Other threads may still use the old pool, so it is closed at the end.
                    self._retired += [self._transport] if self._transport else []
                    self._transport = Transport(address)
                self._stale = False
            return self._transport

    def feed_transport(self) -> Transport:
        """See feeds.FeedSource."""
        return self._connected(revive=self._greeted)

    def feed_began(self) -> None:
        """See feeds.FeedSource."""
        self._greeted = True

    def forget(self, transport: Transport) -> None:
        """Look for the scheduler anew next time: it may have moved, or have to be started."""
        with self._lock:
            self._stale = self._stale or self._transport is transport

    def close(self) -> None:
        with self._lock:
            transports = [*self._retired, *([self._transport] if self._transport else [])]
            self._transport, self._retired = None, []
        for transport in transports:
            transport.close()

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(
        self, method: str, path: str, *, answer: type[T], repeat: bool | None = None, **request: Any
    ) -> T:
        """One request. `repeat` = it does no harm twice, so it is sent again when the connection is lost."""
        may_repeat = method == "GET" if repeat is None else repeat
        return self._persist(
            lambda transport: transport.request(method, path, answer=answer, **request), may_repeat, RETRY_S
        )

    def _persist(self, act: Callable[[Transport], T], may_repeat: bool, retry_s: float) -> T:
        """Do `act`, again while the scheduler is away, until `retry_s` after it was first missed.

        A scheduler that was never there fails at once: nobody waits for what does not run.
        """
        missed_at: float | None = None
        tries = 0
        while True:
            transport: Transport | None = None
            try:
                transport = self._connected()
                result = act(transport)
                self._greeted = True
                return result
            except ConnectionLost as error:
                if not may_repeat:
                    raise
                failure: Unavailable = error
            except Unreached as error:
                if not self._greeted:
                    raise
                failure = error
            if transport is not None:
                self.forget(transport)
            missed_at = missed_at or time.monotonic()
            if time.monotonic() - missed_at > retry_s:
                raise failure
            time.sleep(back_off_s(tries))
            tries += 1

    # ---- cluster

    def hello(self) -> Hello:
        """Who the scheduler is and who it takes us for. Raises VersionMismatch."""

        def greet(transport: Transport) -> Hello:
            return transport.request("GET", "/hello", answer=Hello, timeout_s=HELLO_TIMEOUT_S)

        hello = self._persist(greet, True, HELLO_RETRY_S)
        check_protocol(hello)
        return hello

    def status(self) -> StatusView:
        return self._call("GET", "/status", answer=StatusView)

    def queues(self) -> list[QueueView]:
        return self._call("GET", "/queues", answer=list[QueueView])

    def nodes(self) -> list[NodeView]:
        return self._call("GET", "/nodes", answer=list[NodeView])

    def topology(self) -> TopologyView:
        return self._call("GET", "/topology", answer=TopologyView)

    def set_node(self, name: str, health: str, reason: str | None = None) -> NodeView:
        """Administrators: `health` is ready, cordoned or lost."""
        body = _checked(NodeRequest, health=health, reason=reason)
        return self._call("POST", f"/nodes/{_segment(name)}", answer=NodeView, body=body, repeat=True)

    def warm(self, request: WarmRequest) -> None:
        """A hint: have a fork server ready for programs like this."""
        self._call("POST", "/warm", answer=Done, body=request, repeat=True)

    def stop(self) -> None:
        """Ask the scheduler to end. Running tasks go on; the next scheduler adopts them."""
        self._call("POST", "/stop", answer=Done, repeat=False)

    # ---- jobs

    def submit(self, submission: JobSubmission, blobs: Mapping[str, BlobSource] | None = None) -> JobView:
        """Submit a job; `blobs` are its inputs by SHA-256. Small ones travel inside, big ones are uploaded first.

        Repeated with the same idempotency key when the connection is lost, also across a restart of the scheduler, so
        that it ends in exactly one job.
        """
        blobs = blobs or {}
        if sum(_size(source) for source in blobs.values()) <= INLINE_LIMIT_BYTES:
            inline = {sha: bytes(_read(source)) for sha, source in blobs.items()}
            submission = msgspec.structs.replace(submission, inline_blobs=inline)
        else:
            self.dry_run(submission)  # what is refused is refused before anything big has travelled
            self.upload(blobs)
        return self._call("POST", "/jobs", answer=JobView, body=submission, repeat=True)

    def dry_run(self, submission: JobSubmission) -> DryRun:
        """What the submission would do; nothing is submitted. Blobs need not be there."""
        return self._call("POST", "/jobs/dry-run", answer=DryRun, body=submission, repeat=True)

    def job(self, job: str | int) -> JobView:
        """By long id or number. Raises NotFound."""
        return self._call("GET", f"/jobs/{_segment(job)}", answer=JobView)

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        queue: str | None = None,
        owner: str | None = None,
        mine: bool = False,
        ids: Iterable[str] = (),
        cell: str | Iterable[str] | None = None,
        notebook: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> JobList:
        """Jobs that the caller may see, newest first; `before` (from `next_before`) gives the next page.

        `cell`: one cell id or several, as submitted, and `notebook` the path that went with them.
        """
        params = {
            "state": ",".join(states) or None,
            "queue": queue,
            "owner": owner,
            "mine": mine or None,
            "id": ",".join(ids) or None,
            "cell": cell if cell is None or isinstance(cell, str) else ",".join(cell),
            "notebook": notebook,
            "limit": limit,
            "before": before,
        }
        return self._call("GET", "/jobs", answer=JobList, params=params)

    def cancel(self, job: str | int, reason: str | None = None) -> JobView:
        """Cancel; a job that is ending already is left at that. Raises Conflict when it has ended."""
        return self._call(
            "POST",
            f"/jobs/{_segment(job)}/cancel",
            answer=JobView,
            body=CancelRequest(reason=reason),
            repeat=True,
        )

    def share(self, job: str | int, share: str) -> JobView:
        """`share`: owner, queue or everyone."""
        body = _checked(ShareRequest, share=share)
        return self._call("POST", f"/jobs/{_segment(job)}/share", answer=JobView, body=body, repeat=True)

    def why(self, job: str | int) -> WhyView:
        return self._call("GET", f"/jobs/{_segment(job)}/why", answer=WhyView)

    def history(self, job: str | int) -> list[HistoryView]:
        return self._call("GET", f"/jobs/{_segment(job)}/history", answer=list[HistoryView])

    def steps(self, job: str | int) -> StepsView:
        return self._call("GET", f"/jobs/{_segment(job)}/steps", answer=StepsView)

    def result(self, job: str | int, rank: int = 0) -> ResultView:
        return self._call("GET", f"/jobs/{_segment(job)}/result", answer=ResultView, params={"rank": rank})

    def source(self, job: str | int) -> str:
        """The code of the job, for its readers."""
        return self._call("GET", f"/jobs/{_segment(job)}/source", answer=SourceView).source

    # ---- streams

    def follow(
        self,
        job: str | int,
        rank: int = 0,
        cursor: tuple[int, int] | None = None,
        follow: bool = True,
    ) -> Follower:
        """State and log of a job as they come, over reconnects and restarts without a gap or a repetition.

        `cursor`: (attempt number, offset) where an earlier follower stood; `follow=False` ends with what is there now.
        """
        return Follower(self, f"/jobs/{_segment(job)}/output", rank, cursor, follow)

    def log(
        self,
        job: str | int,
        rank: int = 0,
        *,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Follower:
        """Log records alone: of one `attempt` (None = all), or the last `tail` records of what is there."""
        return Follower(
            self, f"/jobs/{_segment(job)}/log", rank, None, follow, {"only_attempt": attempt, "tail": tail}
        )

    def events(self, after: int | None = None, follow: bool = True) -> EventFeed:
        """The cluster's events after number `after` (None = from now on), as far as the caller may see them."""
        return EventFeed(self, after, follow)

    def live(
        self,
        topics: Iterable[Topic] = (),
        jobs: Iterable[str] = (),
        after: int | None = None,
        have: Iterable[Topic] = (),
    ) -> LiveFeed:
        """These topics, and these jobs (ids), first as they are and then as they change; see schemas.LiveUpdate.

        `have`: topics that the caller has already, as of update number `after`.
        """
        return LiveFeed(self, topics, jobs, after, have)

    # ---- blobs

    def upload(self, blobs: Mapping[str, BlobSource]) -> int:
        """Upload the blobs that are not there yet, resuming parts that are. Returns the bytes sent."""
        missing = self._call(
            "POST", "/blobs/missing", answer=Missing, body=MissingRequest(hashes=list(blobs)), repeat=True
        ).missing
        return sum(self._upload_one(sha, blobs[sha]) for sha in missing)

    def blob_status(self, sha: str) -> BlobStatus:
        """How much of the blob is there; 0 bytes of one that is not known."""
        return self._call("GET", f"/blobs/{sha}", answer=BlobStatus, params={"status": True})

    def _upload_one(self, sha: str, source: BlobSource) -> int:
        size, sent = _size(source), 0
        status = self.blob_status(sha)
        stuck = 0
        while not status.complete:
            offset = status.received_bytes
            chunk = _read(source, offset, CHUNK_BYTES)
            try:
                params = {"offset": offset, "total": size}
                status = self._call(
                    "PUT", f"/blobs/{sha}", answer=BlobStatus, params=params, content=chunk, repeat=False
                )
                sent += len(chunk)
                stuck = 0
            except (ConnectionLost, Conflict) as error:
                # Lost on the way, or another upload of the same blob was quicker: ask how far it got.
                stuck += 1
                if stuck > 5:
                    raise error
                time.sleep(back_off_s(stuck))
                status = self.blob_status(sha)
        return sent

    def fetch_blob(self, sha: str, job: str | None = None) -> bytes:
        """A blob's content, checked against its hash. `job` names the job that it is a part of, for readers of that job."""
        buffer = bytearray()
        self._fetch(sha, job, buffer.extend, lambda: len(buffer))
        if hashlib.sha256(buffer).hexdigest() != sha:
            raise Unavailable(f"blob {sha[:12]} came damaged", hint="Fetch it again.")
        return bytes(buffer)

    def fetch_blob_to(self, sha: str, path: str | os.PathLike[str], job: str | None = None) -> None:
        """As fetch_blob, into a file, for what should not stand in memory. The file appears only when it is whole."""
        partial = f"{os.fspath(path)}.part-{os.getpid()}"
        digest = hashlib.sha256()
        try:
            with open(partial, "wb") as file:

                def take(chunk: bytes) -> None:
                    file.write(chunk)
                    digest.update(chunk)

                self._fetch(sha, job, take, file.tell)
            if digest.hexdigest() != sha:
                raise Unavailable(f"blob {sha[:12]} came damaged", hint="Fetch it again.")
            os.replace(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)

    def _fetch(
        self, sha: str, job: str | None, take: Callable[[bytes], object], received: Callable[[], int]
    ) -> None:
        """Stream a blob into `take`, going on where it was cut off."""

        def attempt(transport: Transport) -> None:
            headers = {"range": f"bytes={received()}-"} if received() else None
            with transport.stream(f"/blobs/{sha}", {"job": job}, headers) as body:
                for chunk in body.chunks():
                    take(chunk)

        self._persist(attempt, True, RETRY_S)


def _checked(cls: type[T], **fields: Any) -> T:
    try:
        return msgspec.convert(fields, cls)
    except msgspec.ValidationError as error:
        field = next(iter(fields))
        raise InvalidRequest(field, f"{fields[field]!r} is not possible here: {error}") from None


def _segment(value: str | int) -> str:
    """One path segment. Raises InvalidRequest for what cannot name anything."""
    from urllib.parse import quote

    text = str(value).strip()
    if not text or text in (".", ".."):
        raise InvalidRequest("id", f"{value!r} names nothing")
    return quote(text, safe="")


def _size(source: BlobSource) -> int:
    if isinstance(source, (bytes, bytearray)):
        return len(source)
    if isinstance(source, memoryview):
        return source.nbytes
    return os.stat(source).st_size


def _read(source: BlobSource, offset: int = 0, limit: int | None = None) -> bytes | memoryview:
    """Bytes of the source from `offset` on, at most `limit`."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source)
        flat = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        return flat[offset:] if limit is None else flat[offset : offset + limit]
    with open(source, "rb") as file:
        file.seek(offset)
        return file.read(-1 if limit is None else limit)
