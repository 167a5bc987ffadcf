"""What a notebook's user sees when something ends otherwise than hoped for.

Every one of these is a `GpuclusterError`. In IPython each shows itself (`_render_traceback_`), in a notebook and in a
terminal: the frames of our own client tell a user nothing, the worker's traceback does.
"""

from __future__ import annotations

import contextvars
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucluster.api.errors import ERRORS_BY_CODE, GpuclusterError, InvalidRequest
from gpucluster.api.options import OPTIONS_BY_KEY

from .place import Place, raised_in

if TYPE_CHECKING:
    from IPython.core.error import UsageError

#: An error of a job ends with this many lines of its log.
TAIL_LINES = 40

_RED, _BOLD, _OFF = "\x1b[31m", "\x1b[1m", "\x1b[0m"


def one_line(error: GpuclusterError) -> str:
    """The error as one line: field, reason, hint."""
    said = " ".join(error.reason.split()).rstrip(".")
    said = f"{error.field}: {said}" if error.field else said
    return as_magics(f"{said}. {' '.join(error.hint.split())}" if error.hint else said)


#: Commands that are magics in a notebook.
_COMMAND = re.compile(r"`gpucluster ((?:jobs|queues|topology|logs|why|cancel)\b[^`]*)`")


def as_magics(text: str) -> str:
    """What a hint says of the command line, in the words of a notebook: `gpucluster jobs` is %jobs."""
    return _COMMAND.sub(r"%\1", text)


#: What is written is for a notebook, though no shell is in this process.
_for_a_notebook: contextvars.ContextVar[bool] = contextvars.ContextVar("for_a_notebook", default=False)


def as_typed_here(magic: str) -> str:
    """A magic ("%logs 12") as it is typed where we are: outside IPython a command of the shell."""
    if _for_a_notebook.get() or _shell() is not None:
        return magic
    return f"gpucluster {magic.removeprefix('%')}"


class ErrorOutput(NamedTuple):
    """What a kernel makes of an error that ends a cell."""

    ename: str
    evalue: str
    traceback: list[str]


def error_output(error: GpuclusterError) -> ErrorOutput:
    """The output that a kernel would leave for this error, also where there is none."""
    context = contextvars.copy_context()
    context.run(_for_a_notebook.set, True)
    lines: list[str] = context.run(error._render_traceback_)  # type: ignore[attr-defined]
    return ErrorOutput(type(error).__name__, context.run(str, error), lines)


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def usage_error(error: GpuclusterError) -> UsageError:
    """An error in what was typed, as IPython shows those: one line, no traceback."""
    from IPython.core.error import UsageError

    return UsageError(one_line(error))


def as_typed(error: InvalidRequest) -> InvalidRequest:
    """A refusal by the scheduler, which names options as fields, with the option as it is typed (`--queue`)."""
    if error.field not in OPTIONS_BY_KEY:
        return error
    return type(error)(f"--{error.field}", error.reason, error.hint)


_FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?:[ =](?=[A-Z0-9]))?")
_ENV_FLAG = re.compile(r"--env (\w+)=(\w+)")


def as_keyword(error: InvalidRequest) -> InvalidRequest:
    """A refusal of an option, by the keyword of `submit(fn, gpu_type=…)` instead of the flag on a magic's line."""

    def keywords(text: str) -> str:
        text = _ENV_FLAG.sub(r'env={"\1": "\2"}', text)
        return _FLAG.sub(lambda flag: f"{flag[1].replace('-', '_')}=", text)

    name = (error.field or "").removeprefix("--")
    field = name.replace("-", "_") if name in OPTIONS_BY_KEY else error.field or ""
    return type(error)(field, keywords(error.reason), error.hint and keywords(error.hint))


def rendered(error: GpuclusterError) -> list[str]:
    """The lines that IPython shows for an error that needs no traceback: what, and where if it was deep in user code."""
    first, *more = as_magics(str(error)).splitlines() or [""]
    lines = [f"{_RED}{_public_name(error)}{_OFF}: {first}", *more]
    place = raised_in(error.__traceback__, _shell())
    return lines if place is None or place.function is None else [*lines, f"in {place.function}, {place}"]


def _shell() -> Any:
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _public_name(error: GpuclusterError) -> str:
    """The name of the error's class in the hierarchy; a part's own subclass says nothing more to a user."""
    known = ERRORS_BY_CODE.get(error.code)
    return known.__name__ if known is not None else type(error).__name__


def _render_traceback(error: GpuclusterError, *_: object) -> list[str]:
    return rendered(error)


# On the base of the hierarchy, which knows nothing of notebooks: whatever of it reaches IPython, from a magic or from a
# method of Job, shows itself.
GpuclusterError._render_traceback_ = _render_traceback  # type: ignore[attr-defined]


def _remake(cls: type[NotebookError], args: tuple[Any, ...], state: dict[str, Any]) -> NotebookError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class NotebookError(GpuclusterError):
    """Base of the errors of this package. They can be pickled, whatever their constructors take."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, dict(self.__dict__))


class CellSyntaxError(NotebookError):
    """A submitted cell is no Python; found before anything was sent. `error` is Python's own, with the line of the cell.

    Not a SyntaxError itself: IPython would show our frames with one.
    """

    code = "syntax_error"

    def __init__(self, error: SyntaxError, place: Place | None) -> None:
        super().__init__(f"{type(error).__name__}: {error.msg}")
        self.error = error
        self.label = place.label if place is not None else "Cell"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _render_traceback_(self, *_: object) -> list[str]:
        *place, said = self._lines()
        name, colon, message = said.partition(":")
        return [*place, f"{_RED}{name}{_OFF}{colon}{message}"]

    def _lines(self) -> list[str]:
        """As IPython shows an error in the syntax of a cell."""
        error = self.error
        lines = [f"  {self.label}, line {error.lineno}"]
        text = (error.text or "").rstrip("\n")
        if text.strip():
            indent = len(text) - len(text.lstrip())
            lines.append(f"    {text.strip()}")
            if error.offset:
                start = max(error.offset - 1 - indent, 0)
                same_line = error.end_lineno in (None, error.lineno)
                width = (error.end_offset or 0) - error.offset if same_line else len(text.strip()) - start
                lines.append(f"    {' ' * start}{'^' * max(width, 1)}")
        return [*lines, self.reason]


class Withdrawn(NotebookError):
    """Interrupted before the scheduler had acknowledged the job: it will not run."""

    code = "withdrawn"


class Detached(NotebookError):
    """Interrupted while waiting: the job goes on without this cell."""

    code = "detached"

    def __init__(self, number: int, state: str) -> None:
        self.number = number
        self.state = state
        goes_on = "it goes on" if state not in ("succeeded", "failed", "cancelled") else f"it has {state}"
        super().__init__(
            f"Detached from job {number}; {goes_on}. %attach {number} comes back, %cancel {number} ends it."
            if goes_on == "it goes on"
            else f"Detached from job {number}; {goes_on}. %attach {number} shows its output and fetches its result."
        )


class WaitInterrupted(KeyboardInterrupt):
    """■ (Ctrl-C) while `job.wait()` or `job.result()` waited; the job goes on. A KeyboardInterrupt, so that `except
    Exception` in a loop over jobs does not swallow it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        ends = as_typed_here(f"%cancel {number}")
        super().__init__(f"no longer waiting for job {number}; it goes on. {ends} ends it.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.number,)

    def _render_traceback_(self, *_: object) -> list[str]:
        return [f"{_RED}KeyboardInterrupt{_OFF}: {self}"]


class JobError(NotebookError):
    """A job ended otherwise than well. `number`, `job_id`, `attempt`, `rank` (of `tasks`), `node`; `tail`: the
    last log lines.
    """

    code = "job_error"

    def __init__(
        self,
        reason: str,
        *,
        job_id: str,
        number: int,
        attempt: int | None = None,
        node: str | None = None,
        rank: int = 0,
        tasks: int = 1,
        tail: str = "",
    ) -> None:
        super().__init__(reason)
        self.job_id = job_id
        self.number = number
        self.attempt = attempt
        self.node = node
        self.rank = rank
        self.tasks = tasks
        self.tail = tail

    def where(self) -> str:
        """One line that says which job it was and how to see more."""
        if self.attempt is None:
            return f"in job {self.number} — {as_typed_here(f'%why {self.number}')}"
        rank = f", rank {self.rank}" if self.tasks > 1 else ""
        node = f" on {self.node}" if self.node else ""
        option = f" --rank {self.rank}" if self.rank else ""
        logs = as_typed_here(f"%logs {self.number}{option}")
        return f"in job {self.number} (attempt {self.attempt}{rank}){node} — {logs}"

    def __str__(self) -> str:
        return "\n".join([self.reason, self.where(), *self._tail_lines()])

    def _tail_lines(self) -> list[str]:
        if not self.tail:
            return []
        return [f"--- last lines of the log of job {self.number} ---", *self.tail.splitlines()]

    def _render_traceback_(self, *_: object) -> list[str]:
        return [
            f"{_RED}{type(self).__name__}{_OFF}: {self.reason}",
            f"{_BOLD}{self.where()}{_OFF}",
            *self._tail_lines(),
        ]


class JobFailed(JobError):
    """The job failed. `ename`, `evalue`, `traceback` are the worker's when the cell raised, else None and empty."""

    code = "job_failed"

    def __init__(
        self,
        reason: str,
        *,
        job_id: str,
        number: int,
        attempt: int | None = None,
        node: str | None = None,
        rank: int = 0,
        tasks: int = 1,
        tail: str = "",
        ename: str | None = None,
        evalue: str | None = None,
        traceback: list[str] | None = None,
    ) -> None:
        super().__init__(
            reason,
            job_id=job_id,
            number=number,
            attempt=attempt,
            node=node,
            rank=rank,
            tasks=tasks,
            tail=tail,
        )
        self.ename = ename
        self.evalue = evalue
        self.traceback = traceback or []

    def __str__(self) -> str:
        """Outside IPython this is all that is shown, so the worker's traceback is part of it."""
        if not self.traceback:
            return super().__str__()
        remote = _COLOURS.sub("", "\n".join(self.traceback)).splitlines()
        return "\n".join([self.reason, *remote, self.where(), *self._tail_lines()])

    def _render_traceback_(self, *_: object) -> list[str]:
        if not self.traceback:
            return super()._render_traceback_()
        return [*self.traceback, f"{_BOLD}{self.where()}{_OFF}"]


class JobLost(JobFailed):
    """The job's last attempt was lost with its node or its supervisor, and it was not to be tried again."""

    code = "job_lost"


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "job_cancelled"


class Untrusted(NotebookError):
    """A job of somebody else: making its result here would run code of theirs."""

    code = "untrusted"

    def __init__(self, number: int, owner: str) -> None:
        self.number = number
        self.owner = owner
        super().__init__(
            f"job {number} is {owner}'s: to make what it left would run code of theirs in this process",
            hint=f"If you trust {owner}: job.result(trust=True), job.bind(trust=True) or %attach {number} --trust.",
        )


class NotBack(NotebookError, KeyError):
    """A job has no such name to give, or its value could not come back; the text says why."""

    code = "not_back"


class Damaged(NotebookError):
    """A result came and cannot be unpickled here."""

    code = "damaged"


class WaitTimeout(NotebookError, TimeoutError):
    """The job has not ended within the time given; it goes on."""

    code = "timeout"
