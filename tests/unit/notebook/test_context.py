"""Where a job was submitted, and what of the environment travels."""

from __future__ import annotations

import os
import subprocess

import pytest

from gpucluster.api.environment import ALLOWED_VARIABLES, job_environment, looks_secret, refuse_reserved
from gpucluster.model.errors import InvalidRequest
from jupyter_gpucluster import context


def test_environment_is_an_allow_list():
    here = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/h",
        "SECRET_THING": "s",
        "EDITOR": "vi",
        "JPY_PARENT_PID": "1",
    }
    assert job_environment((), here).open == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/h"}


def test_requested_variables_travel_with_the_value_given_or_the_value_here():
    env = job_environment([("MODE", "fast"), ("EDITOR", None)], {"EDITOR": "vi"})
    assert env.open == {"MODE": "fast", "EDITOR": "vi"}


def test_variable_that_is_not_there_is_refused():
    with pytest.raises(InvalidRequest, match="NOPE is not set"):
        job_environment([("NOPE", None)], {})


@pytest.mark.parametrize("name", ["RANK", "CUDA_VISIBLE_DEVICES", "GPUCLUSTER_TASK_ID"])
def test_what_the_scheduler_sets_for_each_task_is_refused(name):
    with pytest.raises(InvalidRequest, match=f"--env: {name} is set by the scheduler"):
        job_environment([(name, "x")], {})


def test_nothing_that_travels_by_itself_is_reserved():
    refuse_reserved("env", ALLOWED_VARIABLES)


def test_credentials_travel_apart():
    env = job_environment(
        [("HF_TOKEN", "t"), ("AWS_SECRET_ACCESS_KEY", None)], {"AWS_SECRET_ACCESS_KEY": "k"}
    )
    assert env.open == {}
    assert env.secret == {"HF_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k"}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "MY_SECRET", "GITHUB_PAT", "OPENAI_APIKEY"]
)
def test_name_of_a_credential_is_known(name):
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "MONKEY", "KEYBOARD", "PATTERN"]
)
def test_name_of_something_else_is_no_credential(name):
    assert not looks_secret(name)


def test_import_path_keeps_order_and_drops_what_is_not_there(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    entries = ["", str(second), str(first), str(tmp_path / "gone"), str(second)]
    assert context.import_path(entries) == ["", str(second), str(first)]


def test_folder_beside_the_notebook_stays_on_the_path_when_the_job_runs_elsewhere(tmp_path):
    assert context.import_path([""], beside=str(tmp_path)) == ["", str(tmp_path)]


def test_commit_of_the_work_tree_is_found_and_follows_it(tmp_path):
    def git(*words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    folder = tmp_path / "sub"
    folder.mkdir()
    assert context.git_commit(str(folder)) is None
    git("commit", "-q", "--allow-empty", "-m", "one")
    first = context.git_commit(str(folder))
    assert first == git("rev-parse", "HEAD").strip()
    git("commit", "-q", "--allow-empty", "-m", "two")
    os.utime(tmp_path / ".git" / "logs" / "HEAD", (2e9, 2e9))  # file times may be coarser than two commits
    assert context.git_commit(str(folder)) == git("rev-parse", "HEAD").strip() != first


def test_folder_outside_any_repository_has_no_commit(tmp_path):
    assert context.git_commit(str(tmp_path)) is None


def test_notebook_path_is_what_the_front_end_says(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert context.notebook_path({}) is None
    assert context.notebook_path({"__vsc_ipynb_file__": "/n/b.ipynb"}) == "/n/b.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "work/a.ipynb")
    assert context.notebook_path({}) == "work/a.ipynb"
