"""Who sees what over HTTP: the rules of visibility.py on every way in."""

from __future__ import annotations

import hashlib

import pytest

from gpucluster.api.errors import Forbidden, NotFound, Unauthenticated

from .conftest import As, command, ended, wait_until


def test_stranger_sees_occupied_capacity_only(users: As) -> None:
    ann, eve = users("ann"), users("eve")
    start = eve.status().seq
    job = ann.submit(command("echo private; sleep 60", queue="vision", gpus=2, name="plan"))
    wait_until(lambda: ann.job(job.id).state == "running", "the job to run")
    assert eve.jobs().jobs == []
    assert eve.jobs(ids=[job.id]).jobs == []
    for ask in (eve.job, eve.cancel, eve.why, eve.history, eve.steps, eve.result, eve.source):
        for reference in (job.id, job.number):
            with pytest.raises(NotFound):
                ask(reference)
    with pytest.raises(NotFound):
        eve.share(job.id, "everyone")
    for stream in (eve.follow(job.id), eve.log(job.id)):
        with pytest.raises(NotFound):
            list(stream)
    gpus = [gpu for gpu in eve.topology().nodes[0].gpus if gpu.occupied]
    assert [(gpu.job_number, gpu.job_name, gpu.job_id, gpu.mine) for gpu in gpus] == [
        (None, None, None, False)
    ] * 2
    queue = next(queue for queue in eve.queues() if queue.name == "vision")
    assert (queue.used["gpu"], queue.may_submit) == (2000, False)
    events = list(eve.events(after=start, follow=False))
    assert not [event for event in events if event.kind.startswith("job.")]
    assert events[-1].seq == eve.status().seq  # told how far it has come all the same
    assert "plan" not in str(events)
    ann.cancel(job.id)


def test_colleague_of_the_queue_sees_that_a_job_is_there_and_not_what_it_says(users: As) -> None:
    ann, bob = users("ann"), users("bob")
    start = bob.status().seq
    job = ann.submit(
        command("echo private; exit 9", queue="vision", name="plan", notebook_path="/home/ann/x.ipynb")
    )
    ended(ann, job)
    view = bob.job(job.id)
    assert (view.name, view.owner_name, view.state, view.mine) == ("plan", "ann", "failed", False)
    assert (view.can_read, view.can_control, view.reason, view.notebook_path) == (False, False, None, None)
    assert [task.exit_code for task in (view.attempt.tasks if view.attempt else [])] == [None]
    assert [entry.detail for entry in bob.history(job.id)] == [None] * 4
    for refused in (bob.source, bob.result, bob.steps, bob.cancel):
        with pytest.raises(Forbidden):
            refused(job.id)
    with pytest.raises(Forbidden):
        list(bob.follow(job.id))
    events = [event for event in bob.events(after=start, follow=False) if event.kind == "job.state"]
    assert [event.data["state"] for event in events][-1] == "failed"
    assert not any("reason" in event.data for event in events)
    assert ann.job(job.id).reason is not None


def test_shared_job_is_read_by_whom_it_is_shared_with(users: As) -> None:
    ann, bob, eve = users("ann"), users("bob"), users("eve")
    job = ann.submit(command("echo for you", queue="vision"))
    ended(ann, job)
    ann.share(job.id, "queue")
    assert b"for you\n" in [item.payload for item in bob.log(job.id)]
    with pytest.raises(NotFound):
        eve.job(job.id)
    ann.share(job.id, "everyone")
    assert b"for you\n" in [item.payload for item in eve.log(job.id)]
    with pytest.raises(Forbidden):
        eve.cancel(job.id)
    ann.share(job.id, "owner")
    with pytest.raises(NotFound):
        eve.log(job.id).__next__()


def test_taking_a_share_back_ends_the_streams_of_others(users: As) -> None:
    ann, bob = users("ann"), users("bob")
    job = ann.submit(command("while true; do echo tick; sleep 0.1; done", queue="vision", share="queue"))
    stream = bob.follow(job.id)
    assert next(item for item in stream if item.kind == "stdout")
    ann.share(job.id, "owner")
    with pytest.raises(Forbidden):
        list(stream)
    ann.cancel(job.id)


def test_administrator_controls_and_does_not_read(users: As) -> None:
    ann, admin = users("ann"), users("admin")
    job = ann.submit(command("sleep 60", queue="vision"))
    view = admin.job(job.id)
    assert (view.can_control, view.can_read) == (True, False)
    with pytest.raises(Forbidden):
        admin.source(job.id)
    assert admin.cancel(job.id).state in ("cancelled", "stopping")
    assert ended(ann, job).state == "cancelled"


def test_only_administrators_change_nodes_and_stop_the_scheduler(users: As) -> None:
    ann = users("ann")
    with pytest.raises(Forbidden):
        ann.stop()
    with pytest.raises(Forbidden):
        ann.set_node("node-0", "cordoned")
    with pytest.raises(Forbidden):
        users("eve").submit(command("true", queue="vision"))


def test_knowing_a_hash_is_no_right_to_read_a_blob(users: As) -> None:
    ann, bob = users("ann"), users("bob")
    data = b"ann's data" * 1000
    sha = hashlib.sha256(data).hexdigest()
    ann.upload({sha: data})
    assert ann.fetch_blob(sha) == data
    assert bob.blob_status(sha).received_bytes == 0
    with pytest.raises(NotFound):
        bob.fetch_blob(sha)
    assert bob.upload({sha: data}) == len(data)  # who has the content may have it
    assert bob.fetch_blob(sha) == data


def test_same_key_of_two_users_is_two_jobs(users: As) -> None:
    submission = command("true", key="the-same")
    assert users("ann").submit(submission).id != users("bob").submit(submission).id


def test_nobody_gets_nothing(users: As) -> None:
    nobody = users("")
    with pytest.raises(Unauthenticated):
        nobody.hello()
