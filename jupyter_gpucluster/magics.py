"""The magics. Thin: each reads its line, calls what does the work, and turns what goes wrong into notebook text.

The traits of `GPUClusterMagics` are a notebook's defaults: `%config GPUClusterMagics` lists them,
`%config GPUClusterMagics.queue = "vision"` sets one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Bool, Enum, Integer, TraitError, Unicode, observe, validate

from gpucluster.api.errors import Conflict, GpuclusterError, InvalidRequest
from gpucluster.api.options import OPTIONS_BY_KEY

from . import connection
from .arguments import Magic, argument, magic_arguments, parse_line, submit_arguments, words_of
from .drawing import DISPLAY_BYTES, TEXT_BYTES
from .errors import usage_error
from .job import Job
from .replay import Limits
from .run import CellRun, Settings
from .submission import Budget

#: Trait -> the option whose text it holds.
_OPTION_TRAITS = {
    "queue": "queue",
    "gpus": "gpus",
    "gpu_type": "gpu-type",
    "cpus": "cpus",
    "memory": "memory",
    "time_limit": "time",
    "share": "share",
}


#: `%share`; its method has another name, because `share` is the trait that holds the default of --share.
share_magic = cast(Callable[[Magic], Magic], line_magic("share"))


@magics_class
class GPUClusterMagics(Magics):
    """`%%submit` and its family."""

    address = Unicode(
        "",
        help="Address of the scheduler (unix:/path or http://host:port). Empty: $GPUCLUSTER_ADDRESS, the Jupyter server "
        "around this kernel, or your own scheduler, which is started when there is none.",
    ).tag(config=True)
    wait = Bool(True, help="Wait for a job and show its output (--wait); False gives the Job at once.").tag(
        config=True
    )
    interrupt = Enum(
        ["detach", "cancel"],
        default_value="detach",
        help="What ■ does while a cell waits for its job: detach (the job goes on) or cancel it.",
    ).tag(config=True)
    queue = Unicode("", help="Queue to submit to. Empty: the cluster's default.").tag(config=True)
    gpus = Unicode("", help='GPUs of one task, a number; "0" is a CPU job. Empty: 1.').tag(config=True)
    gpu_type = Unicode("", help="GPU types in order of preference, with commas. Empty: any.").tag(config=True)
    cpus = Unicode("", help="CPU cores of one task, a number. Empty: the share that goes with its GPUs.").tag(
        config=True
    )
    memory = Unicode("", help='Memory of one task, e.g. "8G". Empty: the share that goes with its GPUs.').tag(
        config=True
    )
    time_limit = Unicode("", help='Time limit of a job, e.g. "30m" or "2h". Empty: none.').tag(config=True)
    share = Unicode(
        "", help="Who may read code, logs and outputs: owner, queue, everyone. Empty: owner."
    ).tag(config=True)
    input_limit = Integer(
        4 << 30, min=0, help="Most bytes that the inputs of one job may take together."
    ).tag(config=True)
    digest_budget = Integer(
        256 << 20,
        min=0,
        help="Bytes of inputs that are compared before and after the cell, to find those it changed in place. Inputs "
        "beyond it are not watched, which is said.",
    ).tag(config=True)
    output_limit = Integer(
        TEXT_BYTES,
        min=4096,
        help="Most bytes of text that a notebook takes from one job: head and tail are shown, the log keeps all.",
    ).tag(config=True)
    display_limit = Integer(
        DISPLAY_BYTES,
        min=0,
        help="Most bytes of plots and other displays that a notebook takes from one job.",
    ).tag(config=True)

    @validate(*_OPTION_TRAITS)
    def _check_option(self, proposal: Any) -> str:
        text = str(proposal.value)
        if text:
            try:
                OPTIONS_BY_KEY[_OPTION_TRAITS[proposal.trait.name]].parsed(text)
            except GpuclusterError as error:
                raise TraitError(str(error)) from None
        return text

    @observe("address")
    def _move(self, change: Any) -> None:
        connection.use_address(change.new)

    def _defaults(self) -> dict[str, Any]:
        """Parsed option values from the traits that are set."""
        found: dict[str, Any] = {"wait": self.wait}
        for trait, name in _OPTION_TRAITS.items():
            text = getattr(self, trait)
            if text:
                option = OPTIONS_BY_KEY[name]
                found[option.key] = option.parsed(text)
        return found

    def _settings(self) -> Settings:
        return Settings(
            on_interrupt=cast(Literal["detach", "cancel"], self.interrupt),
            limits=Limits(self.output_limit, self.display_limit),
            budget=Budget(self.input_limit, self.digest_budget),
        )

    # ---- submit

    @no_var_expand
    @line_cell_magic
    @magic_arguments()
    @submit_arguments
    def submit(self, line: str, cell: str | None = None) -> Any:
        """Run a cell (%%submit) or one statement (%submit) as a job on the GPU cluster.

        Names that the code reads are sent, names that it assigns come back, its output appears here. Values of options
        may hold {expressions} of this notebook: --name "run {i}".
        """
        parser = self._parser("submit")
        asked = parse_line(parser, line, self._shell.user_ns, code_follows=cell is None)
        if asked.help:
            print(parser.format_help())
            return None
        source = asked.rest if cell is None else cell
        if not source.strip():
            missing = "Write the code below it." if cell is not None else "Write %submit [options] statement."
            raise UsageError(f"there is nothing to submit. {missing}")
        values = {**self._defaults(), **asked.values}
        run = CellRun(self._shell, self._settings())
        try:
            return self._submit(run, source, values, is_cell=cell is not None)
        except GpuclusterError as error:
            if error.field and error.field.startswith("--"):
                raise usage_error(error) from None
            raise

    def _submit(self, run: CellRun, source: str, values: Mapping[str, Any], *, is_cell: bool) -> Any:
        name = values.get("as")
        if name is not None and not str(name).isidentifier():
            raise UsageError(f"--as: {name!r} is not a Python name")
        if values.get("after"):
            values = {
                **values,
                "after": [[self._job_reference(word) for word in words] for words in values["after"]],
            }
        if values.get("dry_run"):
            return run.dry_run(source, values, is_cell=is_cell)
        return run.submit(source, values, is_cell=is_cell)

    # ---- about jobs

    @line_magic
    @magic_arguments()
    @argument("-a", "--all", action="store_true", help="jobs of everyone, as far as you may see them")
    @argument("-s", "--state", help="only these states, with commas, e.g. pending,running")
    @argument("-q", "--queue", help="only this queue")
    @argument("-n", "-l", "--limit", type=int, default=20, help="at most so many (default: 20)")
    @argument("-h", "--help", action="store_true", help="show this help")
    def jobs(self, line: str) -> Any:
        """Your jobs, newest first."""
        asked = self._arguments("jobs", line)
        if asked is None:
            return None
        from .tables import JobTable

        states = [state for state in (asked.state or "").split(",") if state]
        listed = self._client().jobs(mine=not asked.all, states=states, queue=asked.queue, limit=asked.limit)
        return JobTable(listed.jobs, self.address or None, more=listed.next_before is not None)

    @line_magic
    @magic_arguments()
    @argument("-h", "--help", action="store_true", help="show this help")
    def queues(self, line: str) -> Any:
        """The queues: what each is guaranteed, uses and borrows."""
        if self._arguments("queues", line) is None:
            return None
        from .tables import QueueTable

        return QueueTable(self._client().queues())

    @line_magic
    @magic_arguments()
    @argument("-h", "--help", action="store_true", help="show this help")
    def topology(self, line: str) -> Any:
        """Nodes and GPUs by socket and switch, and the jobs on them."""
        if self._arguments("topology", line) is None:
            return None
        from .tables import Topology

        return Topology(self._client().topology())

    @line_magic
    @magic_arguments()
    @argument(
        "job", nargs="?", help="number or id of the job, or a name that holds it (default: your latest)"
    )
    @argument("-r", "--rank", type=int, default=0, help="task of a gang (default: 0)")
    @argument("--attempt", type=int, default=None, help="only this attempt (default: all)")
    @argument("-t", "--tail", type=int, default=None, help="only the last so many records")
    @argument("-f", "--follow", action="store_true", help="go on until the job ends; ■ stops following")
    @argument("--all", action="store_true", help="show all of it, however long it is")
    @argument("-h", "--help", action="store_true", help="show this help")
    def logs(self, line: str) -> Any:
        """Show what a job has written and displayed."""
        asked = self._arguments("logs", line)
        if asked is None:
            return None
        job = self._job(asked.job, said=True)
        CellRun(self._shell, self._settings()).show_log(
            job,
            rank=asked.rank,
            attempt=asked.attempt,
            tail=asked.tail,
            follow=asked.follow,
            whole=asked.all,
        )
        return None

    @line_magic
    @magic_arguments()
    @argument("jobs", nargs="*", help="numbers or ids of jobs, or names that hold them")
    @argument("-h", "--help", action="store_true", help="show this help")
    def cancel(self, line: str) -> Any:
        """Cancel jobs."""
        asked = self._arguments("cancel", line)
        if asked is None:
            return None
        if not asked.jobs:
            raise UsageError("which job? %cancel JOB …; %jobs lists yours")
        for job in [self._job(word) for word in asked.jobs]:
            try:
                print(f"job {job.number} {job.name}: {job.cancel().state}")
            except Conflict:
                print(f"job {job.number} {job.name}: {job.state} already")
        return None

    @line_magic
    @magic_arguments()
    @argument(
        "job", nargs="?", help="number or id of the job, or a name that holds it (default: your latest)"
    )
    @argument(
        "-r", "--rank", type=int, default=0, help="task of a gang to show and to bind names of (default: 0)"
    )
    @argument("--trust", action="store_true", help="bind names and draw HTML of a job that is not yours, too")
    @argument("-h", "--help", action="store_true", help="show this help")
    def attach(self, line: str) -> Any:
        """Come back to a job: its output from the beginning, then its result, as if this cell had submitted it."""
        asked = self._arguments("attach", line)
        if asked is None:
            return None
        job = self._job(asked.job)
        try:
            return CellRun(self._shell, self._settings()).attach(job, rank=asked.rank, trust=asked.trust)
        except InvalidRequest as error:
            if error.field == "--rank":
                raise usage_error(error) from None
            raise

    @line_magic
    @magic_arguments()
    @argument(
        "job", nargs="?", help="number or id of the job, or a name that holds it (default: your latest)"
    )
    @argument("-h", "--help", action="store_true", help="show this help")
    def why(self, line: str) -> Any:
        """Why a job waits, or where it stands."""
        asked = self._arguments("why", line)
        return None if asked is None else self._job(asked.job, said=True).why()

    @share_magic
    @magic_arguments("share")
    @argument("job", nargs="?", help="number or id of the job, or a name that holds it")
    @argument("who", nargs="?", help="owner, queue or everyone")
    @argument("-h", "--help", action="store_true", help="show this help")
    def share_job(self, line: str) -> Any:
        """Say who may read a job's code, logs and outputs."""
        asked = self._arguments("share_job", line)
        if asked is None:
            return None
        if asked.job is None:
            raise UsageError("which job? %share JOB WHO; %jobs lists yours")
        job = self._job(asked.job)
        choices = OPTIONS_BY_KEY["share"].choices
        if asked.who not in choices:
            raise UsageError(f"%share JOB WHO: WHO is one of {', '.join(choices)}")
        job.share(asked.who)
        print(f"job {job.number} {job.name}: shared with {asked.who}")
        return None

    # ---- common

    @property
    def _shell(self) -> InteractiveShell:
        assert self.shell is not None
        return self.shell

    def _parser(self, magic: str) -> Any:
        return getattr(type(self), magic).parser

    def _arguments(self, magic: str, line: str) -> Any:
        """The parsed line; None when it asked for help, which is printed then."""
        parser = self._parser(magic)
        parser.allow_abbrev = False
        asked = parser.parse_args(words_of(line))
        if asked.help:
            print(parser.format_help())
            return None
        return asked

    def _client(self) -> Any:
        return connection.client(self.address or None)

    def _job_reference(self, word: str) -> str:
        """A job's id for a name that holds the job; any other word as it is."""
        held = self._shell.user_ns.get(word) if word.isidentifier() else None
        return held.id if isinstance(held, Job) else word.lstrip("#")

    def _job(self, word: str | None, *, said: bool = False) -> Job:
        """The job that a word on the line means; without one the user's latest, which is named where nothing else does
        (`said`). Raises UsageError, NotFound.
        """
        if word is None:
            return self._latest_job(said)
        held = self._shell.user_ns.get(word) if word.isidentifier() else None
        if isinstance(held, Job):
            return held
        return Job(word, address=self.address or None)

    def _latest_job(self, said: bool) -> Job:
        mine = self._client().jobs(mine=True, limit=1).jobs
        if not mine:
            raise UsageError("you have no job yet; %jobs --all lists those of others")
        job = Job.from_view(mine[0], self.address or None)
        if said:
            print(f"job {job.number} {job.name}:")
        return job
