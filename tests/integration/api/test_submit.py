from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpucluster.api.client import ApiClient
from gpucluster.api.errors import (
    Conflict,
    GpuclusterError,
    InvalidRequest,
    NeverAsAsked,
    NotFound,
    NotSupported,
    TooLarge,
    VersionMismatch,
)
from gpucluster.api.schemas import CHUNK_BYTES, JobSubmission, RoleSubmission
from gpucluster.model.jobs import InputManifest

from .conftest import Scheduler, command, ended, wait_until


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def printed(client: ApiClient, job: str) -> str:
    """The standard output of the job so far."""
    with client.log(job) as log:
        return b"".join(item.payload or b"" for item in log if item.kind == "stdout").decode()


def with_inputs(*blobs: bytes, **fields: Any) -> JobSubmission:
    return JobSubmission(
        kind="cell",
        source="x",
        idempotency_key=uuid.uuid4().hex,
        roles=[RoleSubmission(gpus=0)],
        inputs=InputManifest(pickle=sha(blobs[0]), buffers=tuple(map(sha, blobs[1:])), names=("x",)),
        after=fields.pop("after", []),
        **fields,
    )


def test_command_runs_and_its_result_is_told(client: ApiClient) -> None:
    job = client.submit(command("echo out; exit 3", name="three"))
    assert (job.name, job.mine, job.can_control, job.can_read) == ("three", True, True, True)
    view = ended(client, job)
    assert view.state == "failed"
    assert client.result(job.id).exit_code == 3
    assert client.job(job.number).id == job.id
    assert [entry.to_state for entry in client.history(job.id)] == [
        "pending",
        "starting",
        "running",
        "failed",
    ]


def test_what_a_failed_cell_had_assigned_is_told_and_can_be_fetched(client: ApiClient) -> None:
    cell = JobSubmission(
        kind="cell",
        source="x = 41 + 1\n1 / 0",
        idempotency_key=uuid.uuid4().hex,
        roles=[RoleSubmission(gpus=0)],
        interpreter=sys.executable,
        sys_path=sys.path,
        outputs=["x"],
    )
    job = ended(client, client.submit(cell))
    assert job.state == "failed"
    told = client.result(job.id)
    assert (told.exit_code, told.error_name) == (1, "ZeroDivisionError")
    assert told.result is not None
    assert told.result.names == ("x",)
    assert told.result.notes == ("the cell failed; these are the names it had assigned before",)
    assert told.result.pickle is not None
    assert pickle.loads(client.fetch_blob(told.result.pickle, job=job.id)) == {"x": 42}


def test_a_script_reports_its_steps_and_prints_at_once(client: ApiClient, folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(
        "import os, time\nfrom gpucluster.worker import report\nprint('started')\n"
        f"while not os.path.exists({str(folder / 'go')!r}): time.sleep(0.01)\n"
        "for step in range(1, 4): report(step, total=3, loss=1 / step)\n"
    )
    job = client.submit(command(f"exec {sys.executable} -S {script}"))
    wait_until(lambda: printed(client, job.id) == "started\n", "the first line of the script")
    (folder / "go").touch()
    view = ended(client, job)
    assert view.state == "succeeded"
    assert view.progress is not None
    assert (view.progress.step, view.progress.total) == (3, 3)


def test_what_a_user_sets_for_python_comes_before_ours(client: ApiClient) -> None:
    job = client.submit(
        command("echo $PYTHONPATH $PYTHONUNBUFFERED", env={"PYTHONPATH": "/a:/b", "PYTHONUNBUFFERED": ""})
    )
    ended(client, job)
    text = printed(client, job.id)
    assert text.startswith("/a:/b:/")
    assert text.endswith("/scripts\n")


def test_source_and_default_name_come_from_the_submission(client: ApiClient) -> None:
    job = client.submit(command("true"))
    assert job.name == "sh -c true"
    assert client.source(job.id) == "true"


def test_same_key_gives_the_same_job_also_after_it_ended(client: ApiClient) -> None:
    submission = command("true")
    first = client.submit(submission)
    assert client.submit(submission).id == first.id
    ended(client, first)
    assert client.submit(submission).id == first.id


def test_same_key_at_the_same_moment_gives_one_job(scheduler: Scheduler) -> None:
    submission = command("true")
    found: list[str] = []

    def submit() -> None:
        with scheduler.client() as client:
            found.append(client.submit(submission).id)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_same_key_with_another_body_is_refused(client: ApiClient) -> None:
    submission = command("true")
    client.submit(submission)
    with pytest.raises(Conflict) as refused:
        client.submit(msgspec.structs.replace(submission, name="other"))
    assert refused.value.field == "idempotency_key"


def test_secrets_reach_the_task_and_nothing_that_is_stored(scheduler: Scheduler, client: ApiClient) -> None:
    secret = f"secret-{uuid.uuid4().hex}"
    script = 'test -n "$API_TOKEN" && printf %s "$API_TOKEN" | sha256sum'
    job = client.submit(command(script, secret_env={"API_TOKEN": secret}))
    items = list(client.follow(job.id))
    output = b"".join(item.payload or b"" for item in items if item.kind == "stdout")
    assert output.decode().split()[0] == sha(secret.encode())
    # What lies in `secrets` goes when the job has ended, perhaps while we look.
    kept = [path for path in scheduler.data.rglob("*") if "secrets" not in path.parts and path.is_file()]
    small = [path for path in kept if path.stat().st_size < 50_000_000]
    assert [path for path in small if secret.encode() in path.read_bytes()] == []
    assert secret not in scheduler.said()


def test_inputs_that_were_not_uploaded_are_named(client: ApiClient) -> None:
    with pytest.raises(InvalidRequest, match="1 of 1 blobs were not uploaded") as refused:
        client.submit(with_inputs(os.urandom(100)))
    assert refused.value.field == "inputs"


def test_inline_blob_with_another_hash_is_refused(client: ApiClient) -> None:
    data = os.urandom(100)
    with pytest.raises(InvalidRequest, match="another SHA-256"):
        client.submit(with_inputs(data), {sha(data): b"something else"})


def test_upload_goes_on_where_it_was_cut_off(client: ApiClient) -> None:
    data = os.urandom(CHUNK_BYTES * 2 + 12345)
    assert client.blob_status(sha(data)).received_bytes == 0
    client._call(
        "PUT",
        f"/blobs/{sha(data)}",
        answer=dict,
        params={"offset": 0, "total": len(data)},
        content=data[:CHUNK_BYTES],
    )
    assert client.blob_status(sha(data)).received_bytes == CHUNK_BYTES
    assert client.upload({sha(data): memoryview(data)}) == len(data) - CHUNK_BYTES
    assert client.blob_status(sha(data)).complete
    assert client.upload({sha(data): data}) == 0
    assert client.fetch_blob(sha(data)) == data


def test_file_is_uploaded_and_fetched_without_standing_in_memory(client: ApiClient, folder: Any) -> None:
    data = os.urandom(3_000_000)
    (folder / "in").write_bytes(data)
    client.upload({sha(data): folder / "in"})
    client.fetch_blob_to(sha(data), folder / "out")
    assert (folder / "out").read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == ["in", "out"]


def test_broken_download_goes_on_where_it_stopped(client: ApiClient) -> None:
    data = os.urandom(2_000_000)
    client.upload({sha(data): data})
    with client._connected().stream(f"/blobs/{sha(data)}", headers={"range": "bytes=1500000-"}) as body:
        assert body.headers["content-range"] == "bytes 1500000-1999999/2000000"
        assert b"".join(body.chunks()) == data[1_500_000:]
    with (
        pytest.raises(InvalidRequest),
        client._connected().stream(f"/blobs/{sha(data)}", headers={"range": "bytes=9-3,x"}),
    ):
        pass


def test_empty_blob_is_a_blob(client: ApiClient) -> None:
    client.upload({sha(b""): b""})
    assert client.blob_status(sha(b"")).complete
    assert client.fetch_blob(sha(b"")) == b""


def test_upload_with_another_hash_is_thrown_away(client: ApiClient) -> None:
    wrong = sha(os.urandom(10))
    with pytest.raises(InvalidRequest, match="does not have the SHA-256"):
        client.upload({wrong: b"x" * 1000})
    assert client.blob_status(wrong).received_bytes == 0


def test_blob_that_nobody_brought_is_not_found(client: ApiClient) -> None:
    with pytest.raises(NotFound):
        client.fetch_blob("0" * 64)


def test_dry_run_says_where_it_would_run_and_submits_nothing(client: ApiClient) -> None:
    before = client.jobs().jobs
    answer = client.dry_run(command("true", gpus=2))
    assert answer.starts_now
    assert [len(task.gpus) for task in answer.placement] == [2]
    assert answer.queue == client.hello().default_queue
    assert [job.id for job in client.jobs().jobs] == [job.id for job in before]


def test_job_after_another_waits_for_it(client: ApiClient) -> None:
    first = client.submit(command("sleep 0.5"))
    second = client.submit(command("true", after=[str(first.number)]))
    assert second.state == "pending"
    assert f"job {first.number}" in (second.waits or "")
    assert client.why(second.id).code == "dependency"
    assert ended(client, second).state == "succeeded"
    assert client.job(first.id).state == "succeeded"


BAD = [
    ({"queue": "nowhere"}, InvalidRequest, "queue"),
    ({"roles": [RoleSubmission(gpus=-1)]}, InvalidRequest, "gpus"),
    ({"roles": [RoleSubmission(gpus=0.5)]}, NotSupported, "gpus"),
    ({"roles": [RoleSubmission(gpus=1e300)]}, InvalidRequest, "gpus"),
    ({"roles": [RoleSubmission(gpus=9)]}, NeverAsAsked, "gpus"),
    ({"roles": [RoleSubmission(count=100)]}, NeverAsAsked, "tasks"),
    ({"roles": [RoleSubmission(count=0)]}, InvalidRequest, "tasks"),
    ({"roles": [RoleSubmission(count=10**9)]}, InvalidRequest, "tasks"),
    ({"roles": [RoleSubmission(cpus=-1)]}, InvalidRequest, "cpus"),
    ({"roles": [RoleSubmission(memory_bytes=-1)]}, InvalidRequest, "memory"),
    ({"roles": [RoleSubmission(memory_bytes=1 << 59)]}, NeverAsAsked, "memory"),
    ({"roles": [RoleSubmission(gpu_types=["NO-SUCH"])]}, InvalidRequest, "gpu-type"),
    ({"roles": []}, InvalidRequest, "roles"),
    ({"roles": [RoleSubmission(), RoleSubmission()]}, InvalidRequest, "roles"),
    ({"tier": 0}, NotSupported, "tier"),
    ({"tier": 7}, InvalidRequest, "tier"),
    ({"priority": 5}, NotSupported, "priority"),
    ({"time_limit_s": 0}, InvalidRequest, "time"),
    ({"time_limit_s": -3}, InvalidRequest, "time"),
    ({"grace_s": -1}, InvalidRequest, "grace"),
    ({"retries": -1}, InvalidRequest, "retries"),
    ({"after": ["999999"]}, InvalidRequest, "after"),
    ({"after": ["../../etc"]}, InvalidRequest, "after"),
    ({"env": {"A=B": "x"}}, InvalidRequest, "env"),
    ({"env": {"A": "x\0y"}}, InvalidRequest, "env"),
    ({"env": {"A": "x" * 200_000}}, TooLarge, "env"),
    ({"secret_env": {"PATH": "x"}}, InvalidRequest, "secret_env"),
    ({"cwd": "not/absolute"}, InvalidRequest, "cwd"),
    ({"interpreter": "python"}, InvalidRequest, "interpreter"),
    ({"name": "a\nb"}, InvalidRequest, "name"),
    ({"name": ""}, InvalidRequest, "name"),
    ({"outputs": ["not a name"]}, InvalidRequest, "outputs"),
    ({"mutable_inputs": ["unknown"]}, InvalidRequest, "mutable_inputs"),
    ({"source": "x" * (5 << 20)}, TooLarge, "source"),
    ({"key": "with space"}, InvalidRequest, "idempotency_key"),
    ({"protocol": 99}, VersionMismatch, "protocol"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "error", "field"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_refused_by_field_and_changes_nothing(
    client: ApiClient, fields: dict[str, Any], error: type[GpuclusterError], field: str
) -> None:
    fields = dict(fields)
    if "env" in fields:
        submission = msgspec.structs.replace(command("true"), env=fields["env"])
    elif "source" in fields:
        submission = msgspec.structs.replace(command("true"), source=fields["source"])
    else:
        submission = command("true", **fields)
    before = client.status().jobs
    with pytest.raises(error) as refused:
        client.submit(submission)
    assert type(refused.value) is error
    assert refused.value.field == field
    assert sum(client.status().jobs.values()) == sum(before.values())


def test_unknown_field_is_refused_by_name(client: ApiClient) -> None:
    class Odd(msgspec.Struct):
        kind: str = "command"
        source: str = "x"
        idempotency_key: str = "k"
        gpuz: int = 1

    with pytest.raises(InvalidRequest) as refused:
        client._call("POST", "/jobs", answer=dict, body=Odd())
    assert refused.value.field == "gpuz"


def test_body_that_is_no_json_is_refused(client: ApiClient) -> None:
    with pytest.raises(InvalidRequest, match="not JSON"):
        client._call("POST", "/jobs", answer=dict, content=b"{", repeat=False)


def test_body_over_the_limit_is_refused_with_its_size(client: ApiClient) -> None:
    with pytest.raises(TooLarge, match="at most"):
        client._call("POST", "/jobs", answer=dict, content=b" " * (20 << 20), repeat=False)
    assert client.hello().protocol


@pytest.mark.parametrize("job", ["0", "99999999", "zzz", "0" * 26, "9" * 30])
def test_job_that_is_not_there_is_not_found(client: ApiClient, job: str) -> None:
    with pytest.raises(NotFound, match="there is no job"):
        client.job(job)


def test_misspelt_filter_selects_nothing_by_accident(client: ApiClient) -> None:
    with pytest.raises(InvalidRequest) as refused:
        client._call("GET", "/jobs", answer=dict, params={"stat": "running"})
    assert refused.value.field == "stat"


def test_list_is_paged_newest_first(client: ApiClient) -> None:
    numbers = [client.submit(command("true")).number for _ in range(5)]
    first = client.jobs(limit=2)
    second = client.jobs(limit=2, before=first.next_before)
    assert [job.number for job in [*first.jobs, *second.jobs]] == sorted(numbers, reverse=True)[:4]
    assert {job.number for job in client.jobs(ids=[str(numbers[0]), "987654"]).jobs} == {numbers[0]}
    with pytest.raises(InvalidRequest, match="there is no state"):
        client.jobs(states=["done"])


def test_jobs_of_a_notebooks_cells_are_listed_together(client: ApiClient) -> None:
    runs = [
        client.submit(
            command("true", cell_id=cell, notebook_path=path, execution_count=count, fills_cell=True)
        )
        for count, (cell, path) in enumerate(
            [
                ("one", "/a.ipynb"),
                ("two", "/a.ipynb"),
                ("three", "/a.ipynb"),
                ("one", "/b.ipynb"),
                ("one", "/a.ipynb"),
            ]
        )
    ]
    found = client.jobs(cell=["one", "two", "nowhere"], notebook="/a.ipynb").jobs
    assert [view.id for view in found] == [runs[index].id for index in (4, 1, 0)]
    assert [(view.cell_id, view.execution_count, view.fills_cell) for view in found] == [
        ("one", 4, True),
        ("two", 1, True),
        ("one", 0, True),
    ]
    assert [view.id for view in client.jobs(cell="one").jobs] == [runs[index].id for index in (4, 3, 0)]
    for cells in ([f"cell-{number}" for number in range(201)], ","):
        with pytest.raises(InvalidRequest, match="cell"):
            client.jobs(cell=cells)


def test_list_of_jobs_stays_small_whatever_they_say_and_however_many_tasks_they_have(
    client: ApiClient,
) -> None:
    gang = client.submit(command("true", roles=[RoleSubmission(gpus=0, cpus=0.01, count=20)]))
    cell = JobSubmission(
        kind="cell",
        source="raise ValueError('x' * 100_000)",
        idempotency_key=uuid.uuid4().hex,
        interpreter=sys.executable,
        roles=[RoleSubmission(gpus=0)],
    )
    failed = client.submit(cell)
    ended(client, gang)
    whole = ended(client, failed)
    listed = {job.id: job for job in client.jobs(ids=[gang.id, failed.id]).jobs}
    tasks = listed[gang.id].attempt
    assert tasks is not None
    assert ([task.rank for task in tasks.tasks], tasks.tasks_left_out) == (list(range(16)), 4)
    alone = client.job(gang.id).attempt
    assert alone is not None
    assert (len(alone.tasks), alone.tasks_left_out) == (20, 0)
    assert "ValueError" in (listed[failed.id].reason or "")
    assert whole.reason is not None
    assert len(msgspec.json.encode(listed[failed.id])) < 4000
