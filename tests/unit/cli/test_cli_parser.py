"""The command line itself: help, options, exit codes, and what a submission is made of. No scheduler runs here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from view_samples import job

from gpucluster import __version__, cli
from gpucluster.api.environment import git_commit, job_environment
from gpucluster.api.options import options_for
from gpucluster.api.schemas import AttemptView, TaskView
from gpucluster.cli_demo import EXAMPLE, by_hand, copy_examples, examples_folder, typed
from gpucluster.cli_output import exit_code
from gpucluster.cli_submit import job_exit_code, submission
from gpucluster.model import errors
from gpucluster.model.errors import InvalidRequest

COMMANDS = {
    "serve", "status", "queues", "nodes", "topology", "stop", "submit", "jobs", "logs", "cancel", "why", "demo", "version",
}  # fmt: skip
#: A line that parses, for each command that wants more than its name.
ARGUMENTS = {"submit": ["--", "true"], "logs": ["1"], "cancel": ["1"], "why": ["1"]}


@pytest.fixture(autouse=True)
def nobody_runs(tmp_path, monkeypatch):
    """Folders of this test alone, in which no scheduler runs."""
    for name in ("GPUCLUSTER_ADDRESS", "GPUCLUSTER_CONFIG", "JUPYTER_GPUCLUSTER_URL", "GPUCLUSTER_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUCLUSTER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(tmp_path / "run"))


def run(*argv: str) -> int:
    """The exit code, whichever way it comes."""
    try:
        return cli.main(argv)
    except SystemExit as end:
        return int(end.code or 0)


def sub_commands() -> dict[str, object]:
    (action,) = [
        action for action in cli.build_parser()._actions if hasattr(action, "choices") and action.choices
    ]
    return dict(action.choices)


# ---- help


def test_every_command_of_the_specification_is_there():
    assert set(sub_commands()) == COMMANDS


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_json_and_help_with_an_example(command, capsys):
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert "--json" in text
    example = text.split("example:\n")[1].strip().splitlines()[0]
    assert example.startswith(f"gpucluster {command}")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_example_in_the_help_is_a_line_that_parses(command, capsys):
    import shlex

    run(command, "--help")
    examples = capsys.readouterr().out.split("example:\n")[1].strip().splitlines()
    for example in examples:
        arguments = cli.build_parser().parse_args(shlex.split(example.strip())[1:])
        assert callable(arguments.run)


def test_without_a_command_it_says_which_there_are(capsys):
    assert run() == 2
    assert "COMMAND" in capsys.readouterr().err


def test_json_before_the_change_of_a_node_counts_as_well():
    parse = cli.build_parser().parse_args
    assert parse(["nodes", "--json", "set", "n", "ready"]).json
    assert parse(["nodes", "set", "n", "ready", "--json"]).json
    assert not parse(["nodes", "set", "n", "ready"]).json


def test_version_as_text_and_as_json(capsys):
    assert run("version") == 0
    assert capsys.readouterr().out == f"gpucluster {__version__}\n"
    assert run("version", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


# ---- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("f", "r"), 2),
        (errors.NeverAsAsked("f", "r"), 2),
        (errors.NotSupported("f", "r"), 2),
        (errors.TooLarge("r"), 2),
        (errors.Unavailable("r"), 3),
        (errors.VersionMismatch("r"), 3),
        (errors.NotFound("r"), 4),
        (errors.Forbidden("r"), 5),
        (errors.Unauthenticated("r"), 5),
        (errors.Conflict("r"), 1),
        (errors.GpuclusterError("r"), 1),
    ],
)
def test_each_class_of_error_has_its_exit_code(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("columns", [80, 140])
def test_help_fits_the_terminal(command, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    run(command, "--help")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_change_of_a_node_is_shown_as_optional(capsys):
    run("nodes", "--help")
    assert "usage: gpucluster nodes [options] [set NAME {ready,cordoned,lost}]" in capsys.readouterr().out


def test_options_whose_other_values_come_later_say_so(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    run("submit", "--help")
    lines = capsys.readouterr().out.splitlines()
    for option in ("--tier", "--priority"):
        assert "later version" in next(line for line in lines if option in line)


@pytest.mark.parametrize(
    ("typed", "hint"), [("jbos", "Did you mean jobs?"), ("xyzzy", "gpucluster --help lists the commands.")]
)
def test_command_that_there_is_not_suggests_the_one_meant(typed, hint, capsys):
    assert run(typed) == 2
    assert capsys.readouterr().err == f"gpucluster: there is no command {typed!r}\n{hint}\n"


@pytest.mark.parametrize(
    ("argv", "field", "shown"),
    [
        (["submit", "--", "true"], "gpus", "--gpus"),
        (["submit", "--", "true"], "secret_env", "--env"),
        (["submit", "--", "true"], "gpu-type", "--gpu-type"),
        (["submit", "--", "true"], "command", "command"),
        (["logs", "1"], "rank", "--rank"),
        (["logs", "1"], "job", "job"),
        (["jobs"], None, None),
    ],
)
def test_messages_name_options_as_they_are_typed(argv, field, shown):
    arguments = cli.build_parser().parse_args(argv)
    assert cli.as_typed(errors.GpuclusterError("no", field=field), arguments).field == shown


@pytest.mark.parametrize("flag", ["-n", "--limit"])
def test_length_of_the_list_of_jobs_has_the_letters_of_the_notebook(flag):
    assert cli.build_parser().parse_args(["jobs", flag, "7"]).limit == 7


def test_stopping_what_does_not_run_is_no_failure(capsys):
    assert run("stop") == 0
    assert capsys.readouterr().out == "No scheduler is running.\n"
    assert run("stop", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False, "pid": None}


@pytest.mark.parametrize("command", sorted(COMMANDS - {"serve", "submit", "demo", "version", "stop"}))
def test_looking_does_not_start_a_scheduler_and_says_that_none_runs(command, capsys, tmp_path):
    assert run(command, *ARGUMENTS.get(command, [])) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "gpucluster: no scheduler is running; the first submit starts one\n"
    assert not (tmp_path / "data").exists()


def test_error_with_json_is_json_on_standard_error(capsys):
    assert run("status", "--json") == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert json.loads(shown.err)["error"]["code"] == "unavailable"


def test_address_where_nobody_answers_is_named(capsys, tmp_path):
    assert run("status", "--address", f"unix:{tmp_path}/nobody.sock") == 3
    assert "nobody.sock" in capsys.readouterr().err


def test_unforeseen_error_ends_as_text_and_shows_where_only_when_asked(capsys, monkeypatch):
    def broken(arguments, output):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cli, "run_version", broken)
    assert run("version") == 1
    text = capsys.readouterr().err
    assert "this is a bug of gpucluster: ZeroDivisionError: by zero" in text
    assert "Traceback" not in text
    monkeypatch.setenv("GPUCLUSTER_DEBUG", "1")
    assert run("version") == 1
    assert "Traceback" in capsys.readouterr().err


def test_broken_configuration_is_refused_with_its_place_before_anything_starts(capsys, tmp_path):
    (tmp_path / "cluster.yaml").write_text("cluster: lab\nqueus: []\n")
    assert run("serve", "--config", str(tmp_path / "cluster.yaml")) == 2
    assert "cluster.yaml:2: queus: there is no such key. Did you mean queues?" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


# ---- submit


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["--gpus", "many", "--", "true"], "--gpus: 'many' is not a number of 0 or more"),
        (["--gpus", "-1", "--", "true"], "--gpus: '-1' is not a number of 0 or more"),
        (["--gpus", "0.5", "--", "true"], "--gpus: 0.5 GPUs: parts of a GPU come with a later version"),
        (["--memory", "lots", "--", "true"], "--memory: 'lots' is not a size"),
        (["--time", "soon", "--", "true"], "--time: 'soon' is not a duration"),
        (["--tier", "0", "--", "true"], "--tier: tiers other than 1 come with a later version"),
        (["--image", "x", "--", "true"], "--image: containers come with a later version"),
        (["--tasks", "0", "--", "true"], "--tasks: a job has at least 1 task"),
        (["--env", "1X=2", "--", "true"], "--env: '1X' is not a name for an environment variable"),
        (["--env", "NOT_SET_ANYWHERE", "--", "true"], "--env: NOT_SET_ANYWHERE is not set here"),
        (["--cwd", "/no/such/folder", "--", "true"], "--cwd: /no/such/folder is not a folder"),
        ([], "command: there is nothing to run"),
        (["--"], "command: there is nothing to run"),
    ],
)
def test_bad_submission_is_refused_before_a_scheduler_is_started(argv, wanted, capsys, tmp_path):
    assert run("submit", *argv) == 2
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_option_that_nobody_knows_is_wrong_use(capsys):
    assert run("submit", "--colour", "blue", "--", "true") == 2
    assert "--colour" in capsys.readouterr().err


def test_every_option_of_the_table_is_an_option_of_submit(capsys):
    run("submit", "--help")
    text = capsys.readouterr().out
    for option in options_for("cli"):
        assert f"--{option.name}" in text


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["--", "python", "a.py", "--gpus", "9"], ["python", "a.py", "--gpus", "9"]),
        (["-g", "2", "--follow", "--", "true"], ["true"]),
        (["-g", "2", "python", "a.py", "--follow"], ["python", "a.py", "--follow"]),
        (["--", "sh", "-c", "x", "--", "y"], ["sh", "-c", "x", "--", "y"]),
    ],
)
def test_what_follows_the_options_is_the_command_untouched(argv, command):
    given = cli.build_parser().parse_args(["submit", *argv]).command
    assert (given[1:] if given[:1] == ["--"] else given) == command


def test_submission_takes_along_folder_environment_and_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOMETHING_PRIVATE", "no")
    monkeypatch.setenv("HF_TOKEN", "secret-value")
    subprocess.run(["git", "init", "-q"], check=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, check=True)
    made = submission({"env": [("EPOCHS", "3"), ("HF_TOKEN", None)], "gpus": 2.0}, ["python", "a b.py"])
    assert made.source == "python 'a b.py'"
    assert made.command == ["python", "a b.py"]
    assert made.cwd == str(tmp_path)
    assert made.env["EPOCHS"] == "3"
    assert "PATH" in made.env
    assert "SOMETHING_PRIVATE" not in made.env
    assert "HF_TOKEN" not in made.env
    assert made.secret_env == {"HF_TOKEN": "secret-value"}
    assert made.git_commit == git_commit(str(tmp_path))
    assert made.roles[0].gpus == 2


def test_folder_outside_a_repository_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit(str(tmp_path)) is None


def test_variable_that_is_asked_for_and_sounds_like_a_credential_is_never_stored():
    environment = job_environment([("API_KEY", "k"), ("LC_ALL", "C")], {"PATH": "/bin", "API_KEY": "other"})
    assert environment.open == {"PATH": "/bin", "LC_ALL": "C"}
    assert environment.secret == {"API_KEY": "k"}


def attempt(*codes: int | None) -> AttemptView:
    return AttemptView(
        id="a", number=1, state="ended", created_us=0, started_us=0, ended_us=0, outcome=None, reason=None,
        tasks=[
            TaskView(role="worker", rank=rank, node="n", gpus=[], gpu_indices=[], state="", exit_code=code)
            for rank, code in enumerate(codes)
        ],
    )  # fmt: skip


def test_followed_job_gives_its_exit_code():
    assert job_exit_code(job(1, state="succeeded", attempt=attempt(0, 0))) == 0
    assert job_exit_code(job(1, state="failed", attempt=attempt(0, 7, 9))) == 7
    assert job_exit_code(job(1, state="failed", attempt=attempt(None))) == 1
    assert job_exit_code(job(1, state="cancelled")) == 1


# ---- jobs, logs


@pytest.mark.parametrize(
    "argv",
    [
        ["jobs", "-n", "0"],
        ["jobs", "-n", "x"],
        ["logs", "1", "--rank", "-1"],
        ["logs", "1", "--tail", "0"],
        ["logs", "1", "--color", "blue"],
        ["cancel"],
    ],
)
def test_numbers_that_make_no_sense_are_wrong_use(argv):
    assert run(*argv) == 2


# ---- demo


def test_programs_are_named_as_they_are_typed_from_here(monkeypatch, tmp_path):
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "gpucluster"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert typed("gpucluster") == "'my env/bin/gpucluster'"
    assert by_hand(tmp_path / "demo") == f"jupyter lab demo/{EXAMPLE}"
    monkeypatch.setenv("PATH", str(programs))
    assert typed("gpucluster") == "gpucluster"


def test_in_a_source_tree_make_opens_the_example(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    assert by_hand(root / ".demo") == "make lab"


def test_examples_are_found_and_copied_once(tmp_path):
    assert EXAMPLE in {path.name for path in copy_examples(examples_folder(), tmp_path / "demo")}
    assert copy_examples(examples_folder(), tmp_path / "demo") == []


def test_example_that_somebody_changed_is_left_alone(tmp_path):
    copy_examples(examples_folder(), tmp_path)
    (tmp_path / EXAMPLE).write_text("mine")
    copy_examples(examples_folder(), tmp_path)
    assert (tmp_path / EXAMPLE).read_text() == "mine"


def test_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="--to"):
        copy_examples(examples_folder(), tmp_path / "file")
