"""How a job ended, for Python: its result, or the exception that says why there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from gpucluster.api.errors import Forbidden, GpuclusterError, NotFound, Unavailable
from gpucluster.api.schemas import JobView, ResultManifest, ResultView, TaskView
from gpucluster.worker.results import NEVER_ASSIGNED

from . import describe
from .errors import TAIL_LINES, Damaged, JobCancelled, JobError, JobFailed, JobLost
from .replay import RemoteError, Replay, TextSink
from .seams import seam

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

    from .binding import Bound

_RESULT_PAUSES_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def fetch_blobs(client: ApiClient, job_id: str, manifest: ResultManifest) -> dict[str, bytes]:
    """All blobs of a result by SHA-256."""
    wanted = [manifest.pickle, *manifest.buffers] if manifest.pickle else [*manifest.buffers]
    return {sha: client.fetch_blob(sha, job=job_id) for sha in dict.fromkeys(wanted) if sha}


def result_of(client: ApiClient, job_id: str, rank: int = 0) -> ResultView | None:
    """The result of one rank of a job that has ended; None when it left none.

    News of the end may be quicker than the row that holds the result: then it is asked for again.
    """
    for pause_s in _RESULT_PAUSES_S:
        try:
            view = client.result(job_id, rank)
        except NotFound:
            return None
        if view.state in describe.ENDED:
            return view
        time.sleep(pause_s)
    raise Unavailable(
        "the job has ended and its result is not stored yet",
        hint="job.bind() fetches it later, and so does %attach.",
    )


def bind(
    manifest: ResultManifest,
    blobs: Mapping[str, bytes],
    namespace: MutableMapping[str, Any],
    names: Collection[str] | None = None,
) -> Bound:
    """Bind a result's names; functions that come back live in the notebook, in a script in its main module.

    Raises Damaged when the result as a whole cannot be made here.
    """
    from IPython.core.getipython import get_ipython

    from gpucluster.worker import pickling

    from . import binding

    home = None if get_ipython() is not None else vars(sys.modules["__main__"])
    try:
        return binding.bind_results(manifest, blobs.__getitem__, namespace, names, home=home)
    except pickling.CannotLoad as error:
        raise Damaged(f"the result of the job cannot be made here: {error}") from error


def worth_telling(missing: Mapping[str, str], asked_for: Collection[str]) -> dict[str, str]:
    """Without names that the cell only might have assigned, and did not: a local cell would say nothing either."""
    return {name: reason for name, reason in missing.items() if reason != NEVER_ASSIGNED or name in asked_for}


def log_text(
    client: ApiClient, job_id: str, number: int, rank: int = 0, tail_lines: int | None = None
) -> str:
    """The log of one rank as text, all attempts or the last lines of it."""
    sink = TextSink()
    _read_log(client, job_id, number, rank, sink)
    text = sink.value
    if tail_lines is None:
        return text
    return "\n".join(text.splitlines()[-tail_lines:])


def _read_log(client: ApiClient, job_id: str, number: int, rank: int, sink: TextSink) -> RemoteError | None:
    """Replay what is there of a log into `sink`; returns the error that the last attempt ended with."""
    replay = Replay(sink, prefix="", where=f"%logs {number}")
    with client.log(job_id, rank) as follower:
        for item in follower:
            if item.type in ("record", "gone"):
                replay.record(item)
            elif item.type == "attempt" and (text := seam(client, job_id, item)):
                replay.seam(text)
    replay.finish()
    return replay.error


def failure(
    client: ApiClient, job: JobView, error: RemoteError | None = None, *, with_tail: bool = True
) -> JobError:
    """The exception for a job that ended otherwise than well. `error`: that of rank 0, when it is known already.

    The rank that failed first explains a gang's failure; so unless rank 0 is that one, its log is read.
    """
    task = failed_task(job)
    rank = task.rank if task else 0
    tail = ""
    if rank != 0:
        error = None
    if with_tail or (error is None and rank != 0):
        tail, found = _last_words(client, job, rank)
        error = error or found
    facts: dict[str, Any] = {
        "job_id": job.id,
        "number": job.number,
        "attempt": job.attempt.number if job.attempt else None,
        "node": (task.node if task else _first_node(job)),
        "rank": rank,
        "tasks": job.tasks,
        "tail": tail if with_tail or (rank != 0 and error is None) else "",
    }
    if job.state == "cancelled":
        return JobCancelled(f"job {job.number} was cancelled{_because(job)}", **facts)
    lost = job.attempt is not None and job.attempt.outcome == "lost"
    cls = JobLost if lost else JobFailed
    if error is None:
        return cls(f"job {job.number} failed{_because(job)}", **facts)
    return cls(
        f"{error.ename}: {error.evalue}" if error.evalue else error.ename,
        ename=error.ename,
        evalue=error.evalue,
        traceback=error.traceback,
        **facts,
    )


def _because(job: JobView) -> str:
    reason = describe.reason(job)
    return f": {reason}" if reason else ""


def failed_task(job: JobView) -> TaskView | None:
    """The task whose end explains that of the job: one that was lost, else the first to fail by itself.

    Tasks that had been told to stop by then ended because of that one, whatever they ended with.
    """

    def how_early(task: TaskView) -> tuple[bool, bool, float, int]:
        ended = float("inf") if task.ended_us is None else task.ended_us
        return task.state != "lost", task.stop_cause is not None, ended, task.rank

    tasks = job.attempt.tasks if job.attempt else ()
    return min((task for task in tasks if task.state in ("failed", "lost")), key=how_early, default=None)


def _first_node(job: JobView) -> str | None:
    return job.attempt.tasks[0].node if job.attempt and job.attempt.tasks else None


def _last_words(client: ApiClient, job: JobView, rank: int) -> tuple[str, RemoteError | None]:
    """The end of a rank's log and its error. A log that cannot be read must not hide why the job failed."""
    sink = TextSink()
    try:
        error = _read_log(client, job.id, job.number, rank, sink)
    except Forbidden:
        return "", None
    except GpuclusterError as trouble:
        return f"(the log could not be read: {trouble.reason})", None
    return "\n".join(sink.value.splitlines()[-TAIL_LINES:]), error
