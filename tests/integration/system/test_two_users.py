"""Two accounts on one machine, each with a scheduler of its own: neither reaches the other, and files that somebody else
could have put there are not trusted. Needs root, to become them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.place import Place, place

from gpucluster.api.client import connect
from gpucluster.api.errors import Forbidden

#: One that has an entry in every system (nobody), and one that has none, as in containers.
ANN, BOB = 65534, 54321

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs two more accounts, so root")


@pytest.fixture(scope="module")
def ann() -> Iterator[Place]:
    with place(ANN) as made:
        yield made.serve()


@pytest.fixture(scope="module")
def bob() -> Iterator[Place]:
    with place(BOB) as made:
        yield made.serve()


@pytest.fixture
def stranger() -> Iterator[Place]:
    """Bob with nothing running."""
    with place(BOB) as made:
        yield made


@contextlib.contextmanager
def opened(where: Place) -> Iterator[None]:
    """The place's socket as if somebody had opened it to all."""
    info = where.info()
    assert info is not None
    changes = [(where.runtime, 0o711), (Path(info.socket), 0o666)]
    before = [(path, os.stat(path).st_mode & 0o777) for path, _ in changes]
    for path, bits in changes:
        path.chmod(bits)
    try:
        yield
    finally:
        for path, bits in before:
            path.chmod(bits)


def mode(path: Path | str) -> str:
    return oct(os.stat(path).st_mode & 0o777)


def test_each_has_a_scheduler_and_jobs_of_their_own(ann: Place, bob: Place) -> None:
    out, _ = ann.cli("submit", "--gpus", "1", "--follow", "--", "id", "-u")
    assert out == f"{ANN}\n"
    out, _ = bob.cli("submit", "--gpus", "1", "--follow", "--name", "of bob", "--", "id", "-u")
    assert out == f"{BOB}\n"
    assert [job["name"] for job in ann.json("jobs", "--all")["jobs"]] == ["id -u"]
    assert [job["name"] for job in bob.json("jobs", "--all")["jobs"]] == ["of bob"]
    assert {(job["owner"], job["owner_name"]) for job in bob.json("jobs", "--all")["jobs"]} == {
        (f"unix:{BOB}", f"uid-{BOB}")
    }


def test_folders_socket_and_database_are_closed_to_others(ann: Place) -> None:
    info = ann.info()
    assert info is not None
    assert (mode(ann.data), mode(ann.runtime), mode(info.socket)) == ("0o700", "0o700", "0o600")
    for name in ("gpucluster.sqlite3", "scheduler.json", "scheduler.log", "secrets"):
        assert os.stat(ann.data / name).st_mode & 0o077 == 0, name
    assert all(os.stat(path).st_uid == ANN for path in ann.data.rglob("*"))


def test_address_of_another_account_is_refused_with_a_clear_error(ann: Place, bob: Place) -> None:
    info = ann.info()
    assert info is not None
    _, err = bob.cli("status", "--address", info.address, code=5)
    assert "belongs to another account" in err
    assert info.socket in err
    assert "Traceback" not in err
    _, err = bob.cli("submit", "--address", info.address, "--", "true", code=5)
    assert "belongs to another account" in err


def test_data_folder_of_another_account_is_refused(ann: Place, stranger: Place) -> None:
    before = ann.contents()
    _, err = stranger.cli("submit", "--data", str(ann.data), "--", "true", code=3)
    assert str(ann.data) in err
    assert "Traceback" not in err
    assert "bug" not in err
    with stranger.popen(stranger.python, "-m", "gpucluster", "serve", "--data", str(ann.data)) as serving:
        _, said = serving.communicate(timeout=60)
    assert serving.returncode == 3, said
    assert str(ann.data) in said.decode()
    assert b"Traceback" not in said
    assert ann.contents() == before


def test_runtime_folder_of_another_account_is_refused(ann: Place, stranger: Place) -> None:
    _, err = stranger.cli("submit", "--", "true", env={"GPUCLUSTER_RUNTIME": str(ann.runtime)}, code=2)
    assert f"GPUCLUSTER_RUNTIME: {ann.runtime} belongs to uid {ANN}, not to you" in err
    assert "Set GPUCLUSTER_RUNTIME to a folder of yours." in err
    assert not stranger.data.exists()


def test_runtime_folder_that_others_may_write_is_refused(stranger: Place) -> None:
    """Whoever can write there can put a socket of theirs where clients look for ours."""
    shared = stranger.folder / "shared"
    shared.mkdir()
    os.chown(shared, BOB, BOB)
    shared.chmod(0o777)
    _, err = stranger.cli("submit", "--", "true", env={"GPUCLUSTER_RUNTIME": str(shared)}, code=2)
    assert f"GPUCLUSTER_RUNTIME: others may write to {shared}" in err
    assert f"chmod 700 {shared}" in err
    assert not stranger.data.exists()


def test_runtime_folder_that_others_may_read_is_closed_and_used(stranger: Place) -> None:
    shared = stranger.folder / "shared"
    shared.mkdir()
    os.chown(shared, BOB, BOB)
    stranger.cli("submit", "--gpus", "0", "--", "true", env={"GPUCLUSTER_RUNTIME": str(shared)})
    assert mode(shared) == "0o700"


def test_link_in_place_of_the_runtime_folder_is_refused(ann: Place, stranger: Place) -> None:
    link = stranger.folder / "link"
    link.symlink_to(ann.runtime)
    _, err = stranger.cli("status", env={"GPUCLUSTER_RUNTIME": str(link)}, code=2)
    assert f"{link} is not a folder of its own" in err


def test_default_runtime_folder_that_somebody_else_took_is_refused_by_name(stranger: Place) -> None:
    """The name in the shared temporary folder can be guessed, so somebody else may be there first."""
    shared = stranger.folder / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    squat = shared / f"gpucluster-{BOB}"
    squat.mkdir()
    os.chown(squat, ANN, ANN)
    env = {"TMPDIR": str(shared), "GPUCLUSTER_RUNTIME": ""}
    _, err = stranger.cli("submit", "--", "true", env=env, code=2)
    assert f"{squat} belongs to uid {ANN}" in err
    assert "Set GPUCLUSTER_RUNTIME to a folder of yours." in err


def test_runtime_file_that_somebody_else_wrote_is_not_believed(ann: Place, stranger: Place) -> None:
    """Where the data folder is open to a group, another member could write there that our scheduler is theirs."""
    stranger.data.mkdir()
    os.chown(stranger.data, BOB, BOB)
    info = ann.info()
    assert info is not None
    forged = (ann.data / "scheduler.json").read_text().replace(str(ann.data), str(stranger.data))
    claim = stranger.data / "scheduler.json"
    claim.write_text(forged)
    os.chown(claim, ANN, ANN)
    claim.chmod(0o644)
    with opened(ann):
        assert stranger.json("status", "--address", info.address)["data_dir"] == str(ann.data), (
            "it can be reached"
        )
        _, err = stranger.cli("status", code=3)
        assert "no scheduler is running" in err
        out, _ = stranger.cli("submit", "--gpus", "0", "--follow", "--", "id", "-u")
        assert out == f"{BOB}\n"


def test_who_gets_to_the_socket_all_the_same_is_a_stranger_and_no_owner(ann: Place, bob: Place) -> None:
    """The kernel says who connects: open folders do not make Bob Ann."""
    info = ann.info()
    assert info is not None
    number = ann.cli("submit", "--gpus", "1", "--name", "of ann", "--", "sleep", "600")[0].strip()
    with opened(ann):
        listed = bob.json("jobs", "--all", "--address", info.address)["jobs"]
        assert [job["mine"] for job in listed if job["number"] == int(number)] == [False]
        _, err = bob.cli("logs", number, "--address", info.address, code=5)
        assert "Traceback" not in err
        bob.cli("cancel", number, "--address", info.address, code=5)
        bob.cli("stop", "--address", info.address, code=5)
        bob.cli("nodes", "set", "node-0", "cordoned", "--address", info.address, code=5)
    with ann.client() as client:
        assert client.job(number).state == "running"


def test_root_administers_and_does_not_read(ann: Place) -> None:
    info = ann.info()
    assert info is not None
    number = ann.cli(
        "submit", "--gpus", "1", "--name", "private", "--", "sh", "-c", "echo secret; sleep 600"
    )[0].strip()
    with connect(info.address, start=False) as root:
        job = root.job(number)
        assert (job.owner, job.owner_name) == (f"unix:{ANN}", pwd.getpwuid(ANN).pw_name)
        assert (job.mine, job.can_control, job.can_read) == (False, True, False)
        with pytest.raises(Forbidden):
            root.source(number)
        with pytest.raises(Forbidden):
            list(root.follow(number))
        root.cancel(number, "maintenance")
    assert ann.ended(number).state == "cancelled"
    why, _ = ann.cli("why", number)
    assert "maintenance" in why


def test_account_without_a_home_is_told_which_folder_to_set(stranger: Place) -> None:
    """No HOME and no entry either: nothing is written to a folder named ~."""
    for name in ("HOME", "GPUCLUSTER_DATA"):
        del stranger.env[name]
    _, err = stranger.cli("submit", "--gpus", "0", "--", "true", code=2)
    assert "GPUCLUSTER_DATA" in err
    assert "this account has no home" in err
    assert list(stranger.work.iterdir()) == []
