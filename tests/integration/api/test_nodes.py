"""Nodes of a running service: what an administrator sets, a node that is given up, and what tasks use."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpucluster.api.client import ApiClient
from gpucluster.api.errors import InvalidRequest
from gpucluster.api.schemas import JobView, NodeView

from .conftest import Scheduler, command, ended, wait_until

#: Counts how often each rank ran, then waits to be let go.
COUNTED = 'echo run >> "$0.$RANK"; echo $$ > "$0.$RANK.pid"; until [ -e "$0.go" ]; do sleep 0.05; done'


def node(client: ApiClient, name: str) -> NodeView:
    return next(view for view in client.nodes() if view.name == name)


def gang(client: ApiClient, mark: Path, **fields: object) -> JobView:
    """A job over all GPUs of both nodes, once it runs."""
    script = COUNTED.replace("$0", str(mark))
    job = client.submit(command(script, gpus=8, tasks=2, grace_s=1.0, **fields))
    running(client, job)
    return job


def running(client: ApiClient, job: JobView, attempts: int = 1) -> JobView:
    def look() -> JobView | None:
        view = client.job(job.id)
        return view if view.state == "running" and view.attempts_made == attempts else None

    return wait_until(look, f"attempt {attempts} to run")


def waiting(client: ApiClient, job: JobView) -> JobView:
    def look() -> JobView | None:
        view = client.job(job.id)
        return view if view.state == "pending" else None

    return wait_until(look, "the job to be pending again")


def runs(mark: Path) -> list[int]:
    return [len(Path(f"{mark}.{rank}").read_text().split()) for rank in (0, 1)]


def pid_of(mark: Path, rank: int) -> int:
    return int(wait_until(lambda: Path(f"{mark}.{rank}.pid").read_text().strip(), "the pid"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def no_findings(client: ApiClient) -> None:
    assert not [note for note in client.status().notes if "books" in note]


def test_what_an_administrator_sets_holds_over_a_kill_and_says_who_and_why(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        me = client.hello().principal_name
        client.set_node("node-1", "cordoned", "new fan")
    fresh.kill()
    fresh.start()
    with fresh.client() as client:
        view = node(client, "node-1")
        assert (view.health, view.set_by, view.set_reason) == ("cordoned", me, "new fan")
        assert view.set_us
        assert [note for note in view.notes if f"set cordoned by {me} on " in note and "new fan" in note]
        job = client.submit(command("true", gpus=8, tasks=2))
        assert "node-1 is cordoned" in (job.waits or "")
        assert node(client, "node-0").set_by is None
        shown = client.set_node("node-1", "ready")
        assert (shown.health, shown.notes, shown.set_by) == ("ready", [], None)
        assert ended(client, job).state == "succeeded"
        with pytest.raises(InvalidRequest, match="reason"):
            client.set_node("node-1", "cordoned", "x" * 10_000)
        assert node(client, "node-1").health == "ready"
        no_findings(client)


def test_gang_of_a_lost_node_runs_again_when_it_is_back(fresh: Scheduler, folder: Path) -> None:
    fresh.start()
    with fresh.client() as client:
        job = gang(client, folder / "mark")
        pids = [pid_of(folder / "mark", rank) for rank in (0, 1)]
        client.set_node("node-1", "lost", "burnt")
        view = waiting(client, job)
        assert view.attempts_made == 1
        assert view.attempt is not None
        assert view.attempt.outcome == "lost"
        assert [task.state for task in view.attempt.tasks if task.node == "node-1"] == ["lost"]
        assert "node-1 was set lost by" in (view.reason or "")
        assert "burnt" in (view.reason or "")
        assert "node-1 is lost" in (view.waits or "")
        assert not any(is_alive(pid) for pid in pids)
        assert not any(gpu.occupied for gpu in node(client, "node-1").gpus)
        client.set_node("node-1", "ready")
        running(client, job, attempts=2)
        assert len([gpu for gpu in node(client, "node-1").gpus if gpu.mine]) == 8
        (folder / "mark.go").touch()
        assert ended(client, job).state == "succeeded"
        assert runs(folder / "mark") == [2, 2]
        no_findings(client)


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.2])
def test_scheduler_killed_while_a_node_is_given_up_loses_its_tasks_once(
    fresh: Scheduler, folder: Path, pause_s: float
) -> None:
    fresh.start()
    with fresh.client() as client:
        job = gang(client, folder / "mark")
        client.set_node("node-1", "lost", "burnt")
    time.sleep(pause_s)
    fresh.kill()
    fresh.start()
    with fresh.client() as client:
        view = waiting(client, job)
        assert (view.attempts_made, view.attempt and view.attempt.outcome) == (1, "lost")
        client.set_node("node-1", "ready")
        running(client, job, attempts=2)
        (folder / "mark.go").touch()
        assert ended(client, job).state == "succeeded"
        assert runs(folder / "mark") == [2, 2]
        assert [entry.cause for entry in client.history(job.id)].count("placed") == 2
        no_findings(client)


def test_job_that_wants_no_second_try_fails_with_its_node(fresh: Scheduler, folder: Path) -> None:
    fresh.start()
    with fresh.client() as client:
        job = gang(client, folder / "mark", requeue="never")
        client.set_node("node-1", "lost")
        view = ended(client, job)
        assert view.state == "failed"
        assert "node-1 was set lost by" in (view.reason or "")
        assert "not tried again" in (view.reason or "")
        assert runs(folder / "mark") == [1, 1]


def test_lost_node_costs_only_the_jobs_on_it(fresh: Scheduler, folder: Path) -> None:
    fresh.start()
    with fresh.client() as client:
        jobs = [
            client.submit(command(f"until [ -e {folder}/go ]; do sleep 0.05; done", gpus=8)) for _ in (0, 1)
        ]
        first, second = (running(client, job) for job in jobs)
        lost = next(job for job in (first, second) if job.attempt and job.attempt.tasks[0].node == "node-1")
        kept = second if lost is first else first
        client.set_node("node-1", "lost")
        waiting(client, lost)
        (folder / "go").touch()
        assert ended(client, kept).attempts_made == 1
        again = ended(client, lost)
        assert (again.state, again.attempts_made) == ("succeeded", 2)
        assert again.attempt is not None
        assert again.attempt.tasks[0].node == "node-0"


def test_usage_of_a_running_task_is_shown_and_none_of_simulated_gpus(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        job = client.submit(command("while :; do :; done", gpus=1))
        running(client, job)

        def used() -> tuple[float | None, int | None] | None:
            attempt = client.job(job.id).attempt
            task = attempt.tasks[0] if attempt else None
            return (task.cpu_percent, task.memory_bytes) if task and task.cpu_percent is not None else None

        cpu, memory = wait_until(used, "its usage")
        assert cpu > 1
        assert memory is not None
        assert 100_000 < memory < 1 << 30
        gpus = [gpu for view in client.nodes() for gpu in view.gpus]
        assert {(gpu.utilization_percent, gpu.memory_used_bytes) for gpu in gpus} == {(None, None)}
        client.cancel(job.id)
        attempt = ended(client, job).attempt
        assert attempt is not None
        assert attempt.tasks[0].memory_bytes is None


def test_task_of_another_version_is_watched_shown_and_can_be_cancelled(
    fresh: Scheduler, folder: Path
) -> None:
    fresh.start()
    with fresh.client() as client:
        jobs = [
            client.submit(command(f"until [ -e {folder}/go ]; do sleep 0.05; done; exit 3")) for _ in (0, 1)
        ]
        for job in jobs:
            running(client, job)
    fresh.kill()
    with open(folder / "serve.log", "ab") as log:
        later = Path(__file__).with_name("serve_later_version.py")
        fresh.process = subprocess.Popen(
            [sys.executable, str(later)],
            env=fresh.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
        )
    with fresh.client() as client:
        first, second = jobs
        wait_until(lambda: "another version" in client.why(first.id).sentence, "the note")
        attempt = client.job(first.id).attempt
        assert attempt is not None
        assert "only watched" in (attempt.tasks[0].note or "")
        wait_until(
            lambda: [note for note in client.status().notes if note.startswith("2 running tasks")], "both"
        )
        client.cancel(second.id)
        assert ended(client, second).state == "cancelled"
        (folder / "go").touch()
        view = ended(client, first)
        assert (view.state, view.attempts_made) == ("failed", 1)
        assert view.attempt is not None
        assert view.attempt.tasks[0].exit_code == 3
        assert not [note for note in client.status().notes if "another version" in note]
