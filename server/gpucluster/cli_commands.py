"""What each sub-command does: ask the scheduler, show the answer, return the exit code."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from . import __version__
from .api import discovery
from .api.client import ApiClient, connect
from .api.schemas import JobView
from .api.transport import Unreached
from .cli_output import EXIT_OK, LogWriter, Output, chunk_of, exit_code, last_lines
from .cli_render import jobs, nodes, queues, status, why
from .cli_topology import topology
from .model.errors import Conflict, GpuclusterError, InvalidRequest, NotFound, Unavailable
from .model.ids import is_id
from .model.jobs import JobState

if TYPE_CHECKING:
    from .api.stored import StoredCluster

STOP_TIMEOUT_S = 30.0
NOT_RUNNING = "no scheduler is running; the first submit starts one"
FROM_STORE = "no scheduler is running; this is what its store holds"
#: A name is looked for among so many of one's own jobs, the newest.
NAMES_SEARCHED = 200

Reader: TypeAlias = "ApiClient | StoredCluster"


def looking(arguments: argparse.Namespace) -> ApiClient:
    """A client that never starts a scheduler: who only looks changes nothing."""
    try:
        return connect(arguments.address, start=False, data_dir=arguments.data)
    except Unreached:
        if arguments.address:
            raise
        raise NotRunning(NOT_RUNNING) from None


class NotRunning(Unavailable):
    """No scheduler runs for the data folder, and none was to be started."""


@contextlib.contextmanager
def reading(arguments: argparse.Namespace, output: Output) -> Iterator[Reader]:
    """Where jobs are read from: the scheduler, or without one what it left in its data folder."""
    try:
        client: Reader = looking(arguments)
    except NotRunning as error:
        client = _stored(arguments, error)
        output.aside(FROM_STORE)
    with client:
        yield client


def _stored(arguments: argparse.Namespace, error: NotRunning) -> StoredCluster:
    from .api.stored import StoredCluster  # loads what only the scheduler needs otherwise

    try:
        return StoredCluster.open(arguments.data)
    except NotFound:
        raise error from None


def job_reference(client: Reader, text: str) -> str:
    """The number or long id in what was typed ("12", "#12"). Raises NotFound for a name, with the numbers it stands for.

    Names are no addresses: several jobs may share one, and `cancel` must not hit the wrong one.
    """
    reference = text.removeprefix("#")
    if reference.isdecimal() or is_id(reference):
        return reference
    found = client.jobs(mine=True, limit=NAMES_SEARCHED).jobs
    numbers = [str(job.number) for job in found if job.name == text]
    if not numbers:
        hint = "`gpucluster jobs` lists your jobs with their numbers."
    elif len(numbers) == 1:
        hint = f"Your job called {text} is {numbers[0]}."
    else:
        more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
        hint = f"Your jobs called {text} are {', '.join(numbers[:5])}{more}."
    raise NotFound(f"jobs are named by number, and {text!r} is none", hint=hint)


def run_serve(arguments: argparse.Namespace, output: Output) -> int:
    from .api.service import serve

    return serve(arguments.config, embedded=arguments.embedded, data_dir=arguments.data)


def run_status(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        view = client.status()
    output.show(view, lambda: status(view, output.now_us(), output.glyphs))
    return EXIT_OK


def run_queues(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        views = client.queues()
        default = client.hello().default_queue
    output.show(views, lambda: queues(views, default, output.width, output.glyphs))
    return EXIT_OK


def run_nodes(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        views = client.nodes()
    output.show(views, lambda: nodes(views, output.width, output.glyphs))
    return EXIT_OK


def run_nodes_set(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        view = client.set_node(arguments.node, arguments.health, arguments.reason)
    output.show(view, lambda: nodes([view], output.width, output.glyphs))
    return EXIT_OK


def run_topology(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        view = client.topology()
    output.show(view, lambda: topology(view, output.width, output.glyphs))
    return EXIT_OK


def run_jobs(arguments: argparse.Namespace, output: Output) -> int:
    states = _states(arguments.state)
    with reading(arguments, output) as client:
        found = client.jobs(
            states=states, queue=arguments.queue, mine=not arguments.all, limit=arguments.limit
        )
        if arguments.queue and not found.jobs and isinstance(client, ApiClient):
            _require_queue(client, arguments.queue)
    more = 2 * arguments.limit if found.next_before is not None else None
    output.show(found, lambda: jobs(found.jobs, output.now_us(), output.width, more))
    return EXIT_OK


def _require_queue(client: ApiClient, queue: str) -> None:
    """Raises InvalidRequest. A queue that the cluster does not have any more may still have jobs, so it is asked last."""
    names = [view.name for view in client.queues()]
    if queue not in names:
        raise InvalidRequest(
            "--queue", f"{queue!r} is not one of {', '.join(names)}", did_you_mean(queue, names)
        )


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {close[0]}?" if close else None


def _states(given: Iterable[str] | None) -> list[str]:
    known = [state.value for state in JobState]
    states = [word for text in given or () for word in text.split(",") if word]
    for state in states:
        if state not in known:
            raise InvalidRequest("--state", f"{state!r} is not one of {', '.join(known)}")
    return states


def run_logs(arguments: argparse.Namespace, output: Output) -> int:
    with reading(arguments, output) as client, LogWriter(output, arguments.color) as writer:
        job = job_reference(client, arguments.job)
        if arguments.tail is not None and not output.as_json:
            cursor = _write_tail(client, job, arguments, writer)
            if arguments.follow and isinstance(client, ApiClient):
                with client.follow(job, rank=arguments.rank, cursor=cursor) as stream:
                    writer.write_all(stream)
            return EXIT_OK
        with client.log(
            job,
            rank=arguments.rank,
            attempt=arguments.attempt,
            tail=arguments.tail,
            follow=arguments.follow,
        ) as stream:
            writer.write_all(stream)
    return EXIT_OK


def _write_tail(
    client: Reader, job: str, arguments: argparse.Namespace, writer: LogWriter
) -> tuple[int, int] | None:
    """Write the last lines; returns where the log stood. A line may be many records, so more are asked for till it fits."""
    records = max(4 * arguments.tail, 64)
    while True:
        with client.log(job, rank=arguments.rank, attempt=arguments.attempt, tail=records) as stream:
            told = list(stream)
        items = [item for item in told if item.type == "record"]
        chunks = [chunk for chunk in map(chunk_of, items) if chunk is not None]
        lines, enough = last_lines(chunks, arguments.tail)
        if enough or len(items) < records:
            break
        records *= 8
    for item in told:
        if item.type == "gone":
            writer.gone(item)
    for chunk in lines:
        writer.write(chunk)
    return stream.cursor


def run_cancel(arguments: argparse.Namespace, output: Output) -> int:
    """Every job is tried; the exit code is that of the first that could not be cancelled. One that has ended is none."""
    code, cancelled = EXIT_OK, []
    with looking(arguments) as client:
        for text in arguments.jobs:
            try:
                cancelled.append(_cancel(client, text, arguments.reason, output))
            except Unavailable:
                raise
            except GpuclusterError as error:
                output.error(error)
                code = code or exit_code(error)
    if output.as_json:
        output.json(cancelled)
    return code


def _cancel(client: ApiClient, text: str, reason: str | None, output: Output) -> JobView:
    """Asked for again, or too late, it does no harm: the job is over, which is what was wanted."""
    reference = job_reference(client, text)
    try:
        view = client.cancel(reference, reason)
    except Conflict:
        view = client.job(reference)
        output.line(f"job {view.number} {view.name} had {view.state} already; there is nothing to cancel")
    else:
        output.line(f"job {view.number} {view.name}: {view.state}")
    return view


def run_why(arguments: argparse.Namespace, output: Output) -> int:
    with reading(arguments, output) as client:
        reference = job_reference(client, arguments.job)
        answer, job, history = client.why(reference), client.job(reference), client.history(reference)
    output.show(answer, lambda: why(answer, job, history, output.now_us()))
    return EXIT_OK


def run_stop(arguments: argparse.Namespace, output: Output) -> int:
    try:
        client = looking(arguments)
    except NotRunning:
        output.show({"stopped": False, "pid": None}, lambda: "No scheduler is running.")
        return EXIT_OK
    with client:
        view = client.status()
        client.stop()
    _wait_for_end(view.data_dir)
    output.show(
        {"stopped": True, "pid": view.pid},
        lambda: (
            f"The scheduler (pid {view.pid}) has ended. Running jobs go on; the next scheduler takes them over."
        ),
    )
    return EXIT_OK


def _wait_for_end(data_dir: str) -> None:
    """Until the scheduler of this data folder is gone from this machine. One elsewhere is gone from here at once."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while discovery.find_scheduler(data_dir) is not None:
        if time.monotonic() > deadline:
            raise Unavailable(f"the scheduler still runs {STOP_TIMEOUT_S:g} s after it was asked to stop")
        time.sleep(0.02)


def run_version(arguments: argparse.Namespace, output: Output) -> int:
    output.show({"version": __version__}, lambda: f"gpucluster {__version__}")
    return EXIT_OK
