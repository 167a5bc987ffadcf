from __future__ import annotations

import gc
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable

import pytest

from gpucluster.api.client import ApiClient
from gpucluster.api.errors import InvalidRequest
from gpucluster.api.schemas import StreamItem
from gpucluster.api.words import gone_text

from .conftest import TIMEOUT_S, Scheduler, command, ended, wait_until

COUNTING = 'i=0; while [ $i -lt {n} ]; do echo "line $i"; i=$((i+1)); sleep {pause}; done'


def text(items: Iterable[StreamItem]) -> str:
    return b"".join(item.payload or b"" for item in items if item.kind in ("stdout", "stderr")).decode()


def lines(n: int) -> str:
    return "".join(f"line {i}\n" for i in range(n))


def test_stream_begins_with_the_job_and_ends_with_its_final_state(client: ApiClient) -> None:
    job = client.submit(command("echo a; sleep 0.2; echo b"))
    items = list(client.follow(job.id))
    assert items[0].type == "job"
    assert [item.type for item in items[-2:]] == ["job", "end"]
    assert items[-2].job is not None
    assert items[-2].job.state == "succeeded"
    assert text(items) == "a\nb\n"
    records = [item for item in items if item.type == "record"]
    assert [item.sequence for item in records] == list(range(len(records)))


def test_ended_job_gives_the_same_records_again(client: ApiClient) -> None:
    job = client.submit(command("echo a; echo b >&2; echo c"))
    live = [
        (item.attempt, item.sequence, item.payload) for item in client.follow(job.id) if item.type == "record"
    ]
    again = [
        (item.attempt, item.sequence, item.payload) for item in client.follow(job.id) if item.type == "record"
    ]
    assert live == again


def test_cursor_goes_on_after_the_last_record_seen(client: ApiClient) -> None:
    job = client.submit(command(COUNTING.format(n=20, pause=0.01)))
    first = client.follow(job.id)
    seen = []
    for item in first:
        seen.append(item)
        if "line 5" in text(seen):
            break
    first.close()
    rest = list(client.follow(job.id, cursor=first.cursor))
    assert text(seen) + text(rest) == lines(20)


def test_stream_that_does_not_follow_ends_with_what_is_there(client: ApiClient) -> None:
    job = client.submit(command("echo now; sleep 60; echo later"))
    wait_until(lambda: "now" in text(client.follow(job.id, follow=False)), "the first line")
    items = list(client.follow(job.id, follow=False))
    assert items[-1].type == "end"
    assert text(items) == "now\n"
    client.cancel(job.id)


def test_every_rank_has_a_log_of_its_own(client: ApiClient) -> None:
    job = client.submit(command("echo rank $RANK of $WORLD_SIZE", tasks=3))
    assert [text(client.follow(job.id, rank=rank)) for rank in range(3)] == [
        f"rank {r} of 3\n" for r in range(3)
    ]
    with pytest.raises(InvalidRequest, match="ranks 0 to 2"):
        list(client.follow(job.id, rank=3))
    with pytest.raises(InvalidRequest, match="ranks 0 to 2"):
        client.result(job.id, rank=3)


def test_attempts_follow_each_other_in_one_stream(client: ApiClient) -> None:
    job = client.submit(command('echo "try $GPUCLUSTER_ATTEMPT"; test "$GPUCLUSTER_ATTEMPT" = 2', retries=1))
    items = list(client.follow(job.id))
    assert [item.attempt for item in items if item.type == "attempt"] == [1, 2]
    assert text(items) == "try 1\ntry 2\n"
    assert text(client.log(job.id, attempt=1)) == "try 1\n"
    assert text(client.log(job.id, attempt=2)) == "try 2\n"


def test_third_attempt_is_shown_while_it_runs(client: ApiClient) -> None:
    """The second one was looked at while it was active; the stream must learn that it has ended."""
    script = 'echo "try $GPUCLUSTER_ATTEMPT"; sleep 0.5; test "$GPUCLUSTER_ATTEMPT" = 4'
    job = client.submit(command(script, retries=3))
    items = list(client.follow(job.id))
    assert [item.attempt for item in items if item.type == "attempt"] == [1, 2, 3, 4]
    assert text(items) == "try 1\ntry 2\ntry 3\ntry 4\n"


def test_tail_gives_the_last_records(client: ApiClient) -> None:
    job = client.submit(command(COUNTING.format(n=30, pause=0.005)))
    ended(client, job)
    everything = [item for item in client.log(job.id) if item.type == "record"]
    tail = [item for item in client.log(job.id, tail=3) if item.type == "record"]
    assert [item.sequence for item in tail] == [item.sequence for item in everything[-3:]]
    none = client.log(job.id, tail=0)
    assert [item.type for item in none] == ["attempt", "end"]
    assert none.cursor == (1, everything[-1].offset + 28 + len(everything[-1].payload or b""))


def test_large_output_arrives_whole_and_in_order(client: ApiClient) -> None:
    job = client.submit(command("seq 1 400000"))
    assert text(client.follow(job.id)) == "".join(f"{i}\n" for i in range(1, 400001))


def test_offset_inside_a_record_is_refused(client: ApiClient) -> None:
    job = client.submit(command("echo a"))
    ended(client, job)
    with pytest.raises(InvalidRequest) as refused:
        list(client.follow(job.id, cursor=(1, 7)))
    assert refused.value.field == "offset"


def test_stream_that_nobody_closed_does_not_stop_later_requests(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector closes it at any moment: here while the pool of connections holds its lock."""
    pool = pytest.importorskip("httpcore._sync.connection_pool")
    make = pool.PoolRequest.__init__

    def collecting(self: object, *args: object) -> None:
        gc.collect()
        make(self, *args)

    job = client.submit(command("sleep 60"))
    gc.disable()
    try:
        follower = client.follow(job.id)
        next(follower)
        follower.itself = follower  # type: ignore[attr-defined]
        del follower
        monkeypatch.setattr(pool.PoolRequest, "__init__", collecting)
        thread = threading.Thread(target=lambda: client.job(job.id), daemon=True)
        thread.start()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    finally:
        gc.enable()
        monkeypatch.undo()
    client.cancel(job.id)


def test_close_from_another_thread_wakes_a_waiting_reader(client: ApiClient) -> None:
    job = client.submit(command("sleep 60"))
    follower = client.follow(job.id)
    reader = threading.Thread(target=lambda: list(follower))
    reader.start()
    wait_until(lambda: follower.connected, "the stream")
    follower.close()
    reader.join(TIMEOUT_S)
    assert not reader.is_alive()
    client.cancel(job.id)


def test_reader_that_does_not_read_holds_up_nobody(scheduler: Scheduler, client: ApiClient) -> None:
    """Its socket fills up; the scheduler waits for it alone, and takes no more memory than the reader asked for."""
    info = scheduler.info()
    assert info is not None
    job = client.submit(command("yes 0123456789012345678901234567890123456789 | head -c 60000000"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lazy:
        lazy.connect(info.socket)
        lazy.sendall(f"GET /v1/jobs/{job.id}/output HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        ended(client, job)
        before = memory_of(info.pid)
        other = client.submit(command("echo quick"))
        assert text(client.follow(other.id)) == "quick\n"
        assert memory_of(info.pid) - before < 50 << 20
        lazy.settimeout(TIMEOUT_S)
        assert lazy.recv(15) == b"HTTP/1.1 200 OK"


def memory_of(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_follower_survives_a_kill_of_the_scheduler_without_gap_or_repetition(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        job = client.submit(command(COUNTING.format(n=80, pause=0.05)))
        seen: list[StreamItem] = []
        follower = client.follow(job.id)
        reader = threading.Thread(target=lambda: seen.extend(follower))
        reader.start()
        for mark in ("line 5\n", "line 25\n"):
            wait_until(lambda mark=mark: mark in text(list(seen)), mark)
            fresh.kill()
            time.sleep(0.3)
            fresh.start()
        reader.join(TIMEOUT_S)
        assert not reader.is_alive()
        assert text(seen) == lines(80)
        assert client.job(job.id).attempts_made == 1
        assert seen[-1].type == "end"


def test_follower_survives_an_orderly_restart(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        job = client.submit(command(COUNTING.format(n=30, pause=0.05)))
        seen: list[StreamItem] = []
        reader = threading.Thread(target=lambda: seen.extend(client.follow(job.id)))
        reader.start()
        wait_until(lambda: "line 5\n" in text(list(seen)), "some output")
        assert fresh.stop() == 0
        assert "1 tasks go on" in fresh.log()
        fresh.start()
        reader.join(TIMEOUT_S)
        assert text(seen) == lines(30)


def test_submission_during_a_restart_gives_exactly_one_job(fresh: Scheduler) -> None:
    fresh.start()
    with fresh.client() as client:
        client.submit(command("true"))
        fresh.kill()
        submitted: list[str] = []
        submission = command("true", name="during")
        waiting = threading.Thread(target=lambda: submitted.append(client.submit(submission).id))
        waiting.start()
        time.sleep(0.3)
        fresh.start()
        waiting.join(TIMEOUT_S)
        named = [job.id for job in client.jobs().jobs if job.name == "during"]
        assert named == submitted


def test_log_that_is_no_longer_there_is_told_to_every_reader(client: ApiClient, scheduler: Scheduler) -> None:
    job = ended(client, client.submit(command("echo hello")))
    assert job.attempt is not None
    shutil.rmtree(scheduler.data / "tasks" / job.attempt.id)
    told = [item for item in client.log(job.id) if item.type != "attempt"]
    assert [(item.type, item.attempt) for item in told] == [("gone", 1), ("end", 0)]
    assert gone_text(told[0]) == "the log of attempt 1 is no longer there"
    with sqlite3.connect(scheduler.data / "gpucluster.sqlite3") as store:
        noted = (1_699_963_200_000_000, "the retention of 30 days", job.attempt.id)
        store.execute(
            "UPDATE attempts SET files_discarded_us = ?, files_discarded_why = ? WHERE id = ?", noted
        )
    follower = client.follow(job.id)
    gone = [item for item in follower if item.type == "gone"]
    assert [gone_text(item) for item in gone] == [
        "the log of attempt 1 was removed on 2023-11-14 by the retention of 30 days"
    ]
    again = list(client.follow(job.id, cursor=follower.cursor))
    assert [item.type for item in again] == ["job", "gone", "end"]
