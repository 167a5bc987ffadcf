"""`Job`: a submitted job in Python's hands. It holds an id and an address, nothing else that matters, so that it survives
the kernel, travels in a pickle, and is made again anywhere by `Job(12)`.

Usable from any thread and, by `await job`, from a running event loop, which it never blocks.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from gpucluster.api.errors import GpuclusterError, InvalidRequest
from gpucluster.api.schemas import HistoryView, JobView, Progress, ResultManifest, WhyView

from . import connection, describe, live
from .card import Card
from .errors import NotBack, Untrusted, WaitInterrupted, WaitTimeout
from .happenings import limits_of
from .outcome import bind, failure, fetch_blobs, log_text, result_of, worth_telling
from .output import ShellOutput, now_us
from .replay import NotebookSink, Replay
from .seams import seam

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient
    from gpucluster.api.feeds import Follower

#: A cursor behind every attempt: a follower that stands there gets states and no records.
_STATES_ONLY = (1 << 30, 0)


class Why(str):
    """Why a job is where it is: a sentence, with `verdict`, `code` and `facts` beside it (gpucluster.api.schemas.WhyView).
    `limits`: by what means memory and CPU limits are kept, "" before there is a place.
    """

    view: WhyView
    limits: str

    def __new__(cls, view: WhyView, limits: str = "") -> Why:
        made = super().__new__(cls, f"{view.sentence} Limits: {limits}." if limits else view.sentence)
        made.view = view
        made.limits = limits
        return made

    @property
    def verdict(self) -> str:
        return self.view.verdict

    @property
    def code(self) -> str:
        return self.view.code

    @property
    def facts(self) -> dict[str, Any]:
        return self.view.facts

    def __repr__(self) -> str:
        return str(self)


class Outputs(list[dict[str, Any]]):
    """The outputs of a job as a notebook stores them (nbformat 4). Shown in a cell, they are drawn as they were; those of
    a stranger's job without HTML and scripts (`inert`).
    """

    inert = False

    @property
    def stdout(self) -> str:
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        return self._stream("stderr")

    def _stream(self, name: str) -> str:
        return "".join(
            each["text"] for each in self if each["output_type"] == "stream" and each["name"] == name
        )

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "".join(_plain(each) for each in self)

    def show(self) -> None:
        """Draw the outputs in the running cell."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if shell is None:
            print(self.text, end="")
            return
        sink = ShellOutput(shell, None, "", inert=self.inert)
        for output in self:
            if output["output_type"] == "stream":
                sink.text(output["name"], output["text"])
            else:
                sink.display(output["data"], output["metadata"], None)
        sink.flush()

    def _ipython_display_(self) -> None:
        self.show()

    def __repr__(self) -> str:
        return self.text


def _plain(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    return f"{output['data'].get('text/plain', '')}\n"


class Job:
    """A job of the cluster: `Job(12)`, `Job("12")` or `Job("<long id>")`; `%submit` and `submit()` return one.

    Raises NotFound when there is no such job, Unavailable when the scheduler cannot be reached.
    """

    def __init__(self, job: str | int, *, address: str | None = None) -> None:
        self._address = address or connection.default_address()
        self._set(self._client().job(str(job).lstrip("#")))

    @classmethod
    def from_view(cls, view: JobView, address: str | None = None) -> Job:
        """A job that the caller has just been told about; asks nobody."""
        made = cls.__new__(cls)
        made._address = address or connection.default_address()
        made._set(view)
        return made

    def _set(self, view: JobView) -> None:
        self._id = view.id
        self._number = view.number
        self._name = view.name
        self._seen: JobView | None = view
        self._values: dict[int, tuple[ResultManifest, dict[str, Any]]] = {}
        self._trusted = False
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"id": self._id, "number": self._number, "name": self._name, "address": self._address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._address = state["address"]
        self._id, self._number, self._name = state["id"], state["number"], state["name"]
        self._seen = None
        self._values = {}
        self._trusted = False
        self._lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def _client(self) -> ApiClient:
        return connection.client(self._address)

    # ---- what it is

    @property
    def id(self) -> str:
        """The long id, unique for ever."""
        return self._id

    @property
    def number(self) -> int:
        """The short id for people; `Job(number)` finds it again."""
        return self._number

    @property
    def name(self) -> str:
        return self._name

    def view(self) -> JobView:
        """Everything about the job as it is now (gpucluster.api.schemas.JobView)."""
        seen = self._seen
        if seen is None or seen.state not in describe.ENDED:
            seen = self._seen = self._client().job(self._id)
            live.told(seen)
        return seen

    @property
    def state(self) -> str:
        """pending, starting, running, suspended, stopping, succeeded, failed or cancelled, as of now."""
        return self.view().state

    @property
    def progress(self) -> Progress | None:
        """The newest step report: `.step .total .metrics`; None before the first."""
        return self.view().progress

    def why(self) -> Why:
        """Why the job is where it is, in a sentence with numbers; and once it has a place, how its limits are kept."""
        client = self._client()
        return Why(client.why(self._id), limits_of(client, self.view()))

    def history(self) -> list[HistoryView]:
        """Every change of state with its cause, time and actor."""
        return self._client().history(self._id)

    # ---- what one does with it

    def cancel(self, reason: str | None = None) -> Job:
        """Ask for its end; a job that is ending already is left at that. Raises Conflict when it has ended."""
        self._seen = self._client().cancel(self._id, reason)
        return self

    def share(self, who: str) -> Job:
        """Who may read code, logs and outputs: owner, queue or everyone."""
        self._seen = self._client().share(self._id, who)
        return self

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in describe.ENDED

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, at most `timeout` seconds; whether it has ended. Raises nothing for a job that failed, and
        WaitInterrupted, a KeyboardInterrupt, for ■.
        """
        if self._seen is not None and self._seen.state in describe.ENDED:
            return True
        from .interrupt import Interrupted, Keyboard

        follower = self._client().follow(self._id, cursor=_STATES_ONLY)
        try:
            with Keyboard() as keyboard:
                keyboard.wait_for(keyboard.start(lambda: self._until_ended(follower)), timeout)
        except queue.Empty:
            return False
        except Interrupted:
            raise WaitInterrupted(self._number) from None
        finally:
            follower.close()
        return True

    def _until_ended(self, follower: Follower) -> JobView:
        """Read states until the last one. Blocks; closing the follower ends it early."""
        for item in follower:
            if item.job is not None:
                self._seen = item.job
                live.told(item.job)
        return self.view()

    def result(self, timeout: float | None = None, *, trust: bool = False) -> Any:
        """The value of the cell's last expression, or of the function, in rank 0. Waits.

        To make the result of a job that is not yours runs code of its owner here: `trust=True` allows it, for this handle
        from now on.

        Raises JobFailed (with the worker's traceback), JobLost, JobCancelled; WaitTimeout after `timeout` seconds;
        Untrusted; NotBack, a LookupError, when there is a value and it could not come back (the text says why).
        """
        self._wait_well(timeout)
        self._trusted |= trust
        return self._value(0)

    def results(self, timeout: float | None = None, *, trust: bool = False) -> list[Any]:
        """As `result`, of every rank in order."""
        view = self._wait_well(timeout)
        self._trusted |= trust
        return [self._value(rank) for rank in range(view.tasks)]

    def exception(self, timeout: float | None = None) -> GpuclusterError | None:
        """What `result` would raise for the job's end; None when it went well. Waits."""
        view = self._wait_ended(timeout)
        return None if view.state == "succeeded" else failure(self._client(), view)

    def _wait_ended(self, timeout: float | None) -> JobView:
        if not self.wait(timeout):
            raise WaitTimeout(f"job {self._number} has not ended within {timeout:g} s; it goes on")
        return self.view()

    def _wait_well(self, timeout: float | None) -> JobView:
        view = self._wait_ended(timeout)
        if view.state != "succeeded":
            raise failure(self._client(), view)
        return view

    # ---- names

    def _load(self, rank: int) -> tuple[ResultManifest, dict[str, Any]]:
        """The manifest and the values of a rank, unpickled once."""
        with self._lock:
            found = self._values.get(rank)
            if found is None:
                found = self._values[rank] = self._fetch(rank)
            return found

    def _manifest(self, client: ApiClient, rank: int) -> ResultManifest:
        """What a rank left. Raises Untrusted when it would have to be unpickled and the owner is a stranger."""
        view = result_of(client, self._id, rank)
        if view is None or view.result is None:
            return ResultManifest()
        job = self.view()
        if view.result.pickle is not None and not (job.mine or self._trusted):
            raise Untrusted(job.number, job.owner_name)
        return view.result

    def _fetch(self, rank: int) -> tuple[ResultManifest, dict[str, Any]]:
        client = self._client()
        manifest = self._manifest(client, rank)
        values: dict[str, Any] = {}
        bound = bind(manifest, fetch_blobs(client, self._id, manifest), values)
        if bound.has_value:
            values[manifest.value_key] = bound.value
        return msgspec.structs.replace(manifest, missing=bound.missing), values

    def _value(self, rank: int) -> Any:
        manifest, values = self._load(rank)
        key = manifest.value_key
        if key in manifest.missing:
            raise NotBack(f"the result of job {self._number} did not come back: {manifest.missing[key]}")
        return values.get(key)

    def __getitem__(self, name: str) -> Any:
        """The value that rank 0 left under `name`. Waits. Raises NotBack, a KeyError, when it did not come back."""
        self._wait_well(None)
        manifest, values = self._load(0)
        if name in values and name != manifest.value_key:
            return values[name]
        if name in manifest.missing:
            raise NotBack(f"{name}: {manifest.missing[name]}")
        raise NotBack(f"{name}: job {self._number} brought back {', '.join(manifest.names) or 'no names'}")

    def bind(
        self,
        names: str | Iterable[str] | None = None,
        namespace: MutableMapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        trust: bool = False,
    ) -> list[str]:
        """Bind what rank 0 left (all, or `names`) in the notebook, or in `namespace`. Waits. Returns the names bound.

        What could not come back is warned about, by name; it stays as it was.

        Raises as `result` does, and InvalidRequest for a name that the job did not bring back.
        """
        self._wait_well(timeout)
        client = self._client()
        self._trusted |= trust
        manifest = self._manifest(client, 0)
        wanted = _names(names)
        for name in wanted or ():
            if name not in manifest.names:
                reason = manifest.missing.get(
                    name, f"job {self._number} brought back {', '.join(manifest.names) or 'nothing'}"
                )
                raise InvalidRequest(name, reason)
        target = _notebook_namespace() if namespace is None else namespace
        blobs = fetch_blobs(client, self._id, manifest)
        bound = bind(manifest, blobs, target, wanted)
        for name, reason in worth_telling(bound.missing, wanted or ()).items():
            if name != manifest.value_key:
                warnings.warn(f"{name} did not come back: {reason}", RuntimeWarning, stacklevel=2)
        return list(bound.bound)

    # ---- outputs

    @property
    def outputs(self) -> Outputs:
        """What rank 0 has written and displayed so far, as notebook outputs."""
        return self.outputs_of(0)

    def outputs_of(self, rank: int) -> Outputs:
        sink = NotebookSink()
        replay = Replay(sink, prefix=self._id, where=f"%logs {self._number}", keep_last_error=False)
        with self._client().follow(self._id, rank, follow=False) as follower:
            for item in follower:
                if item.type in ("record", "gone"):
                    replay.record(item)
                elif item.type == "attempt" and (text := seam(self._client(), self._id, item)):
                    replay.seam(text)
        replay.finish()
        outputs = Outputs(sink.outputs)
        outputs.inert = not (self.view().mine or self._trusted)
        return outputs

    def logs(self, rank: int = 0, tail: int | None = None) -> str:
        """The log of one rank as text: all attempts, or the last `tail` lines."""
        return log_text(self._client(), self._id, self._number, rank, tail)

    def widget(self) -> Any:
        """An ipywidgets view: state, progress, the end of the log, a button that cancels; it keeps itself up to date."""
        from .widget import job_widget

        return job_widget(self)

    # ---- asyncio

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        """As `result`, without blocking the loop: a thread waits, the loop is told. Cancelling only stops the waiting."""
        follower = await asyncio.to_thread(lambda: self._client().follow(self._id, cursor=_STATES_ONLY))

        def wait_and_load() -> Any:
            view = self._until_ended(follower)
            if view.state not in describe.ENDED:
                return None  # closed early: nobody listens any more
            return self.result()

        try:
            return await _in_daemon_thread(wait_and_load)
        finally:
            follower.close()

    # ---- display

    def __repr__(self) -> str:
        view = self._shown()
        if view is None:
            return f"Job({self._number}, {self._name!r})"
        return describe.job_line(view, now_us())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The card, so that a Job shown in a notebook is drawn live by our renderer."""
        view = self._shown()
        if view is None:
            return {"text/plain": repr(self)}
        return Card(job=view, title=self._name, simulated=self._is_simulated()).mimebundle(now_us())

    def _ipython_display_(self) -> None:
        """The card, which stays up to date while the kernel lives, also without our renderer."""
        view = self._shown()
        card = Card(job=view, title=self._name, simulated=self._is_simulated()) if view is not None else None
        if card is None or not live.show(card, self._address):
            print(repr(self))

    def _is_simulated(self) -> bool:
        try:
            return connection.is_simulated(self._client())
        except GpuclusterError:
            return False

    def _shown(self) -> JobView | None:
        """For a repr: the present state, else the last known one. A repr never raises."""
        try:
            return self.view()
        except GpuclusterError:
            return self._seen


def _names(names: str | Iterable[str] | None) -> list[str] | None:
    if names is None:
        return None
    return names.replace(",", " ").split() if isinstance(names, str) else list(names)


def _notebook_namespace() -> MutableMapping[str, Any]:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise InvalidRequest(
            "namespace", "outside IPython bind() needs to be told where: bind(namespace=globals())"
        )
    namespace: MutableMapping[str, Any] = shell.user_ns
    return namespace


async def _in_daemon_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread that ends with the process, whatever it waits for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def run() -> None:
        try:
            value, setter = function(), future.set_result
        except BaseException as error:
            value, setter = error, future.set_exception
        try:
            loop.call_soon_threadsafe(settle, setter, value)
        except RuntimeError:
            return  # the loop was closed meanwhile

    threading.Thread(target=run, name="gpucluster-await", daemon=True).start()
    return await future


def jobs(
    *,
    mine: bool = True,
    state: str | Iterable[str] | None = None,
    limit: int = 20,
    address: str | None = None,
) -> list[Job]:
    """Jobs of the cluster, newest first."""
    states = [state] if isinstance(state, str) else list(state or ())
    listed = connection.client(address).jobs(mine=mine, states=states, limit=limit)
    return [Job.from_view(view, address) for view in listed.jobs]
