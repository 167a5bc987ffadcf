"""From a cell and its options to a job that the scheduler has acknowledged, or to nothing at all.

`prepare` finds what the cell reads and puts the submission together; nothing has left the notebook then. `send` hands it
over. An interrupt before the acknowledgement withdraws it: whatever the scheduler made of the request by then, found out
with its idempotency key, is cancelled.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpucluster.api.environment import job_environment
from gpucluster.api.errors import Conflict, GpuclusterError, Unavailable
from gpucluster.api.naming import default_name
from gpucluster.api.options import submission_fields
from gpucluster.api.schemas import INLINE_LIMIT_BYTES, JobSubmission, JobView

from . import context, describe
from .errors import Withdrawn
from .interrupt import Call, Interrupted, Keyboard

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

#: After ■ we wait this long to learn what became of the request; later it is cancelled in the background.
WITHDRAW_WAIT_S = 10.0
NOTHING_SENT = "interrupted before anything was submitted"


@dataclass(frozen=True)
class Budget:
    """Of one submission, in bytes: all inputs together, and inputs that are compared before and after the cell."""

    input_bytes: int = 4 << 30
    digest_bytes: int = 256 << 20


@dataclass
class Prepared:
    """A submission that is ready to go, its blobs by SHA-256, and what the user should know of it."""

    submission: JobSubmission
    blobs: Mapping[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    undefined: list[str] = field(default_factory=list)
    total_bytes: int = 0

    @property
    def title(self) -> str:
        """The name that the job will have."""
        submission = self.submission
        return submission.name or default_name(submission.kind, submission.source, submission.command)


def prepare_cell(
    source: str,
    values: Mapping[str, Any],
    user_ns: MutableMapping[str, Any],
    budget: Budget,
    *,
    shell: Any = None,
    first_line: int = 1,
    fills_cell: bool = False,
) -> Prepared:
    """Put the submission of a cell together. `values`: parsed options by key; `first_line`: where `source` begins in the
    notebook's cell, for the line numbers of syntax errors; `fills_cell`: that cell is this submission and nothing else.

    Raises SyntaxError for a broken cell, InvalidRequest and its kin for options or inputs that cannot go.
    """
    fields = submission_fields(values)
    from .capture import collect

    captured = collect(
        source,
        user_ns,
        include=flat(values.get("in")),
        outputs=flat(values.get("out")),
        limit_bytes=budget.input_bytes,
        digest_budget_bytes=budget.digest_bytes,
        first_line=first_line,
    )
    submission = JobSubmission(
        kind="cell",
        source=source,
        idempotency_key=uuid.uuid4().hex,
        inputs=captured.manifest,
        outputs=list(captured.outputs),
        mutable_inputs=list(captured.mutable_inputs),
        digest_budget_bytes=budget.digest_bytes,
        execution_count=context.execution_count(shell),
        fills_cell=fills_cell and bool(values.get("wait", True)),
        **fields,
        **surroundings(values, user_ns, shell),
    )
    return Prepared(
        submission=submission,
        blobs=captured.blobs,
        names=[name for name, kind in captured.names.items() if kind != "module"],
        modules=[name for name, kind in captured.names.items() if kind == "module"],
        outputs=list(captured.outputs),
        notes=list(captured.notes),
        warnings=list(captured.warnings),
        undefined=list(captured.undefined),
        total_bytes=captured.total_bytes,
    )


def surroundings(values: Mapping[str, Any], user_ns: Mapping[str, Any], shell: Any = None) -> dict[str, Any]:
    """The fields of a submission that tell where it comes from and what it runs in."""
    environment = job_environment(values.get("env") or ())
    here = context.working_directory()
    folder = _chosen_folder(values.get("cwd"), here)
    return {
        "interpreter": sys.executable or None,
        "cwd": folder,
        "sys_path": context.import_path(beside=here if folder != here else None),
        "env": environment.open,
        "secret_env": environment.secret,
        "notebook_path": context.notebook_path(user_ns),
        "cell_id": context.cell_id(shell),
        "git_commit": context.git_commit(here),
    }


def _chosen_folder(chosen: str | None, here: str | None) -> str | None:
    if chosen is None:
        return here
    return os.path.normpath(os.path.join(here or os.sep, os.path.expanduser(chosen)))


def flat(lists: list[list[str]] | None) -> list[str]:
    """The names of a repeatable option."""
    return [name for names in lists or () for name in names]


# ---- sending


def send(client: ApiClient, prepared: Prepared, keyboard: Keyboard) -> JobView:
    """Hand the job over; returns once the scheduler has acknowledged it. Raises Withdrawn after ■, Unavailable, …"""
    sending = _Sending(client, prepared)
    call = keyboard.start(sending.run)
    try:
        return keyboard.wait_for(call)
    except Interrupted:
        if call.finished:
            return call.outcome()  # it was quicker than the hand: the interrupt counts for the waiting
        raise _withdraw(sending, call, keyboard) from None


class _NothingSent(Exception):
    """Withdrawn while the inputs were still on their way."""


class _Sending:
    """One hand-over, in a thread: big inputs blob by blob, then the submission."""

    def __init__(self, client: ApiClient, prepared: Prepared) -> None:
        self._client = client
        self._prepared = prepared
        self._stopped = threading.Event()

    def run(self) -> JobView:
        blobs = self._prepared.blobs
        if self._prepared.total_bytes > INLINE_LIMIT_BYTES:
            self._client.dry_run(self._prepared.submission)  # refused before anything big has travelled
            for sha, content in blobs.items():
                self._go_on()
                self._client.upload({sha: content})
            blobs = {}
        self._go_on()
        return self._client.submit(self._prepared.submission, blobs)

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise _NothingSent

    def stop(self) -> None:
        self._stopped.set()

    def cancel_whatever_came(self, call: Call[JobView]) -> None:
        """In the call's thread, once it is known what became of the request."""
        try:
            job = call.outcome()
        except (GpuclusterError, _NothingSent):
            return
        try:
            self._client.cancel(job.id, "withdrawn by an interrupt")
        except Conflict:
            return  # it has ended already


def _withdraw(sending: _Sending, call: Call[JobView], keyboard: Keyboard) -> Withdrawn:
    """Take the submission back; returns the error that tells how that went."""
    sending.stop()
    withdrawn = threading.Event()

    def take_back(call: Call[JobView]) -> None:
        try:
            sending.cancel_whatever_came(call)
        finally:
            withdrawn.set()
            keyboard.inbox.put(withdrawn)

    call.afterwards(take_back)
    try:
        while not withdrawn.is_set():
            keyboard.handled()
            keyboard.next(WITHDRAW_WAIT_S)
    except (queue.Empty, Interrupted):
        return Withdrawn(
            "interrupted before the scheduler had acknowledged the job; it is cancelled as soon as it is known what "
            "became of the request"
        )
    return _told(call)


def _told(call: Call[JobView]) -> Withdrawn:
    try:
        job = call.outcome()
    except _NothingSent:
        return Withdrawn(NOTHING_SENT)
    except Unavailable:
        return Withdrawn(
            "interrupted, and the scheduler has not answered",
            hint="Should it have taken the job, %jobs shows it.",
        )
    except GpuclusterError:
        return Withdrawn("interrupted; the scheduler had refused the job")
    return Withdrawn(f"interrupted before the acknowledgement: job {job.number} was withdrawn")


def sending_text(prepared: Prepared) -> str | None:
    """What to say while big inputs travel; None when it takes no time."""
    if prepared.total_bytes <= INLINE_LIMIT_BYTES:
        return None
    return f"sending {describe.size(prepared.total_bytes)} of inputs: {', '.join(prepared.names)}"
