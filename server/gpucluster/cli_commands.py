"""What each sub-command does: ask the scheduler, show the answer, return the exit code."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from . import __version__
from .api import discovery
from .api.client import ApiClient, connect
from .api.transport import Unreached
from .cli_output import EXIT_OK, LogWriter, Output, chunk_of, exit_code, last_lines
from .cli_render import jobs, nodes, queues, status, why
from .cli_topology import topology
from .model.errors import GpuclusterError, InvalidRequest, Unavailable
from .model.jobs import JobState

STOP_TIMEOUT_S = 30.0
NOT_RUNNING = "no scheduler is running; the first submit starts one"


def looking(arguments: argparse.Namespace) -> ApiClient:
    """A client that never starts a scheduler: who only looks changes nothing."""
    try:
        return connect(arguments.address, start=False, data_dir=arguments.data)
    except Unreached as error:
        if arguments.address:
            raise
        raise Unavailable(NOT_RUNNING, hint=error.reason[:1].upper() + error.reason[1:] + ".") from None


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
    with looking(arguments) as client:
        found = client.jobs(
            states=_states(arguments.state),
            queue=arguments.queue,
            mine=not arguments.all,
            limit=arguments.number,
        )
    output.show(
        found, lambda: jobs(found.jobs, output.now_us(), output.width, more=found.next_before is not None)
    )
    return EXIT_OK


def _states(given: Iterable[str] | None) -> list[str]:
    known = [state.value for state in JobState]
    states = [word for text in given or () for word in text.split(",") if word]
    for state in states:
        if state not in known:
            raise InvalidRequest("--state", f"{state!r} is not one of {', '.join(known)}")
    return states


def run_logs(arguments: argparse.Namespace, output: Output) -> int:
    writer = LogWriter(output)
    with looking(arguments) as client:
        if arguments.tail is not None and not output.as_json:
            cursor = _write_tail(client, arguments, writer)
            if arguments.follow:
                with client.follow(arguments.job, rank=arguments.rank, cursor=cursor) as stream:
                    writer.write_all(stream)
            return EXIT_OK
        with client.log(
            arguments.job,
            rank=arguments.rank,
            attempt=arguments.attempt,
            tail=arguments.tail,
            follow=arguments.follow,
        ) as stream:
            writer.write_all(stream)
    return EXIT_OK


def _write_tail(
    client: ApiClient, arguments: argparse.Namespace, writer: LogWriter
) -> tuple[int, int] | None:
    """Write the last lines; returns where the log stood. A line may be many records, so more are asked for till it fits."""
    records = max(4 * arguments.tail, 64)
    while True:
        with client.log(
            arguments.job, rank=arguments.rank, attempt=arguments.attempt, tail=records
        ) as stream:
            items = [item for item in stream if item.type == "record"]
        chunks = [chunk for chunk in map(chunk_of, items) if chunk is not None]
        lines, enough = last_lines(chunks, arguments.tail)
        if enough or len(items) < records:
            break
        records *= 8
    for chunk in lines:
        writer.write(chunk)
    return stream.cursor


def run_cancel(arguments: argparse.Namespace, output: Output) -> int:
    """Every job is tried; the exit code is that of the first that could not be cancelled."""
    code, cancelled = EXIT_OK, []
    with looking(arguments) as client:
        for job in arguments.jobs:
            try:
                view = client.cancel(job, arguments.reason)
            except Unavailable:
                raise
            except GpuclusterError as error:
                output.error(error)
                code = code or exit_code(error)
                continue
            cancelled.append(view)
            output.line(f"job {view.number} {view.name}: {view.state}")
    if output.as_json:
        output.json(cancelled)
    return code


def run_why(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
        answer, job, history = (
            client.why(arguments.job),
            client.job(arguments.job),
            client.history(arguments.job),
        )
    output.show(answer, lambda: why(answer, job, history, output.now_us()))
    return EXIT_OK


def run_stop(arguments: argparse.Namespace, output: Output) -> int:
    with looking(arguments) as client:
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
