from __future__ import annotations

import os

import pytest
from support.store_samples import new_id

from gpucluster.model.errors import InvalidRequest, NotFound, Unavailable
from gpucluster.store import Store


def test_secrets_come_back_and_their_file_is_private(store: Store) -> None:
    job_id = new_id()
    store.secrets.write(job_id, {"TOKEN": "s3cret", "EMPTY": ""})
    assert store.secrets.read(job_id, ["TOKEN", "EMPTY"]) == {"TOKEN": "s3cret", "EMPTY": ""}
    (path,) = store.folder.secrets.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert store.folder.secrets.stat().st_mode & 0o777 == 0o700


def test_a_job_without_secrets_has_no_file(store: Store) -> None:
    store.secrets.write(new_id(), {})
    assert store.secrets.read(new_id(), []) == {}
    assert list(store.folder.secrets.iterdir()) == []


def test_a_secret_that_is_gone_is_an_error_not_an_empty_value(store: Store) -> None:
    job_id = new_id()
    store.secrets.write(job_id, {"A": "1"})
    with pytest.raises(NotFound, match="B of job"):
        store.secrets.read(job_id, ["A", "B"])
    store.secrets.remove(job_id)
    store.secrets.remove(job_id)
    with pytest.raises(NotFound, match="A of job"):
        store.secrets.read(job_id, ["A"])


def test_a_damaged_file_is_an_error(store: Store) -> None:
    job_id = new_id()
    store.secrets.write(job_id, {"A": "1"})
    next(store.folder.secrets.iterdir()).write_text("{")
    with pytest.raises(Unavailable, match="damaged"):
        store.secrets.read(job_id, ["A"])


def test_sweeping_keeps_the_secrets_of_open_jobs_only(store: Store) -> None:
    open_, gone = new_id(), new_id()
    for job_id in (open_, gone):
        store.secrets.write(job_id, {"A": "1"})
    (store.folder.secrets / f".{gone}.json.123.tmp").write_text("half written")
    assert store.secrets.sweep([open_]) == 2
    assert os.listdir(store.folder.secrets) == [f"{open_}.json"]


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".", "a" * 65])
def test_no_path_can_be_smuggled_in(store: Store, bad: str) -> None:
    with pytest.raises(InvalidRequest):
        store.secrets.write(bad, {"A": "1"})
