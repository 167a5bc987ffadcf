"""Functions as jobs, from a notebook or a script: `submit(fn, *args, gpus=2)`, and an `Executor` like those of
`concurrent.futures` for code that knows nothing of jobs.

    job = submit(train, X, y, kwargs={"epochs": 30}, gpus=2, queue="vision", time="2h")
    job.result()

Options are those of `%submit`, as keywords with underscores (`gpu_type="A100"`, `env={"MODE": "fast"}`), in the units that
people write. The function's own keywords go in `kwargs`, so that the two can never be mistaken for each other.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.api.errors import InvalidRequest, TooLarge
from gpucluster.api.options import Option, options_for, submission_fields
from gpucluster.api.schemas import InputManifest, JobSubmission

from . import connection, describe
from .errors import as_keyword
from .job import Job
from .submission import Budget, surroundings

#: What a worker finds the parts of a call under (worker/main.py); no name of a variable can be one of these.
FUNCTION, ARGUMENTS, KEYWORDS = "<function>", "<args>", "<kwargs>"

#: Options of the magic that say what to do with names and outputs; a function has neither.
_NOT_FOR_FUNCTIONS = frozenset({"in", "out", "wait", "no-wait", "as", "dry-run"})
_OPTIONS: dict[str, Option] = {
    option.name.replace("-", "_"): option
    for option in options_for("magic")
    if option.name not in _NOT_FOR_FUNCTIONS
}


def submit(
    function: Callable[..., Any],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    include: str | Iterable[str] = (),
    address: str | None = None,
    **options: Any,
) -> Job:
    """Call `function(*args, **kwargs)` as a job; returns at once. `job.result()` waits for the value.

    `include` is what --in is for a cell: names of the notebook to send besides those that the function uses, and names
    (of arguments, too) to send although they look like a credential.

    `options`: those of %submit as keywords: gpus=2, queue="vision", time="2h", memory="8G", tasks=4, env={"K": "V"},
    after=[job], retries=1, … Raises InvalidRequest (NotSupported) for an option or a value that cannot be, also when
    something of the call cannot travel; Unavailable when no scheduler can be reached or started.
    """
    try:
        values = _option_values(options)
        submission, blobs = _prepare(function, args, dict(kwargs or {}), values, _names(include))
        return Job.from_view(connection.client(address).submit(submission, blobs), address)
    except InvalidRequest as error:
        raise as_keyword(error) from None


def _names(include: str | Iterable[str]) -> list[str]:
    return include.replace(",", " ").split() if isinstance(include, str) else list(include)


def _prepare(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: dict[str, Any],
    include: list[str],
) -> tuple[JobSubmission, dict[str, Any]]:
    from .capture.calls import refuse_credentials_in_call

    fields = submission_fields(values)
    user_ns = vars(sys.modules["__main__"])
    refuse_credentials_in_call(function, args, kwargs, user_ns, include)
    shown = call_text(function, args, kwargs)
    fields.setdefault("name", getattr(function, "__name__", None) or type(function).__name__)
    named = {name: user_ns[name] for name in include if name in user_ns}
    manifest, blobs = _packed(
        {FUNCTION: function, ARGUMENTS: args, KEYWORDS: kwargs, **named}, user_ns, include
    )
    submission = JobSubmission(
        kind="function",
        source=shown,
        idempotency_key=uuid.uuid4().hex,
        inputs=manifest,
        **fields,
        **surroundings(values, user_ns, _shell()),
    )
    return submission, blobs


def _packed(
    parts: dict[str, Any], user_ns: dict[str, Any], include: list[str]
) -> tuple[InputManifest, dict[str, Any]]:
    """The call as blobs by SHA-256. Raises InvalidRequest naming the part that must not or cannot travel, TooLarge."""
    from gpucluster.worker import pickling

    from .capture.calls import refuse_credentials

    limit = Budget().input_bytes
    try:
        pickled = pickling.dump(parts, ns=user_ns, limit_bytes=limit)
    except pickling.OverLimit:
        raise TooLarge(
            f"the function and its arguments take more than {describe.size(limit)}",
            hint="Write large data to a file that the job can read, and send its path.",
        ) from None
    if pickled.failed:
        raise _cannot_travel(*next(iter(pickled.failed.items())))
    refuse_credentials(((name, user_ns[name]) for name in pickled.used_globals), include)
    blobs: dict[str, Any] = {}
    hashes = []
    contents: list[bytes | memoryview] = [pickled.pickle, *pickled.buffers]
    for content in contents:
        sha = hashlib.sha256(content).hexdigest()
        blobs[sha] = content
        hashes.append(sha)
    manifest = InputManifest(pickle=hashes[0], buffers=tuple(hashes[1:]), total_bytes=pickled.total_bytes)
    return manifest, blobs


def _cannot_travel(part: str, reason: str) -> InvalidRequest:
    """`reason` may begin with the path of what it is about: "<args>[0]['model']: …"."""
    path, _, rest = reason.partition(": ")
    if path.startswith(part):
        return InvalidRequest(path.replace(part, part.strip("<>"), 1), rest)
    return InvalidRequest(part.strip("<>"), reason)


def _option_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword options as parsed option values by key. A text is read as on the line of %submit."""
    values: dict[str, Any] = {}
    for keyword, given in options.items():
        option = _OPTIONS.get(keyword)
        if option is None:
            raise InvalidRequest(
                keyword,
                "is no option of submit",
                f"A keyword of the function goes in kwargs={{{keyword!r}: …}}; options are {', '.join(_possible())}.",
            )
        if given is not None:
            values[option.key] = _option_value(option, given)
    return values


def _possible() -> list[str]:
    return [keyword for keyword, option in _OPTIONS.items() if not option.not_yet]


def _option_value(option: Option, given: Any) -> Any:
    if option.flag:
        return option.value if given else None
    if option.name == "env":
        pairs = given.items() if isinstance(given, Mapping) else ((key, None) for key in _several(given))
        return [option.parsed(key if value is None else f"{key}={value}") for key, value in pairs]
    if option.name == "after":
        return [[each.id if isinstance(each, Job) else str(each) for each in _several(given)]]
    if option.name == "gpu-type":
        return option.parsed(",".join(_several(given)))
    text = str(given)
    return [option.parsed(text)] if option.repeat else option.parsed(text)


def _several(given: Any) -> list[Any]:
    return [given] if isinstance(given, (str, int, Job)) else list(given)


def call_text(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The call as one would write it, shortened: what people see as the job's code. No credential stands in it."""
    from .capture.calls import arguments_by_name
    from .capture.credentials import credential_in

    named = arguments_by_name(function, args, kwargs).items()
    secret = {id(value) for name, value in named if credential_in(name, value)}

    def shown(value: Any) -> str:
        return "…" if id(value) in secret else _short(value)

    name = getattr(function, "__qualname__", None) or type(function).__name__
    parts = [shown(value) for value in args] + [f"{key}={shown(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, (int, float, bool, str, bytes, type(None))):
        text = repr(value)
        return text if len(text) <= 40 else text[:39] + "…"
    return f"<{type(value).__name__}>"


def _shell() -> Any:
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


class Executor(concurrent.futures.Executor):
    """`with Executor(gpus=1, queue="batch") as pool: list(pool.map(train, rates))`: each call is a job.

    A `concurrent.futures.Executor`: `submit` and `map` give what theirs give. Each future has its `.job`. Cancelling a
    future cancels its job. Options and `include` are those of `submit()`.
    """

    def __init__(
        self, *, include: str | Iterable[str] = (), address: str | None = None, **options: Any
    ) -> None:
        try:
            _option_values(options)  # a bad one is said now, not at the first call
        except InvalidRequest as error:
            raise as_keyword(error) from None
        self._include = _names(include)
        self._options = options
        self._address = address
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: set[concurrent.futures.Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture:
        """Submit `fn(*args, **kwargs)`; all keywords are the function's."""
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
        job = submit(fn, *args, kwargs=kwargs, include=self._include, address=self._address, **self._options)
        future = JobFuture(job)
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(self._forget)
        future.watch()
        return future

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; `wait` for those that run, or cancel those that have not started."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
        if cancel_futures:
            for future in waiting:
                if isinstance(future, JobFuture) and future.job.state == "pending":
                    future.cancel()
        if wait:
            concurrent.futures.wait(waiting)


class JobFuture(concurrent.futures.Future[Any]):
    """The future of a call that runs as a job."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def watch(self) -> None:
        """Wait for the job in a thread and settle."""
        threading.Thread(target=self._settle, name=f"gpucluster-job-{self.job.number}", daemon=True).start()

    def cancel(self) -> bool:
        """Cancel the job, running or not; False when it has ended already."""
        from gpucluster.api.errors import Conflict

        try:
            self.job.cancel("its future was cancelled")
        except Conflict:
            return False
        return super().cancel()

    def _settle(self) -> None:
        try:
            value, error = self.job.result(), None
        except BaseException as failure:
            value, error = None, failure
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return  # cancelled meanwhile
