from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from gpucluster.backends.reports import whole_frames
from gpucluster.runtimes.supervisor.log import LogWriter
from gpucluster.worker.frames import HEADER, Frame, Kind, iter_frames


def frames(path: Path) -> list[Frame]:
    found = list(iter_frames(path.read_bytes()))
    assert [frame.sequence for frame in found] == list(range(len(found)))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_output_up_to_the_limit_is_kept_and_the_rest_is_said_once(path: Path) -> None:
    log = LogWriter(str(path), 10)
    for _ in range(5):
        log.add(Kind.STDOUT, b"12345678")
    log.close()
    kinds = [(frame.kind, frame.payload) for frame in frames(path)]
    assert kinds[:2] == [(Kind.STDOUT, b"12345678"), (Kind.STDOUT, b"12")]
    assert len(kinds) == 3
    assert json.loads(kinds[2][1]) == {
        "event": "truncated",
        "what": "output",
        "reason": "limit",
        "limit_bytes": 10,
    }


def test_displays_and_errors_come_through_after_the_limit_of_output(path: Path) -> None:
    log = LogWriter(str(path), 0)
    log.add(Kind.STDOUT, b"x")
    log.add(Kind.DISPLAY, b"{}")
    log.add(Kind.ERROR, b"{}")
    log.close()
    assert [frame.kind for frame in frames(path)] == [Kind.STATUS, Kind.DISPLAY, Kind.ERROR]


def test_size_is_what_stands_in_the_file(path: Path) -> None:
    log = LogWriter(str(path), 1 << 30)
    log.add(Kind.STDOUT, b"x" * 1000)
    assert log.size == 0
    assert log.flush()
    assert log.size == path.stat().st_size == HEADER.size + 1000
    assert not log.flush()


def test_file_that_cannot_grow_is_never_torn_and_the_gap_is_said(path: Path) -> None:
    log = LogWriter(str(path), 1 << 30)
    log.add(Kind.STDOUT, b"before")
    log.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size + 500, hard))
    try:
        log.add(Kind.STDOUT, b"x" * 1000)
        assert not log.flush()
        assert path.stat().st_size == log.size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.add(Kind.STDOUT, b"after")
    log.close()
    first, note, last = frames(path)
    assert (first.payload, last.payload) == (b"before", b"after")
    assert json.loads(note.payload)["dropped_bytes"] == log.lost_bytes == HEADER.size + 1000


def test_reader_gets_whole_frames_only(path: Path) -> None:
    log = LogWriter(str(path), 1 << 30)
    for size in (10, 5000, 10):
        log.add(Kind.STDOUT, b"x" * size)
    log.close()
    first, second, third = frames(path)
    assert len(whole_frames(str(path), 0, 200)) == first.end
    assert len(whole_frames(str(path), first.end, 200)) == second.end - first.end
    assert len(whole_frames(str(path), 0, 1 << 20)) == third.end
    assert whole_frames(str(path), third.end, 1 << 20) == b""
    os.truncate(path, third.end - 1)
    assert len(whole_frames(str(path), 0, 1 << 20)) == second.end
    with pytest.raises(ValueError, match="no log record begins at byte 3"):
        whole_frames(str(path), 3, 1 << 20)


def test_reader_of_a_log_that_is_not_there_gets_nothing(path: Path) -> None:
    assert whole_frames(str(path), 0, 100) == b""
