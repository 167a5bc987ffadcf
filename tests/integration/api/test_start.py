from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.api import discovery, embedded
from gpucluster.api.client import connect
from gpucluster.api.clock import SystemClock
from gpucluster.api.discovery import RuntimeInfo
from gpucluster.api.errors import Conflict, InvalidRequest, Unavailable
from gpucluster.store import Store

from .conftest import TIMEOUT_S, Scheduler, command, ended, wait_until


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process as a client with folders of its own; an embedded scheduler that comes up is ended."""
    for name in list(os.environ):
        if name.startswith(("GPUCLUSTER_", "JUPYTER_GPUCLUSTER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUCLUSTER_DATA", str(folder / "data"))
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(folder / "run"))
    yield folder
    info = discovery.find_scheduler()
    if info is not None:
        with contextlib.suppress(Unavailable), connect() as client:
            client.stop()
        wait_until(lambda: not discovery.is_running(info), "the scheduler to end")


def test_first_use_brings_up_a_scheduler_of_its_own(home: Path) -> None:
    assert discovery.find_scheduler() is None
    with connect() as client:
        info = discovery.find_scheduler()
        assert info is not None
        assert client.hello().pid == info.pid
        assert client.hello().principal == f"unix:{os.getuid()}"
        assert oct(os.stat(info.socket).st_mode & 0o777) == "0o600"
        assert oct(os.stat(os.path.dirname(info.socket)).st_mode & 0o777) == "0o700"
        assert len(os.fsencode(info.socket)) < 100


def test_scheduler_is_detached_from_who_started_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    monkeypatch.setenv("JUPYTER_TOKEN", "hidden")
    info = embedded.ensure_scheduler()
    assert os.getsid(info.pid) != os.getsid(0)
    stat = Path(f"/proc/{info.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) != os.getpid()  # no child of ours: neither a zombie nor ended with us
    environment = Path(f"/proc/{info.pid}/environ").read_bytes()
    assert b"JPY_PARENT_PID" not in environment
    assert b"hidden" not in environment
    assert os.readlink(f"/proc/{info.pid}/cwd") == "/"


def test_two_that_start_at_the_same_moment_use_the_same_scheduler(home: Path) -> None:
    script = "from gpucluster.api.client import connect; print(connect().hello().pid)"
    starters = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    pids = {starter.communicate(timeout=TIMEOUT_S)[0].strip() for starter in starters}
    assert len(pids) == 1
    assert pids != {""}


def test_start_by_hand_and_by_a_notebook_at_the_same_moment(home: Path) -> None:
    by_hand = Scheduler(home)
    by_hand.process = by_hand.spawn()
    with connect() as client:
        pid = client.hello().pid
        if pid == by_hand.process.pid:
            assert by_hand.process.poll() is None
        else:
            assert by_hand.process.wait(TIMEOUT_S) != 0
            assert "another scheduler" in by_hand.said()
        client.stop()
    by_hand.process.wait(TIMEOUT_S)


def test_second_scheduler_on_the_same_data_folder_is_refused(fresh: Scheduler) -> None:
    fresh.start()
    second = Scheduler(fresh.folder)
    second.env["GPUCLUSTER_RUNTIME"] = str(fresh.folder / "other-run")
    refused = second.spawn()
    assert refused.wait(TIMEOUT_S) != 0
    assert fresh.process is not None
    assert f"another scheduler (pid {fresh.process.pid}" in second.said()
    with fresh.client() as client:
        assert client.hello().pid == fresh.process.pid


def test_files_left_by_a_killed_scheduler_are_seen_through(home: Path) -> None:
    first = embedded.ensure_scheduler()
    os.kill(first.pid, 9)
    wait_until(lambda: not discovery.is_running(first), "the scheduler to be gone")
    assert discovery.find_scheduler() is None
    second = embedded.ensure_scheduler()
    assert second.pid != first.pid


def test_file_of_another_boot_or_machine_is_not_believed(home: Path) -> None:
    info = embedded.ensure_scheduler()
    path = discovery.claim_file(discovery.data_folder())
    runtime = discovery.runtime_file(
        discovery.runtime_folder(), discovery.scheduler_key(discovery.data_folder())
    )
    # It is written right after the file by which the scheduler was found.
    wait_until(runtime.exists, "the runtime file")
    text = json.loads(path.read_text())
    runtime.unlink()
    for field in ("host", "boot_id"):
        path.write_text(json.dumps({**text, field: "another"}))
        assert discovery.find_scheduler() is None
    path.write_text(json.dumps({**text, "start_ticks": 1}))
    assert discovery.find_scheduler() is None
    path.write_text(json.dumps(text))
    assert discovery.find_scheduler() == info


def test_client_with_another_runtime_folder_finds_the_scheduler(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = embedded.ensure_scheduler()
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(home / "elsewhere"))
    assert discovery.find_scheduler() == info
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(home / "run"))


def test_long_runtime_folder_gets_a_short_socket(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(home / ("long" * 30)))
    info = embedded.ensure_scheduler()
    assert len(os.fsencode(info.socket)) < 100
    with connect() as client:
        assert client.hello().pid == info.pid


def test_failed_start_ends_with_what_the_scheduler_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = home / "cluster.yaml"
    config.write_text("queues: [\n")
    monkeypatch.setenv("GPUCLUSTER_CONFIG", str(config))
    began = time.monotonic()
    with pytest.raises(Unavailable) as failed:
        connect()
    assert "did not start" in str(failed.value)
    assert "cluster.yaml" in str(failed.value)
    assert time.monotonic() - began < TIMEOUT_S


def test_no_scheduler_and_no_start_fails_at_once(home: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no scheduler runs"):
        connect(start=False)
    with pytest.raises(Unavailable, match="no scheduler answers"):
        connect(f"unix:{home}/none.sock")
    assert time.monotonic() - began < TIMEOUT_S
    with pytest.raises(InvalidRequest, match="not an address"):
        connect("gopher://x")


def test_scheduler_that_was_stopped_is_not_brought_back_by_who_waits(home: Path) -> None:
    with connect() as client:
        job = client.submit(command("sleep 2"))
        follower = client.follow(job.id)
        next(follower)
        info = discovery.find_scheduler()
        assert info is not None
        seen: list[object] = []
        reader = threading.Thread(target=lambda: seen.extend(follower))
        reader.start()
        client.stop()
        wait_until(lambda: not discovery.is_running(info), "the scheduler to end")
        time.sleep(1)
        assert discovery.find_scheduler() is None
        assert (
            ended(client, job).state == "succeeded"
        )  # a request does bring one up, and the follower goes on
        reader.join(TIMEOUT_S)
        assert not reader.is_alive()


def test_scheduler_that_was_killed_is_brought_back_by_who_waits(home: Path) -> None:
    with connect() as client:
        job = client.submit(command("sleep 1; echo done"))
        follower = client.follow(job.id)
        next(follower)
        info = discovery.find_scheduler()
        assert info is not None
        os.kill(info.pid, 9)
        output = b"".join(item.payload or b"" for item in follower if item.kind == "stdout")
        assert output == b"done\n"


def idle_config(folder: Path) -> str:
    config = folder / "cluster.yaml"
    config.write_text("idle_stop: 1s\n")
    return str(config)


def test_idle_scheduler_ends_only_without_jobs_and_clients(fresh: Scheduler) -> None:
    fresh.start("--config", idle_config(fresh.folder))
    assert fresh.process is not None
    with fresh.client() as client:
        client.submit(command("sleep 3"))
    time.sleep(2)
    assert fresh.process.poll() is None
    assert fresh.process.wait(TIMEOUT_S) == 0
    assert "no job and no client" in fresh.log()
    with pytest.raises(Unavailable):
        connect(start=False, data_dir=fresh.data)


def test_socket_and_runtime_file_come_back_when_they_were_cleaned_away(
    fresh: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary folders are cleaned; here the renewal is what is tested, so it is waited for."""
    fresh.start()
    info = fresh.info()
    assert info is not None
    os.unlink(info.socket)
    discovery.claim_file(Path(info.data_dir)).unlink()
    wait_until(fresh.info, "the scheduler to be findable again", 60)
    with fresh.client() as client:
        assert client.hello().pid == info.pid


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second account, so root")
def test_other_account_cannot_even_connect(fresh: Scheduler) -> None:
    fresh.start()
    info = fresh.info()
    assert info is not None
    script = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "try: s.connect(sys.argv[1])\n"
        "except PermissionError: sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, info.socket], check=False).returncode == 7


@pytest.mark.skipif(os.getuid() != 0, reason="needs a second account, so root")
def test_folder_of_another_account_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = folder / "run"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    monkeypatch.setenv("GPUCLUSTER_RUNTIME", str(theirs))
    with pytest.raises(InvalidRequest, match="belongs to uid 65534"):
        discovery.runtime_folder()


def test_claim_of_another_machine_on_a_network_folder_is_respected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpucluster.api import ownership

    monkeypatch.setattr(ownership, "network_file_system", lambda path: "nfs")
    runtime = discovery.private_folder(folder / "run", field="x")
    data = folder / "data"
    data.mkdir()
    there = RuntimeInfo(
        pid=1,
        start_ticks=1,
        pid_namespace="",
        host="elsewhere",
        boot_id="b",
        protocol=(1, 1),
        socket="/x",
        data_dir=str(data),
        version="1",
        seen_us=time.time_ns() // 1000,
    )
    discovery.write_runtime_file(discovery.claim_file(data), there)
    with (
        pytest.raises(Conflict, match="a scheduler on elsewhere"),
        ownership.DataFolderOwnership(data, runtime, "key"),
    ):
        pass
    there.seen_us -= 200_000_000
    discovery.write_runtime_file(discovery.claim_file(data), there)
    with ownership.DataFolderOwnership(data, runtime, "key"):
        assert not (data / ownership.LOCK_NAME).exists()


def test_queues_that_are_served_stand_in_the_store_and_follow_the_configuration(fresh: Scheduler) -> None:
    config = fresh.folder / "cluster.yaml"
    stored = []
    for name in ("vision", "speech"):
        config.write_text(f"queues:\n  - name: {name}\ndefault_queue: {name}\n")
        fresh.start("--config", str(config))
        with fresh.client() as client:
            served = [queue.name for queue in client.queues()]
        fresh.stop()
        with contextlib.closing(Store.open(fresh.data, SystemClock(), read_only=True)) as store:
            stored.append([queue.name for queue in store.queues()])
        assert ["root", *stored[-1]] == served
    assert stored == [["vision"], ["speech"]]
