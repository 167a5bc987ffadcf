"""The live stream over a real service: what a page has from it is what the API answers, whatever happens in between."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import pytest
from support.live_page import Following, LivePage, settled_jobs

from gpucluster.api.client import ApiClient
from gpucluster.api.errors import Conflict, InvalidRequest
from gpucluster.api.schemas import TOPICS, JobView

from .conftest import As, Scheduler, command, ended, wait_until

UNKNOWN = "0" * 26
WAIT = "until [ -e {go} ]; do sleep 0.02; done"


def same_as_answers(page: LivePage, client: ApiClient) -> bool:
    """Whether the page has what a fresh look gives."""
    jobs = client.jobs(limit=1000)
    assert jobs.next_before is None
    return (
        list(page.queues.values()) == client.queues()
        and list(page.nodes.values()) == client.nodes()
        and settled_jobs(page.jobs.values()) == settled_jobs(jobs.jobs)
    )


def until_same(following: Following, client: ApiClient) -> None:
    wait_until(
        lambda: following.look(lambda page: same_as_answers(page, client)),
        "the page to have what the API answers",
    )


def shown(page: LivePage, job: JobView, *states: str) -> JobView | None:
    """The job on the page, if it is in one of these states (none = any)."""
    view = page.jobs.get(job.id)
    return view if view is not None and (not states or view.state in states) else None


def churn(client: ApiClient, seed: int, count: int = 25) -> None:
    """Jobs come, run, end well or badly, are cancelled and shared, in an order that the seed gives; all have ended at the end."""
    chance = random.Random(seed)
    jobs: list[JobView] = []
    for _ in range(count):
        jobs.append(
            client.submit(
                command(
                    chance.choice(["true", "exit 3", "sleep 0.3", "sleep 60"]),
                    gpus=chance.choice([0, 1, 4, 8]),
                    queue=chance.choice(["research", "batch"]),
                    cell_id=f"cell-{chance.randrange(3)}",
                    execution_count=chance.randrange(9),
                )
            )
        )
        if chance.random() < 0.3:
            client.share(chance.choice(jobs).id, chance.choice(["owner", "queue", "everyone"]))
    for job in jobs:
        with contextlib.suppress(Conflict):  # it has ended
            client.cancel(job.id)
    for job in jobs:
        ended(client, job)


def test_page_has_what_the_api_answers_at_first_and_after_anything_that_happens(client: ApiClient) -> None:
    churn(client, 1, 6)
    with Following(client, TOPICS) as following:
        assert following.page.updates[0].full == list(TOPICS)
        until_same(following, client)
        churn(client, 2)
        until_same(following, client)
        assert not any(update.full for update in following.page.updates[1:])
        status = following.page.status
        assert status is not None
        assert (status.nodes, status.gpus, status.gpus_used, status.simulated) == (2, 16, 0, True)
        assert status.levels[0] == "cluster"
        assert (status.my_running, status.my_waiting, status.running, status.waiting) == (0, 0, 0, 0)


def test_page_that_was_cut_off_goes_on_without_a_gap(client: ApiClient) -> None:
    page: LivePage | None = None
    for seed in range(3):
        with Following(client, TOPICS, page=page) as following:
            until_same(following, client)
            if page is not None:
                assert not any(update.full for update in following.page.updates)
            page = following.copy()
        churn(client, 10 + seed)


def test_topic_that_is_not_known_yet_comes_in_full_beside_those_that_are(client: ApiClient) -> None:
    with Following(client, ["queues"]) as following:
        assert not following.page.jobs
        page = following.copy()
    churn(client, 20, 5)
    with Following(client, TOPICS, page=page, have=["queues"]) as following:
        assert following.page.updates[-1].full == ["status", "nodes", "jobs", "mine"]
        until_same(following, client)


def test_number_of_another_sequence_is_answered_with_everything_on_the_same_stream(client: ApiClient) -> None:
    page = LivePage()
    page.seq = client.status().seq + 1_000_000
    with Following(client, TOPICS, page=page) as following:
        assert following.page.updates[0].full == list(TOPICS)
        job = client.submit(command("true"))
        following.until(lambda page: shown(page, job, "succeeded"), "the job's end on the page")
        until_same(following, client)


def test_step_reports_come_alone_and_stand_in_the_job_that_is_shown(client: ApiClient, folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(
        "import os, time\nfrom gpucluster.worker import report\n"
        f"def wait(name):\n    while not os.path.exists({str(folder)!r} + '/' + name): time.sleep(0.01)\n"
        "wait('report')\nreport(1, total=9, loss=0.5)\nwait('end')\n"
    )
    with Following(client, ["mine"]) as following:
        job = client.submit(command(f"exec {sys.executable} -S {script}"))
        following.until(lambda page: shown(page, job, "running"), "the job on the page")
        (folder / "report").touch()
        told = following.until(
            lambda page: next((told for update in page.updates for told in update.progress), None),
            "the step report",
        )
        assert (told.job_id, told.progress.step, told.progress.metrics) == (job.id, 1, {"loss": 0.5})
        assert told.first_feedback_us is not None
        (folder / "end").touch()
        view = following.until(lambda page: shown(page, job, "succeeded"), "the job's end on the page")
        assert view.progress.step == 1


def test_watched_job_is_told_with_no_topic_and_its_place_moves_when_the_one_before_it_ends(
    client: ApiClient, folder: Path
) -> None:
    go = [folder / f"go{index}" for index in range(2)]
    holders = [client.submit(command(WAIT.format(go=path), gpus=8, queue="research")) for path in go]
    first, second = (client.submit(command("sleep 60", gpus=8, queue="research")) for _ in range(2))
    with Following(client, jobs=[second.id, UNKNOWN]) as following:
        assert following.page.gone == {UNKNOWN}
        view = following.page.jobs[second.id]
        assert (view.state, view.position) == ("pending", 2)
        assert f"behind job {first.number}" in (view.waits or "")
        go[0].touch()
        ended(client, holders[0])
        following.until(
            lambda page: page.jobs[second.id].position == 1, "its place to move: no event of the job tells it"
        )
        client.cancel(first.id)
        following.until(lambda page: shown(page, second, "running"), "its turn")
        client.cancel(second.id)
        following.until(lambda page: shown(page, second, "cancelled"), "its end")
        assert not following.page.queues
        assert set(following.page.jobs) == {second.id}
    go[1].touch()
    for job in (*holders, first, second):
        ended(client, job)


def test_use_of_a_running_job_that_is_watched_is_told(client: ApiClient) -> None:
    job = client.submit(command("while true; do :; done"))
    with Following(client, jobs=[job.id]) as following:

        def uses_cpu(page: LivePage) -> bool:
            view = shown(page, job, "running")
            tasks = view.attempt.tasks if view and view.attempt else []
            return bool(tasks and (tasks[0].cpu_percent or 0) > 0 and tasks[0].memory_bytes)

        following.until(uses_cpu, "what the job uses")
    client.cancel(job.id)
    ended(client, job)


def test_job_that_ended_long_ago_can_be_watched(client: ApiClient) -> None:
    job = client.submit(command("exit 4", fills_cell=True, execution_count=3))
    ended(client, job)
    with Following(client, jobs=[job.id]) as following:
        view = following.page.jobs[job.id]
        assert (view.state, view.fills_cell, view.execution_count) == ("failed", True, 3)
        assert view.reason == client.job(job.id).reason


def test_page_goes_on_after_the_scheduler_was_killed(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client, Following(client, TOPICS) as following:
        job = client.submit(command("sleep 60", gpus=2))
        following.until(lambda page: shown(page, job, "running"), "the job on the page")
        before = following.copy()
        fresh.kill()
        fresh.start()
        another = client.submit(command("true"))
        following.until(lambda page: shown(page, another, "succeeded"), "a job after the restart")
        until_same(following, client)
        with Following(client, TOPICS, page=before) as later:
            until_same(later, client)
            assert shown(later.page, job, "running")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"topics": ["jobs", "weather"]}, "topics"),
        ({"topics": ["jobs"], "have": ["jobs", "nodes"], "after": 1}, "have"),
        ({"topics": ["jobs"], "have": ["jobs"]}, "have"),
        ({"jobs": [f"{number:026d}" for number in range(201)]}, "jobs"),
        ({"jobs": ["x" * 65]}, "jobs"),
        ({"after": -1}, "after"),
        ({"after": "soon"}, "after"),
    ],
)
def test_bad_question_is_refused_by_field(client: ApiClient, query: dict[str, object], field: str) -> None:
    feed = client.live(**query)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest) as refused:
        next(feed)
    assert refused.value.field == field


def test_stranger_sees_the_room_that_a_job_takes_and_nothing_else(users: As) -> None:
    ann, bob, eve = users("ann"), users("bob"), users("eve")
    with Following(eve, TOPICS) as strangers, Following(bob, TOPICS) as colleagues:
        job = ann.submit(command("sleep 60", queue="vision", gpus=2, name="plan", notebook_path="/a.ipynb"))
        colleagues.until(lambda page: shown(page, job, "running"), "the job on the colleague's page")
        until_same(colleagues, bob)
        until_same(strangers, eve)
        gpus = [gpu for node in strangers.page.nodes.values() for gpu in node.gpus if gpu.occupied]
        assert [(gpu.job_number, gpu.job_name, gpu.mine) for gpu in gpus] == [(None, None, False)] * 2
        assert strangers.page.queues["vision"].used["gpu"] == 2000
        assert strangers.page.status is not None
        assert (strangers.page.status.gpus_used, strangers.page.status.my_running) == (2, 0)
        seen = colleagues.page.jobs[job.id]
        assert (seen.name, seen.notebook_path, seen.can_read, seen.mine) == ("plan", None, False, False)
        ann.cancel(job.id)
        ended(ann, job)
        until_same(strangers, eve)
        told = repr(strangers.page.updates)
        assert job.id not in told
        assert "plan" not in told


def test_share_that_is_given_and_taken_back_shows_and_takes_away_also_after_the_end(users: As) -> None:
    ann, eve = users("ann"), users("eve")
    job = ann.submit(command("sleep 60", queue="vision", gpus=1, name="secret"))
    wait_until(lambda: ann.job(job.id).state == "running", "the job to run")

    def names_on_gpus(page: LivePage) -> set[str | None]:
        return {gpu.job_name for node in page.nodes.values() for gpu in node.gpus if gpu.occupied}

    with Following(eve, TOPICS) as following, Following(eve, jobs=[job.id]) as watching:
        assert watching.page.gone == {job.id}
        for end in (lambda: None, lambda: ann.cancel(job.id) and ended(ann, job)):
            end()
            ann.share(job.id, "everyone")
            for page in (following, watching):
                page.until(lambda page: shown(page, job), "the job once it is shared")
            ann.share(job.id, "owner")
            for page in (following, watching):
                page.until(
                    lambda page: job.id in page.gone and job.id not in page.jobs, "it to be taken away"
                )
        until_same(following, eve)
        names = [names_on_gpus_of(update) for update in following.page.updates if update.nodes]
        assert {"secret"} in names, "while it ran and was shared, its name stood on the GPU"
        assert names_on_gpus(following.page) == set()


def names_on_gpus_of(update: object) -> set[str | None]:
    return {gpu.job_name for node in update.nodes for gpu in node.gpus if gpu.occupied}  # type: ignore[attr-defined]
