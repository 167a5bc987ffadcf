from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.store_samples import (
    ANNA,
    BEN,
    ManualClock,
    ended,
    sample_attempt,
    sample_job,
    sha256,
    started,
    submitted,
)

from gpucluster.engine.protocols import ChangeSet
from gpucluster.model.errors import Conflict, InvalidRequest, NotFound, TooLarge, Unavailable
from gpucluster.model.jobs import InputManifest, ResultManifest, TaskExit
from gpucluster.store import Store, blob_files
from gpucluster.store.blobs import GRACE_S, STALE_UPLOAD_S, BlobStore

CONTENT = bytes(range(256)) * 100
HASH = sha256(CONTENT)


@pytest.fixture(params=["local", "fsspec"])
def blobs(request: pytest.FixtureRequest, store: Store, clock: ManualClock) -> BlobStore:
    if request.param == "local":
        return store.blobs
    return BlobStore(store.database, store.folder, clock, url=f"memory://{store.folder.path}")


def upload(blobs: BlobStore, content: bytes, principal_id: str, chunk: int = 1000) -> None:
    for offset in range(0, len(content), chunk):
        blobs.upload(sha256(content), principal_id, offset, content[offset : offset + chunk], len(content))


def leftovers(store: Store) -> list[str]:
    return sorted(os.listdir(store.folder.uploads))


# ---- uploads


def test_an_upload_in_chunks_becomes_a_blob_of_its_sender(blobs: BlobStore, store: Store) -> None:
    upload(blobs, CONTENT, ANNA.id)
    assert blobs.status(HASH, ANNA.id).complete
    assert blobs.missing([HASH], ANNA.id) == []
    assert blobs.size(HASH) == len(CONTENT)
    with blobs.open_read(HASH, offset=1000) as file:
        assert file.read() == CONTENT[1000:]
    assert leftovers(store) == []


def test_an_empty_blob_can_be_uploaded(blobs: BlobStore) -> None:
    empty = sha256(b"")
    assert blobs.upload(empty, ANNA.id, 0, b"", 0).complete
    with blobs.open_read(empty) as file:
        assert file.read() == b""


def test_a_cut_off_upload_goes_on_where_it_stood_even_after_a_restart(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path, clock)
    store.blobs.upload(HASH, ANNA.id, 0, CONTENT[:5000], len(CONTENT))
    store.close()
    store = Store.open(tmp_path, clock)
    status = store.blobs.status(HASH, ANNA.id)
    assert (status.received_bytes, status.complete) == (5000, False)
    assert store.blobs.upload(HASH, ANNA.id, 5000, CONTENT[5000:], len(CONTENT)).complete


def test_a_chunk_sent_twice_is_harmless(blobs: BlobStore) -> None:
    blobs.upload(HASH, ANNA.id, 0, CONTENT[:5000], len(CONTENT))
    assert blobs.upload(HASH, ANNA.id, 0, CONTENT[:5000], len(CONTENT)).received_bytes == 5000
    assert blobs.upload(HASH, ANNA.id, 5000, CONTENT[5000:], len(CONTENT)).complete
    assert blobs.upload(HASH, ANNA.id, 5000, CONTENT[5000:], len(CONTENT)).complete


def test_a_chunk_beyond_what_is_there_is_refused_and_changes_nothing(blobs: BlobStore) -> None:
    blobs.upload(HASH, ANNA.id, 0, CONTENT[:5000], len(CONTENT))
    with pytest.raises(Conflict, match="stands at 5000") as caught:
        blobs.upload(HASH, ANNA.id, 6000, CONTENT[6000:], len(CONTENT))
    assert caught.value.field == "offset"
    assert blobs.status(HASH, ANNA.id).received_bytes == 5000


def test_content_with_another_hash_is_refused_and_thrown_away(blobs: BlobStore, store: Store) -> None:
    wrong = CONTENT[:-1] + b"?"
    blobs.upload(HASH, ANNA.id, 0, wrong[:5000], len(wrong))
    with pytest.raises(InvalidRequest, match="does not have the SHA-256"):
        blobs.upload(HASH, ANNA.id, 5000, wrong[5000:], len(wrong))
    assert leftovers(store) == []
    assert blobs.status(HASH, ANNA.id).received_bytes == 0
    upload(blobs, CONTENT, ANNA.id)
    assert blobs.may_read(HASH, ANNA.id)


@pytest.mark.parametrize("bad", ["", "abc", HASH.upper(), "../../../etc/passwd", HASH + "0", HASH[:-1] + "/"])
def test_what_is_no_hash_is_refused_by_name(store: Store, bad: str, tmp_path: Path) -> None:
    calls = [
        lambda: store.blobs.missing([bad], ANNA.id),
        lambda: store.blobs.status(bad, ANNA.id),
        lambda: store.blobs.upload(bad, ANNA.id, 0, b"x", 1),
        lambda: store.blobs.open_read(bad),
        lambda: store.blobs.place(bad, tmp_path / "x"),
        lambda: store.blobs.take(tmp_path / "x", bad),
        lambda: store.blobs.size(bad),
        lambda: store.blobs.may_read(bad, ANNA.id),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="hash"):
            call()


@pytest.mark.parametrize(("offset", "length", "total"), [(-1, 1, 5), (0, 6, 5), (5, 1, 5), (0, 0, -1)])
def test_absurd_extents_are_refused(store: Store, offset: int, length: int, total: int) -> None:
    with pytest.raises(InvalidRequest, match="do not lie"):
        store.blobs.upload(HASH, ANNA.id, offset, b"x" * length, total)


def test_a_blob_over_the_limit_is_refused_before_anything_is_stored(store: Store, clock: ManualClock) -> None:
    small = BlobStore(store.database, store.folder, clock, max_blob_bytes=100)
    with pytest.raises(TooLarge, match="limit of 100"):
        small.upload(HASH, ANNA.id, 0, CONTENT[:10], len(CONTENT))
    with pytest.raises(TooLarge):
        small.put_bytes(CONTENT, ANNA.id)
    assert leftovers(store) == []


def test_two_uploads_of_the_same_content_at_once_both_complete(store: Store) -> None:
    errors: list[Exception] = []

    def send() -> None:
        try:
            upload(store.blobs, CONTENT, ANNA.id, chunk=500)
        except Conflict as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with store.blobs.open_read(HASH) as file:
        assert file.read() == CONTENT


# ---- rights


def test_knowing_a_hash_is_no_right_to_read(blobs: BlobStore) -> None:
    upload(blobs, CONTENT, ANNA.id)
    assert not blobs.may_read(HASH, BEN.id)
    assert blobs.missing([HASH], BEN.id) == [HASH]
    assert blobs.status(HASH, BEN.id).received_bytes == 0


def test_who_goes_on_with_the_upload_of_another_gets_nothing(store: Store) -> None:
    store.blobs.upload(HASH, ANNA.id, 0, CONTENT[:-1], len(CONTENT))
    with pytest.raises(Conflict, match="stands at 0"):
        store.blobs.upload(HASH, BEN.id, len(CONTENT) - 1, CONTENT[-1:], len(CONTENT))
    assert not store.blobs.may_read(HASH, BEN.id)


def test_who_brings_the_whole_content_may_read_and_it_is_stored_once(blobs: BlobStore, store: Store) -> None:
    upload(blobs, CONTENT, ANNA.id)
    upload(blobs, CONTENT, BEN.id)
    assert blobs.may_read(HASH, BEN.id)
    assert blobs.may_read(HASH, ANNA.id)
    assert leftovers(store) == []


def test_the_owner_of_a_job_may_read_its_result_and_others_find_the_job(store: Store, tmp_path: Path) -> None:
    job = sample_job(1, owner=BEN)
    attempt = sample_attempt(job)
    store.commit(submitted(job))
    store.commit(started(job, attempt))
    (tmp_path / "pickle").write_bytes(CONTENT)
    store.blobs.take(tmp_path / "pickle", HASH)
    assert not store.blobs.may_read(HASH, BEN.id)
    attempt.tasks[0].exit = TaskExit(code=0, result=ResultManifest(pickle=HASH, buffers=(HASH,)))
    store.commit(ChangeSet(attempts=[attempt]))
    assert store.blobs.may_read(HASH, BEN.id)
    assert store.blobs.blob_jobs(HASH) == [job.id]
    assert not store.blobs.may_read(HASH, ANNA.id)


# ---- small contents, files


def test_small_contents_are_stored_together(blobs: BlobStore) -> None:
    contents = {sha256(data): data for data in (b"", b"a", b"b")}
    blobs.put_many(contents, ANNA.id)
    assert blobs.missing(contents, ANNA.id) == []
    assert blobs.sizes(contents) == {sha256(data): len(data) for data in (b"", b"a", b"b")}


def test_of_small_contents_with_one_wrong_hash_none_is_stored(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="another SHA-256"):
        store.blobs.put_many({sha256(b"a"): b"a", sha256(b"b"): b"c"}, ANNA.id)
    assert store.blobs.missing([sha256(b"a")], ANNA.id) == [sha256(b"a")]


def test_a_placed_blob_is_a_read_only_file_with_its_content(blobs: BlobStore, tmp_path: Path) -> None:
    blobs.put_bytes(CONTENT, ANNA.id)
    (tmp_path / "input").write_bytes(b"of an earlier try")
    for _ in range(2):
        blobs.place(HASH, tmp_path / "input")
        assert (tmp_path / "input").read_bytes() == CONTENT
        assert (tmp_path / "input").stat().st_mode & 0o777 == 0o444
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["input"]


def test_a_blob_cannot_be_placed_where_there_is_no_folder(store: Store, tmp_path: Path) -> None:
    store.blobs.put_bytes(CONTENT, ANNA.id)
    with pytest.raises(Unavailable, match="cannot be placed"):
        store.blobs.place(HASH, tmp_path / "no" / "folder" / "input")


def put(store: Store, data: bytes) -> str:
    return store.blobs.put_bytes(data, ANNA.id)


def spoil(path: Path) -> None:
    """As a task of the same account can: whatever the mode, and with the times put back."""
    times = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(b"evil")
    path.chmod(0o444)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def read(store: Store, blob_hash: str) -> bytes:
    with store.blobs.open_read(blob_hash) as file:
        return file.read()


def test_a_task_that_changes_its_input_changes_no_blob(store: Store, tmp_path: Path) -> None:
    blob_hash = put(store, b"good content")
    store.blobs.place(blob_hash, tmp_path / "input")
    spoil(tmp_path / "input")
    assert read(store, blob_hash) == b"good content"


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blob counts as too large for a copy, on a file system without reflinks."""
    monkeypatch.setattr(blob_files, "PRIVATE_COPY_BYTES", 0)
    monkeypatch.setattr(blob_files, "reflink", lambda source, target: False)


def test_a_large_blob_is_linked_for_one_task_at_a_time(store: Store, tmp_path: Path, all_large: None) -> None:
    blob_hash = put(store, b"good content")
    store.blobs.place(blob_hash, tmp_path / "first")
    store.blobs.place(blob_hash, tmp_path / "second")
    assert (tmp_path / "first").stat().st_nlink == 2
    assert (tmp_path / "second").stat().st_nlink == 1
    assert (tmp_path / "second").read_bytes() == b"good content"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_large_blob_that_a_task_changed_is_given_to_nobody(
    store: Store, tmp_path: Path, all_large: None, is_there: bool
) -> None:
    blob_hash = put(store, b"good content")
    store.blobs.place(blob_hash, tmp_path / "first")
    spoil(tmp_path / "first")
    if not is_there:
        (tmp_path / "first").unlink()
    with pytest.raises(NotFound, match="was changed by a task"):
        store.blobs.place(blob_hash, tmp_path / "second")
    assert not (tmp_path / "second").exists()
    with pytest.raises(NotFound):
        read(store, blob_hash)
    assert store.blobs.missing([blob_hash], ANNA.id) == [blob_hash]
    assert put(store, b"good content") == blob_hash
    assert read(store, blob_hash) == b"good content"


def test_who_brings_the_content_of_a_changed_blob_puts_it_right(
    store: Store, tmp_path: Path, all_large: None
) -> None:
    blob_hash = put(store, b"good content")
    store.blobs.place(blob_hash, tmp_path / "first")
    spoil(tmp_path / "first")
    (tmp_path / "result").write_bytes(b"good content")
    store.blobs.take(tmp_path / "result", blob_hash)
    assert read(store, blob_hash) == b"good content"
    assert (tmp_path / "first").read_bytes() == b"evil content"


def test_large_blobs_are_checked_once_until_something_touches_them(
    store: Store, tmp_path: Path, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob_hash = put(store, b"good content")
    checks = []
    real = blob_files.sha256_of
    monkeypatch.setattr(blob_files, "sha256_of", lambda file: checks.append(1) or real(file))
    store.blobs.place(blob_hash, tmp_path / "first")
    assert read(store, blob_hash) == read(store, blob_hash) == b"good content"
    assert checks == []
    (tmp_path / "first").unlink()
    assert read(store, blob_hash) == read(store, blob_hash) == b"good content"
    assert checks == [1]


def test_a_task_that_goes_on_writing_to_its_result_changes_no_blob(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(CONTENT)
    store.blobs.take(path, HASH)
    assert path.stat().st_nlink == 1
    spoil(path)
    assert read(store, HASH) == CONTENT


@pytest.mark.parametrize(
    "plant",
    [os.mkfifo, os.mkdir, lambda path: os.symlink("other", path), lambda path: os.symlink("/dev/zero", path)],
)
def test_what_is_no_file_is_not_taken_in(store: Store, tmp_path: Path, plant: Callable[[Path], None]) -> None:
    (tmp_path / "other").write_bytes(CONTENT)
    plant(tmp_path / "result")
    with pytest.raises(InvalidRequest, match="cannot be taken in"):
        store.blobs.take(tmp_path / "result", HASH)
    assert not store.blobs.blob_jobs(HASH)
    assert list((store.folder.uploads).iterdir()) == []


def test_a_file_that_is_too_large_is_not_taken_in(store: Store, tmp_path: Path) -> None:
    with (tmp_path / "result").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge):
        store.blobs.take(tmp_path / "result", HASH)


def test_an_unknown_blob_is_not_found(blobs: BlobStore, tmp_path: Path) -> None:
    for call in (
        lambda: blobs.open_read(HASH),
        lambda: blobs.place(HASH, tmp_path / "x"),
        lambda: blobs.size(HASH),
        lambda: blobs.take(tmp_path / "no such file", HASH),
    ):
        with pytest.raises(NotFound):
            call()
    assert not (tmp_path / "x").exists()


def test_a_file_is_taken_in_only_with_the_hash_it_claims(
    blobs: BlobStore, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "result").write_bytes(b"something else")
    with pytest.raises(InvalidRequest, match="does not have the SHA-256"):
        blobs.take(tmp_path / "result", HASH)
    # Nor when the claimed content is stored: claiming it would give the right to read it.
    blobs.put_bytes(CONTENT, ANNA.id)
    with pytest.raises(InvalidRequest):
        blobs.take(tmp_path / "result", HASH)
    assert leftovers(store) == []


def test_taking_a_file_in_twice_is_harmless_and_leaves_the_file(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(CONTENT)
    blobs.take(tmp_path / "result", HASH)
    blobs.take(tmp_path / "result", HASH)
    assert (tmp_path / "result").read_bytes() == CONTENT
    with blobs.open_read(HASH) as file:
        assert file.read() == CONTENT


def test_a_blob_whose_file_was_lost_is_missing_again_and_can_be_uploaded(store: Store) -> None:
    store.blobs.put_bytes(CONTENT, ANNA.id)
    next(store.folder.blobs.glob("*/*")).unlink()
    assert store.blobs.missing([HASH], ANNA.id) == [HASH]
    upload(store.blobs, CONTENT, ANNA.id)
    assert store.blobs.missing([HASH], ANNA.id) == []


# ---- collection


def collect_all(blobs: BlobStore) -> int:
    return sum(blobs.collect().blobs for _ in range(16))


def test_what_nothing_refers_to_is_collected_after_the_grace_period(
    blobs: BlobStore, clock: ManualClock
) -> None:
    blobs.put_bytes(CONTENT, ANNA.id)
    clock.advance(GRACE_S - 1)
    assert collect_all(blobs) == 0
    clock.advance(2)
    assert collect_all(blobs) == 1
    assert blobs.missing([HASH], ANNA.id) == [HASH]
    with pytest.raises(NotFound):
        blobs.open_read(HASH)


def test_asking_what_is_missing_keeps_the_rest_for_the_submission_to_come(
    blobs: BlobStore, clock: ManualClock
) -> None:
    blobs.put_bytes(CONTENT, ANNA.id)
    clock.advance(GRACE_S - 1)
    assert blobs.missing([HASH], ANNA.id) == []
    clock.advance(GRACE_S - 1)
    assert collect_all(blobs) == 0


def test_inputs_of_a_job_are_kept_as_long_as_it_refers_to_them(store: Store, clock: ManualClock) -> None:
    buffer = store.blobs.put_bytes(b"buffer", ANNA.id)
    store.blobs.put_bytes(CONTENT, ANNA.id)
    job = sample_job(1, inputs=InputManifest(pickle=HASH, buffers=(buffer, buffer)))
    store.commit(submitted(job))
    clock.advance(100 * GRACE_S)
    assert collect_all(store.blobs) == 0
    store.commit(ended(job, clock.now))
    assert collect_all(store.blobs) == 0  # retention releases the references of ended jobs, not this


def test_uploads_given_up_are_removed_and_those_in_progress_are_not(store: Store, clock: ManualClock) -> None:
    old, fresh = sha256(b"old"), sha256(b"fresh")
    for blob_hash in (old, fresh):
        store.blobs.upload(blob_hash, ANNA.id, 0, b"x", 10)
    for path in store.folder.uploads.iterdir():
        age = STALE_UPLOAD_S + 1 if path.name.startswith(old) else 60
        os.utime(path, (clock.now / 1e6 - age,) * 2)
    assert store.blobs.collect().parts == 1
    assert store.blobs.status(old, ANNA.id).received_bytes == 0
    assert store.blobs.status(fresh, ANNA.id).received_bytes == 1


def test_files_that_a_crash_left_without_a_row_are_collected_once_old(
    store: Store, clock: ManualClock
) -> None:
    for name, age in ((HASH, GRACE_S + 1), (sha256(b"new"), 60)):
        path = store.folder.blobs / name[:2] / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(CONTENT)
        os.utime(path, (clock.now / 1e6 - age,) * 2)
    kept = store.blobs.put_bytes(b"kept", ANNA.id)
    assert collect_all(store.blobs) == 1
    assert {path.name for path in store.folder.blobs.glob("*/*")} == {kept, sha256(b"new")}
