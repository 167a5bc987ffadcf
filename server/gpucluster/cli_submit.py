"""`gpucluster submit [options] -- command`: from the one option table to a submission, and following it to its end."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
from typing import Any

from .api.client import ApiClient, connect
from .api.environment import git_commit, job_environment
from .api.options import Option, options_for, submission_fields
from .api.schemas import JobSubmission, JobView
from .cli_output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, LogWriter, Output
from .cli_render import dry_run, placement
from .model.errors import InvalidRequest
from .model.jobs import JobState

OPTIONS: tuple[Option, ...] = tuple(options_for("cli"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the table, then the command."""
    for option in OPTIONS:
        parser.add_argument(*option.flags, **_settings(option))
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT …]", help="what each task runs"
    )


def _settings(option: Option) -> dict[str, Any]:
    text = option.help
    if option.name == "name":
        text += " (default: the command)"
    elif option.default is not None and not option.flag:
        text += f" (default: {option.default})"
    if option.not_yet:
        text += " (not in this version)"
    settings: dict[str, Any] = {
        "dest": f"option_{option.key}",
        "help": text.replace("%", "%%"),
        "default": None,
    }
    if option.flag:
        return {**settings, "action": "store_const", "const": option.value}
    return {**settings, "metavar": option.metavar, "action": "append" if option.repeat else "store"}


def parsed_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Values by Option.key as `submission_fields` wants them. Raises InvalidRequest for the first bad one."""
    values: dict[str, Any] = {}
    for option in OPTIONS:
        given = getattr(arguments, f"option_{option.key}")
        if given is None:
            continue
        if option.flag:
            values[option.key] = given
        elif option.repeat:
            values[option.key] = [option.parsed(text) for text in given]
        else:
            values[option.key] = option.parsed(given)
    return values


def submission(values: dict[str, Any], command: list[str]) -> JobSubmission:
    """The submission of a command with these option values, from this process's folder and environment."""
    if not command:
        raise InvalidRequest(
            "command", "there is nothing to run", "Write gpucluster submit --gpus 1 -- python train.py."
        )
    folder = os.path.abspath(os.path.expanduser(values.get("cwd") or _here()))
    if not os.path.isdir(folder):
        raise InvalidRequest("--cwd", f"{folder} is not a folder")
    environment = job_environment(values.get("env", ()))
    return JobSubmission(
        kind="command",
        source=shlex.join(command),
        command=command,
        idempotency_key=secrets.token_hex(16),
        cwd=folder,
        env=environment.open,
        secret_env=environment.secret,
        git_commit=git_commit(folder),
        **submission_fields(values),
    )


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InvalidRequest(
            "--cwd", "the present folder has been deleted", "Change to another one."
        ) from None


def run_submit(arguments: argparse.Namespace, output: Output) -> int:
    values = parsed_options(arguments)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    asked = submission(values, command)
    with connect(arguments.address, start=True, data_dir=arguments.data) as client:
        if values.get("dry_run"):
            answer = client.dry_run(asked)
            output.show(answer, lambda: dry_run(answer))
            return EXIT_OK
        job = client.submit(asked)
        if values.get("follow"):
            return _follow(client, job, output)
    if output.as_json:
        output.json(job)
    else:
        output.console.print(job.number)
        output.aside(_what_next(job))
    return EXIT_OK


def _what_next(job: JobView) -> str:
    where = placement(job)
    state = f"on {where}" if where else job.waits or ": ".join(filter(None, (job.state, job.reason)))
    state = state.rstrip(".")
    return f"job {job.number} in queue {job.queue}: {state}. Its log: gpucluster logs {job.number} --follow"


def _follow(client: ApiClient, job: JobView, output: Output) -> int:
    output.aside(f"job {job.number} in queue {job.queue}")
    try:
        with client.follow(job.id) as stream, LogWriter(output) as writer:
            last = writer.write_all(stream)
    except KeyboardInterrupt:
        output.aside(
            f"\njob {job.number} goes on. Its log: gpucluster logs {job.number} --follow; "
            f"to end it: gpucluster cancel {job.number}"
        )
        return EXIT_INTERRUPTED
    return job_exit_code(client.job(job.id) if last is None or last.ended_us is None else last)


def job_exit_code(job: JobView) -> int:
    """0 for a job that succeeded, else the first bad exit code of its tasks, by rank; EXIT_FAILED where there is none."""
    if job.state == JobState.SUCCEEDED.value:
        return EXIT_OK
    tasks = job.attempt.tasks if job.attempt else []
    codes = (task.exit_code for task in sorted(tasks, key=lambda task: task.rank))
    return next((code for code in codes if code), EXIT_FAILED)
