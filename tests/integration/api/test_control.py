from __future__ import annotations

import pytest

from gpucluster.api.client import ApiClient
from gpucluster.api.errors import Conflict, InvalidRequest, NotFound

from .conftest import Scheduler, command, ended, wait_until


def test_waiting_job_is_cancelled_at_once(client: ApiClient) -> None:
    blocker = client.submit(command("sleep 30", gpus=8, tasks=2))
    waiting = client.submit(command("true", gpus=8))
    assert waiting.state == "pending"
    assert waiting.waits
    view = client.cancel(waiting.id, "not needed")
    assert view.state == "cancelled"
    assert client.cancel(waiting.id).state == "cancelled"  # asking twice does no harm
    client.cancel(blocker.id)
    assert ended(client, blocker).state == "cancelled"


def test_running_job_is_cancelled_with_its_whole_tree(client: ApiClient) -> None:
    job = client.submit(command("sleep 300 & echo $!; wait", grace_s=0.5))
    follower = client.follow(job.id)
    for item in follower:
        if item.kind == "stdout":
            child = int(item.payload or b"0")
            break
    client.cancel(job.id)
    assert ended(client, job).state == "cancelled"
    wait_until(lambda: not is_alive(child), "the child to be gone")
    follower.close()


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ended_job_cannot_be_cancelled(client: ApiClient) -> None:
    job = client.submit(command("true"))
    ended(client, job)
    with pytest.raises(Conflict, match="has succeeded already"):
        client.cancel(job.id)


def test_why_tells_what_a_job_waits_for_and_how_it_ended(client: ApiClient) -> None:
    blocker = client.submit(command("sleep 30", gpus=8, tasks=2))
    first = client.submit(command("true", gpus=4))
    second = client.submit(command("true", gpus=4))
    assert client.why(first.id).verdict == "starts_when"
    assert client.why(second.id).position == 2
    assert client.job(second.id).position == 2
    wait_until(lambda: client.why(blocker.id).verdict == "running", "the blocker to run")
    client.cancel(blocker.id)
    for job in (first, second):
        assert ended(client, job).state == "succeeded"
    assert client.why(first.id).verdict == "ended"


def test_sharing_is_changed_while_a_job_runs_and_after_it_ended(client: ApiClient) -> None:
    job = client.submit(command("sleep 0.3"))
    assert job.share == "owner"
    assert client.share(job.id, "queue").share == "queue"
    ended(client, job)
    assert client.share(job.id, "everyone").share == "everyone"
    assert client.job(job.id).share == "everyone"
    with pytest.raises(InvalidRequest):
        client.share(job.id, "enemies")


def test_cordoned_node_takes_nothing_new(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        for node in client.nodes():
            client.set_node(node.name, "cordoned", "repair")
        assert {node.health for node in client.nodes()} == {"cordoned"}
        job = client.submit(command("true", gpus=1))
        assert job.state == "pending"
        assert "cordoned" in (job.waits or "")
        client.set_node(client.nodes()[0].name, "ready")
        assert ended(client, job).state == "succeeded"
        with pytest.raises(NotFound, match="there is no node"):
            client.set_node("nowhere", "ready")


def test_topology_shows_whose_job_holds_which_gpu(client: ApiClient) -> None:
    job = client.submit(command("sleep 30", gpus=3))
    wait_until(lambda: client.job(job.id).state == "running", "the job to run")
    gpus = [gpu for node in client.topology().nodes for gpu in node.gpus if gpu.occupied]
    assert [(gpu.job_number, gpu.job_id, gpu.mine, gpu.simulated) for gpu in gpus] == [
        (job.number, job.id, True, True)
    ] * 3
    queue = next(queue for queue in client.queues() if queue.name == job.queue)
    assert (queue.used["gpu"], queue.mine["gpu"], queue.running) == (3000, 3000, 1)
    assert client.status().gpus_used == 3
    attempt = client.job(job.id).attempt
    assert attempt is not None
    assert len(attempt.tasks[0].gpu_indices) == 3
    client.cancel(job.id)
    ended(client, job)


def test_steps_that_a_command_reports_are_kept(client: ApiClient) -> None:
    script = (
        'for i in 1 2 3; do echo "{\\"step\\": $i, \\"total\\": 3, \\"metrics\\": {\\"loss\\": \\"nan\\"}}"'
        ' > "$GPUCLUSTER_TASK_DIR/steps.fifo"; sleep 0.05; done; sleep 0.2'
    )
    job = client.submit(command(script))
    ended(client, job)
    steps = client.steps(job.id).steps
    assert [step.step for step in steps] == [1, 2, 3]
    assert all(step.metrics["loss"] != step.metrics["loss"] for step in steps)  # NaN arrives as NaN
    progress = client.job(job.id).progress
    assert progress is not None
    assert (progress.step, progress.total) == (3, 3)


def test_stop_ends_the_scheduler_and_its_tasks_go_on(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        job = client.submit(command("echo before; sleep 1; echo after"))
        wait_until(lambda: client.job(job.id).state == "running", "the job to run")
        client.stop()
        assert fresh.process is not None
        assert fresh.process.wait(30) == 0
        assert fresh.info() is None
        fresh.start()
        assert ended(client, job).state == "succeeded"
        output = b"".join(item.payload or b"" for item in client.log(job.id) if item.kind == "stdout")
        assert output == b"before\nafter\n"
        assert client.job(job.id).attempts_made == 1


@pytest.mark.parametrize("reason", ["a\x1b[2J", "two\nlines", "x" * 501])
def test_reason_that_is_no_line_of_text_is_refused(client: ApiClient, reason: str) -> None:
    job = client.submit(command("sleep 30"))
    with pytest.raises(InvalidRequest) as refused:
        client.cancel(job.id, reason)
    assert refused.value.field == "reason"
    client.cancel(job.id, "  enough  ")
    ended(client, job)
    assert any(entry.detail == "enough" for entry in client.history(job.id))
