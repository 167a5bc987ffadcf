"""Step reports, logs and results of a task on their way from its folder to the engine. Blocking; called on threads.

All of it may have been written by the task itself, so all of it is bounded here: what the engine is told fits its store.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..engine.protocols import BlobAccess
from ..model.errors import GpuclusterError, Unavailable
from ..model.jobs import Progress, ResultManifest, StopCause, TaskExit
from ..worker import protocol
from ..worker.bounds import AHEAD_US, MAX_REPORT_BYTES, checked_report, is_int64
from ..worker.files import NOT_A_FILE, open_regular, parse_object, read_regular, write_json
from ..worker.frames import HEADER, MAGIC, MAX_PAYLOAD

if TYPE_CHECKING:
    from typing import TypeGuard

#: Of reports that nobody was told about while no scheduler ran, at most so many are told again, evenly spread.
MAX_CAUGHT_UP = 1000
#: A supervisor keeps less than this; of a larger file only the end is read.
_MAX_STEPS_BYTES = 64 << 20
_PIECE_BYTES = 256 << 10
#: A report as it is kept: escaped, and with what its supervisor adds.
_MAX_LINE = 8 * MAX_REPORT_BYTES
_MAX_TEXT = 4000
_MAX_NAMES = 10_000
_MAX_NAME = 1000
_MAX_NOTES = 100
_STOP_CAUSES = frozenset({"signal", *(cause.label for cause in StopCause)})
_HASH = re.compile(r"[0-9a-f]{64}")
#: The last parts of a path that the task could have made: role and rank, then the file (or `result/` and the file).
_OWN_PARTS = 2


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a task without asking it: its rank, and between when and when it can have told anything."""

    rank: int
    earliest_us: int
    now_us: int

    def fits(self, time_us: Any) -> TypeGuard[int]:
        return is_int64(time_us) and self.earliest_us <= time_us <= self.now_us + AHEAD_US


def to_progress(report: Mapping[str, Any], bounds: Bounds) -> Progress | None:
    """The report as the engine knows it; None when it is none."""
    checked = checked_report(report, bounds.rank, bounds.earliest_us, bounds.now_us)
    try:
        return None if checked is None else msgspec.convert(checked, Progress, strict=False)
    except msgspec.ValidationError:
        return None


class FoundSteps(msgspec.Struct, frozen=True):
    """What stood in steps.ndjson: reports, the offset behind the last whole line, and how many lines were no reports."""

    reports: list[Progress]
    end: int
    bad: int = 0


def read_steps(task_dir: str, offset: int, after_us: int, bounds: Bounds) -> FoundSteps:
    """Reports in steps.ndjson from byte `offset` on and later than `after_us`, thinned when they are many."""
    try:
        descriptor = open_regular(os.path.join(task_dir, protocol.STEPS), parts=_OWN_PARTS)
    except OSError:
        return FoundSteps([], offset)
    with open(descriptor, "rb", buffering=0) as file:
        start = max(offset, os.fstat(descriptor).st_size - _MAX_STEPS_BYTES)
        file.seek(start)
        reports: list[Progress] = []
        end, bad = offset, 0
        for line, end in _lines(file, start):  # noqa: B007 (used after the loop)
            content = parse_object(line)
            progress = None if content is None else to_progress(content, bounds)
            if progress is None:
                bad += 1
            elif progress.time_us > after_us:
                reports.append(progress)
            if len(reports) > 2 * MAX_CAUGHT_UP:
                del reports[1:-1:2]
        return FoundSteps(_thinned(reports), end, bad)


def _lines(file: Any, position: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines and the offsets behind them, read in pieces. One that is too long comes as an empty one."""
    rest, is_long = b"", False
    while piece := file.read(_PIECE_BYTES):
        *lines, last = piece.split(b"\n")
        for line in lines:
            position += len(line) + 1
            whole = rest + line
            yield (b"" if is_long or len(whole) > _MAX_LINE else whole), position + len(rest)
            position += len(rest)
            rest, is_long = b"", False
        rest += last
        if len(rest) > _MAX_LINE:
            position += len(rest)
            rest, is_long = b"", True


def _thinned(reports: list[Progress]) -> list[Progress]:
    if len(reports) <= MAX_CAUGHT_UP:
        return reports
    last = len(reports) - 1
    return [reports[place * last // (MAX_CAUGHT_UP - 1)] for place in range(MAX_CAUGHT_UP)]


# -- how it ended ----------------------------------------------------------------------------------------------------------


def to_exit(outcome: Mapping[str, Any], task_dir: str, blobs: BlobAccess, bounds: Bounds) -> TaskExit:
    """The exit of a task with its result taken in; a result that is not as it should be is missing, the exit stands.

    Raises Unavailable or OSError when the result cannot be taken in now: it is there, so it is worth another try.
    """
    task_exit = checked_exit(outcome, bounds)
    content = outcome.get("result")
    if content is None:
        return task_exit
    manifest = checked_manifest(content)
    if isinstance(manifest, str):
        manifest = ResultManifest(notes=(f"the result's description cannot be used: {manifest}",))
    return msgspec.structs.replace(task_exit, result=_take(manifest, task_dir, blobs))


def without_result(outcome: Mapping[str, Any], bounds: Bounds, reason: str) -> TaskExit:
    """The exit of a task whose result is given up, for that reason."""
    task_exit = checked_exit(outcome, bounds)
    content = outcome.get("result")
    manifest = checked_manifest(content) if content is not None else ""
    if isinstance(manifest, str):
        return task_exit
    return msgspec.structs.replace(task_exit, result=_without_content(manifest, reason))


def checked_exit(outcome: Mapping[str, Any], bounds: Bounds) -> TaskExit:
    """How it ended, without its result; what cannot be is left out."""
    code, signal, ended_us = outcome.get("code"), outcome.get("signal"), outcome.get("ended_us")
    cause = outcome.get("stop_cause")
    known = code if is_int64(code) and 0 <= code <= 255 else None
    return TaskExit(
        code=70 if known is None else known,
        signal=signal if is_int64(signal) and 0 < signal < 128 else None,
        oom=outcome.get("oom") is True,
        reason=cut(outcome.get("reason")) if known is not None else "how the task ended cannot be read",
        error_name=cut(outcome.get("error_name")),
        error_value=cut(outcome.get("error_value")),
        ended_us=ended_us if bounds.fits(ended_us) else bounds.now_us,
        stop_cause=cause if cause in _STOP_CAUSES else None,
    )


def cut(text: Any, limit: int = _MAX_TEXT) -> str | None:
    """Text of a sane length; None for what is no text."""
    if not isinstance(text, str):
        return None
    return text if len(text) <= limit else text[:limit] + "…"


def checked_manifest(content: Any) -> ResultManifest | str:
    """The description of a result, or what is wrong with it. Reasons and notes that are too long are cut."""
    try:
        manifest = msgspec.convert(content, ResultManifest)
    except msgspec.ValidationError as error:
        return str(error)
    hashes = [*([manifest.pickle] if manifest.pickle is not None else []), *manifest.buffers]
    names = [
        *manifest.names, *manifest.changed, *manifest.deleted, *manifest.missing, manifest.value_key,
    ]  # fmt: skip
    if not all(map(_HASH.fullmatch, hashes)):
        return "what it names is no SHA-256"
    if len(names) > _MAX_NAMES or any(len(name) > _MAX_NAME for name in names):
        return f"over {_MAX_NAMES} names, or one of over {_MAX_NAME} characters"
    if not (is_int64(manifest.total_bytes) and manifest.total_bytes >= 0):
        return f"a size of {manifest.total_bytes:.3g} bytes"
    return msgspec.structs.replace(
        manifest,
        missing={name: cut(reason, _MAX_NAME) or "" for name, reason in manifest.missing.items()},
        notes=tuple(cut(note, _MAX_NAME) or "" for note in manifest.notes[:_MAX_NOTES]),
    )


def _take(manifest: ResultManifest, task_dir: str, blobs: BlobAccess) -> ResultManifest:
    files = [("pickle", manifest.pickle)] if manifest.pickle else []
    files += [(f"buffer.{number}", blob_hash) for number, blob_hash in enumerate(manifest.buffers)]
    if not files or _was_taken(manifest, task_dir):
        return manifest
    try:
        for name, blob_hash in files:
            blobs.take(os.path.join(task_dir, protocol.RESULT_FOLDER, name), blob_hash)
    except Unavailable:
        raise
    except GpuclusterError as error:
        return _without_content(manifest, f"the result could not be taken in: {error}")
    write_json(_receipt(task_dir), msgspec.to_builtins(manifest))
    return manifest


def _receipt(task_dir: str) -> str:
    """Beside the folder, which is the task's. Says that the result is in the blobs, when its files are removed already
    and a scheduler that was killed before it could store the end asks again.
    """
    return f"{task_dir}.taken"


def _was_taken(manifest: ResultManifest, task_dir: str) -> bool:
    try:
        content = parse_object(read_regular(_receipt(task_dir), MAX_PAYLOAD))
    except OSError:
        return False
    return content is not None and checked_manifest(content) == manifest


def _without_content(manifest: ResultManifest, reason: str) -> ResultManifest:
    lost = [*manifest.names, *([manifest.value_key] if manifest.has_value else [])]
    return ResultManifest(
        missing={**manifest.missing, **dict.fromkeys(lost, reason)}, notes=(*manifest.notes, reason)
    )


# -- its log ---------------------------------------------------------------------------------------------------------------


def log_bytes(path: str) -> int:
    """The size of the log at that path; 0 when there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def whole_frames(path: str, offset: int, max_bytes: int) -> bytes:
    """Bytes of whole log records from `offset`, at most `max_bytes` unless the first alone is larger.

    Empty at the end of what is written, and where there is no log. Raises ValueError when no record begins at `offset`.
    """
    try:
        descriptor = open_regular(path, parts=_OWN_PARTS)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in NOT_A_FILE:
            return b""
        raise
    try:
        data = os.pread(descriptor, max(max_bytes, HEADER.size), offset)
        end = _end_of_whole(data, offset)
        if end == 0 and len(data) >= HEADER.size:
            size = HEADER.size + HEADER.unpack_from(data)[3]
            data = os.pread(descriptor, size, offset)
            end = _end_of_whole(data, offset)
        return data[:end]
    finally:
        os.close(descriptor)


def _end_of_whole(data: bytes, offset: int) -> int:
    position = 0
    while len(data) - position >= HEADER.size:
        magic, _, _, length, *_ = HEADER.unpack_from(data, position)
        if magic != MAGIC or length > MAX_PAYLOAD:
            raise ValueError(f"no log record begins at byte {offset + position}")
        if position + HEADER.size + length > len(data):
            break
        position += HEADER.size + length
    return position
