"""`gpucluster …`: the command line. Parsing and exit codes here; what a command does is in cli_commands.py.

Exit codes: 0 done; 1 a job failed, or something else went wrong; 2 wrong use; 3 no scheduler; 4 not found; 5 not
allowed; 130 interrupted. `submit --follow` exits with the exit code of the job.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .cli_colors import CHOICES
from .cli_commands import (
    did_you_mean,
    run_cancel,
    run_jobs,
    run_logs,
    run_nodes,
    run_nodes_set,
    run_queues,
    run_serve,
    run_status,
    run_stop,
    run_topology,
    run_version,
    run_why,
)
from .cli_demo import run_demo
from .cli_output import EXIT_BROKEN_PIPE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Output, exit_code
from .cli_submit import add_options, run_submit
from .model.errors import GpuclusterError

Run = Callable[[argparse.Namespace, Output], int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
#: Set to anything: an error of ours that nobody foresaw shows its traceback.
ENV_DEBUG = "GPUCLUSTER_DEBUG"
#: Fields of a request whose option has another name, and arguments that are none.
_OPTION_OF_FIELD = {"secret_env": "env", "time_limit_s": "time", "grace_s": "grace", "gpu_types": "gpu-type"}
_POSITIONAL = frozenset({"command", "job", "jobs", "node", "health"})

NUMBER = "its number, as in `gpucluster jobs`"
DESCRIPTION = "Jobs on a shared GPU cluster, from the command line. Notebooks use %%submit for the same."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Errors end as text on standard error, never as a traceback."""
    parser = build_parser()
    unknown = _unknown_command(parser, sys.argv[1:] if argv is None else argv)
    if unknown is not None:
        Output().error(unknown)
        return EXIT_USAGE
    arguments = parser.parse_args(argv)
    output = Output(as_json=arguments.json)
    try:
        code: int = arguments.run(arguments, output)
        sys.stdout.flush()
        return code
    except GpuclusterError as error:
        output.error(as_typed(error, arguments))
        return exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone (`gpucluster jobs | head`); what Python still wants to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if os.environ.get(ENV_DEBUG):
            traceback.print_exc()
        reason = f"this is a bug of gpucluster: {type(error).__name__}: {error}"
        output.error(GpuclusterError(reason, hint=f"With {ENV_DEBUG}=1 it shows where."))
        return EXIT_FAILED


def as_typed(error: GpuclusterError, arguments: argparse.Namespace) -> GpuclusterError:
    """The scheduler names a field as it is called there; who typed an option knows it as that."""
    field = _OPTION_OF_FIELD.get(error.field or "", error.field or "")
    destination = field.replace("-", "_")
    if f"option_{destination}" in arguments or (destination in arguments and field not in _POSITIONAL):
        error.field = f"--{field}"
    return error


def _unknown_command(parser: argparse.ArgumentParser, argv: Sequence[str]) -> GpuclusterError | None:
    """Told in fewer words than argparse has for it."""
    known = parser.get_default("commands")
    if not argv or argv[0].startswith("-") or argv[0] in known:
        return None
    hint = did_you_mean(argv[0], known) or "gpucluster --help lists the commands."
    return GpuclusterError(f"there is no command {argv[0]!r}", hint=hint)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpucluster",
        description=DESCRIPTION,
        epilog="gpucluster COMMAND --help tells more about a command, with an example.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_cluster_commands(commands)
    _add_job_commands(commands)
    demo = _command(
        commands, "demo", run_demo, "run the example notebook on this cluster", "gpucluster demo --to my-demo"
    )
    demo.add_argument(
        "--to",
        default="gpucluster-demo",
        metavar="DIR",
        help="folder for the notebooks (default: %(default)s)",
    )
    _command(commands, "version", run_version, "show the version", "gpucluster version")
    parser.set_defaults(commands=tuple(commands.choices))
    return parser


def _command(
    commands: Commands, name: str, run: Run, text: str, example: str, also: str = "", nested: bool = False
) -> argparse.ArgumentParser:
    """A sub-command with what all of them have: --json, --address, --data, and an example in its help."""
    description = f"{text[0].upper()}{text[1:]}.{f' {also}' if also else ''}"
    parser = commands.add_parser(
        name,
        help=text,
        description=textwrap.fill(description, shutil.get_terminal_size().columns - 2),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # A nested command's own defaults would undo what stands before its name.
    unset: dict[str, Any] = {"default": argparse.SUPPRESS} if nested else {}
    parser.add_argument("--json", action="store_true", help="print JSON instead of text", **unset)
    where = "data folder of the scheduler (default: $GPUCLUSTER_DATA, or yours)"
    parser.add_argument("--data", metavar="DIR", help=where, **unset)
    if run is not run_serve:
        parser.add_argument(
            "--address", metavar="ADDR", help="address of it, e.g. unix:/run/gpucluster.sock", **unset
        )
    parser.set_defaults(run=run)
    return parser


def _add_cluster_commands(commands: Commands) -> None:
    serve = _command(
        commands, "serve", run_serve, "run the scheduler in the foreground", "gpucluster serve --config cluster.yaml",
        also="It ends with `gpucluster stop`, SIGTERM or Ctrl-C; running jobs go on and the next one takes them over.",
    )  # fmt: skip
    serve.add_argument(
        "--config",
        metavar="FILE",
        help="cluster.yaml (default: $GPUCLUSTER_CONFIG, what the data folder was served with last, or the built-in one; "
        "'built-in' asks for that)",
    )
    serve.add_argument(
        "--embedded", action="store_true", help="stop after an idle time; how notebooks start it"
    )
    _command(
        commands,
        "status",
        run_status,
        "show what the scheduler is and how busy the cluster is",
        "gpucluster status",
    )
    _command(
        commands,
        "queues",
        run_queues,
        "show the queues: guaranteed, used and borrowed GPUs",
        "gpucluster queues",
    )
    _add_nodes(commands)
    _command(
        commands, "topology", run_topology, "draw the cluster, and who holds which GPU", "gpucluster topology"
    )
    _command(commands, "stop", run_stop, "end the scheduler; running jobs go on", "gpucluster stop")


def _add_nodes(commands: Commands) -> None:
    nodes = _command(
        commands, "nodes", run_nodes, "show the nodes, or change one",
        "gpucluster nodes\n  gpucluster nodes set node-1 cordoned --reason 'new fan'",
    )  # fmt: skip
    nodes.usage = "gpucluster nodes [options] [set NAME {ready,cordoned,lost}]"
    changes = nodes.add_subparsers(title="changes", metavar="CHANGE", prog="gpucluster nodes")
    change = _command(
        changes, "set", run_nodes_set, "change the health of a node (administrators)",
        "gpucluster nodes set node-1 cordoned --reason 'new fan'",
        also="On a cordoned node nothing new starts. On a lost one all is ended at once; its jobs run elsewhere.", nested=True,
    )  # fmt: skip
    change.add_argument("node", metavar="NAME")
    change.add_argument("health", choices=("ready", "cordoned", "lost"))
    change.add_argument("--reason", metavar="TEXT", help="shown with the node, and to the jobs that it costs")


def _add_job_commands(commands: Commands) -> None:
    submit = _command(
        commands, "submit", run_submit, "submit a command as a job",
        "gpucluster submit --gpus 2 --follow -- python train.py --epochs 10",
        also="Prints its number; with --follow its log, and exits as the job does.",
    )  # fmt: skip
    submit.usage = "gpucluster submit [options] -- COMMAND [ARGUMENT ...]"
    add_options(submit)
    jobs = _command(
        commands, "jobs", run_jobs, "list jobs, newest first", "gpucluster jobs --all --state running,pending"
    )
    jobs.add_argument(
        "-a", "--all", action="store_true", help="everybody's, as far as you may see them (default: yours)"
    )
    jobs.add_argument(
        "-s", "--state", action="append", metavar="STATE[,STATE]", help="only those in these states"
    )
    jobs.add_argument("-q", "--queue", metavar="QUEUE", help="only those of this queue")
    jobs.add_argument(
        "-n",
        "--limit",
        type=_positive,
        default=20,
        metavar="N",
        help="at most so many (default: %(default)s)",
    )
    logs = _command(
        commands, "logs", run_logs, "print the log of a job", "gpucluster logs 12 --rank 1 --follow",
        also="What the job wrote to standard output and standard error goes there again, byte by byte but for the colours: "
        "a file or a pipe gets them only with --color always.",
    )  # fmt: skip
    logs.add_argument("job", metavar="JOB", help=NUMBER)
    logs.add_argument(
        "-r", "--rank", type=_natural, default=0, metavar="R", help="of this task (default: %(default)s)"
    )
    logs.add_argument("--attempt", type=_positive, metavar="N", help="of this attempt (default: all)")
    logs.add_argument("--tail", type=_positive, metavar="N", help="begin with the last N lines")
    logs.add_argument(
        "--color",
        choices=CHOICES,
        default="auto",
        help="colours: for a terminal, always or never (default: auto)",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    cancel = _command(
        commands, "cancel", run_cancel, "cancel jobs", "gpucluster cancel 12 13 --reason 'wrong data'"
    )
    cancel.add_argument("jobs", nargs="+", metavar="JOB", help=NUMBER)
    cancel.add_argument("--reason", metavar="TEXT", help="kept in the history of the job")
    why = _command(commands, "why", run_why, "say why a job waits, or how it ended", "gpucluster why 12")
    why.add_argument("job", metavar="JOB", help=NUMBER)


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
