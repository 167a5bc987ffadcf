"""The card: the first output of a submitted cell, which says how its job stands (DESIGN 4, *One owner of a cell's output*).

Three renderings of one state: `application/vnd.gpucluster.job+json` for our MIME renderer, which goes on drawing it live
by itself, `text/html` and `text/plain` for everything else, which show the last known state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpucluster.api.schemas import JobView

from . import describe
from .describe import Pace
from .drawing import CellDrawing
from .templates import render
from .track import Sparkline

MIME = "application/vnd.gpucluster.job+json"
#: Version of the JSON below; a renderer of another version falls back to html.
SCHEMA_VERSION = 1
#: So many nodes of a gang are named in the JSON.
NODES_NAMED = 4


def _place(job: JobView) -> dict[str, Any] | None:
    """Where the present attempt runs: how many nodes, the first of them by name, and the GPUs of a job on one node."""
    names = describe.nodes(job)
    if job.attempt is None or not names:
        return None
    indices = sorted(index for task in job.attempt.tasks for index in task.gpu_indices)
    return {
        "nodes": len(names),
        "names": names[:NODES_NAMED],
        "gpu_indices": indices if len(names) == 1 else [],
    }


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What went with a job: names that were sent, outputs that the user asked for by name, and whether he asked for an amount
    of memory or CPU cores.
    """

    names: list[str] = []
    asked_back: list[str] = []
    asks_limits: bool = False


@dataclass
class Card:
    """What a card shows. `notes` stay from the submission, `summary` comes at the end (names in, out and changed),
    `limits` says how they are kept when an amount was asked for.

    `hints` say what else can be done with the job ("%attach 12 comes back").
    `warnings` are printed below the card by whoever waits. They, `sent` and `drawing` stand in the JSON for a page that
    draws the cell anew.
    """

    job: JobView | None = None
    title: str = ""
    sending: str | None = None
    simulated: bool = False
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    summary: str = ""
    limits: str = ""
    contact: str | None = None
    sent: Sent = field(default_factory=Sent)
    drawing: CellDrawing = field(default_factory=CellDrawing)
    pace: Pace = field(default_factory=Pace)

    def update(self, job: JobView) -> None:
        """Take a newer view of the job in. An older one (a reconnect replays) changes nothing."""
        if self.job is not None and job.id == self.job.id and job.seq < self.job.seq:
            return
        if self.job is not None and self.job.attempts_made != job.attempts_made:
            self.pace = Pace()
        self.sending = None
        self.job = job
        self.pace.add(job.progress)

    def mimebundle(self, now_us: int) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.text(now_us), "text/html": self.html(now_us)}
        if self.job is not None:
            bundle[MIME] = self.json()
        return bundle

    def text(self, now_us: int) -> str:
        if self.job is None:
            return describe.joined([f"{describe.ICONS['sending']} {self.title}", self.sending or ""])
        line = describe.job_line(self.job, now_us, self.pace)
        lines = [describe.joined([line, describe.first_feedback(self.job)])]
        if self.summary:
            lines.append(f"  {self.summary}")
        if self.limits:
            lines.append(f"  limits: {self.limits}")
        if self.contact:
            lines.append(f"  {self.contact}")
        lines.extend(f"  {hint}" for hint in self.hints)
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """What a renderer needs to find the job, and to show it as it was where the cluster does not know it (any more); no
        address, no code, no output.
        """
        job = self.job
        assert job is not None
        return {
            "version": SCHEMA_VERSION,
            "job_id": job.id,
            "number": job.number,
            "name": job.name,
            "state": job.state,
            "queue": job.queue,
            "gpus": job.gpus,
            "tasks": job.tasks,
            "owner": job.owner_name,
            "simulated": self.simulated,
            "submitted_us": job.submitted_us,
            "started_us": job.started_us,
            "ended_us": job.ended_us,
            "first_feedback_us": job.first_feedback_us,
            "attempts_made": job.attempts_made,
            "reason": job.reason,
            "waits": job.waits,
            "position": job.position,
            "place": _place(job),
            "progress": msgspec.to_builtins(job.progress),
            "seq": job.seq,
            "summary": self.summary,
            "limits": self.limits,
            "hints": list(self.hints),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "sent": msgspec.to_builtins(self.sent),
            "drawing": msgspec.to_builtins(self.drawing),
        }

    def html(self, now_us: int, *, sparklines: Sequence[Sparkline] = (), with_style: bool = True) -> str:
        """`with_style`: False where the styles of `style.css` are there already."""
        job = self.job
        state = job.state if job is not None else "sending"
        return render(
            "card.html.j2",
            state=state,
            icon=describe.ICONS.get(state, "·"),
            title=f"job {job.number}" if job is not None else "",
            name=job.name if job is not None else self.title,
            facts=self._facts(job, now_us),
            sentence=self._sentence(job),
            percent=describe.percent(job.progress) if job is not None else None,
            progress=self._progress(job, now_us, {line.name for line in sparklines}),
            sparklines=sparklines,
            with_style=with_style,
            summary=self.summary,
            limits=self.limits,
            hints=self.hints,
            notes=self.notes,
            contact=self.contact,
        )

    def _facts(self, job: JobView | None, now_us: int) -> list[str]:
        if job is None:
            return []
        took = describe.runtime_s(job, now_us)
        facts: Iterable[str] = (
            job.state if took is None or job.state not in describe.ENDED else f"{job.state} after {describe.duration(took)}",
            f"queue {job.queue}",
            describe.gpus(job.gpus) + (" (simulated)" if self.simulated and job.gpus else ""),
            f"{job.tasks} tasks" if job.tasks > 1 else "",
            describe.where(job) if job.state != "pending" else "",  # not where it ran before
            f"attempt {job.attempts_made}" if job.attempts_made > 1 else "",
        )  # fmt: skip
        return [fact for fact in facts if fact]

    def _sentence(self, job: JobView | None) -> str:
        if job is None:
            return self.sending or ""
        if job.state == "pending":
            return describe.waiting(job)
        return describe.reason(job)

    def _progress(self, job: JobView | None, now_us: int, drawn: Collection[str] = ()) -> str:
        """`drawn`: metrics that are shown as pictures, with their values."""
        if job is None:
            return ""
        if job.progress is None:
            return describe.elapsed(job, now_us)
        pace = describe.pace_text(self.pace) if job.state == "running" else ""
        return describe.joined(
            [
                describe.steps(job.progress),
                *describe.metrics(job.progress, without=drawn),
                pace,
                describe.first_feedback(job),
            ]
        )
