"""Step reports and results of a task on their way from its folder to the engine. Blocking; called on threads."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from ..engine.protocols import BlobAccess
from ..model.errors import GpuclusterError
from ..model.jobs import Progress, ResultManifest, TaskExit
from ..worker import protocol
from ..worker.frames import HEADER, MAGIC

logger = logging.getLogger(__name__)

#: Of reports that nobody was told about while no scheduler ran, at most so many are told again, evenly spread.
MAX_CAUGHT_UP = 1000


def to_progress(report: Mapping[str, Any]) -> Progress | None:
    """The report as the engine knows it; None when it is none (it then stands in the log of the scheduler)."""
    try:
        return msgspec.convert(dict(report), Progress, strict=False)
    except msgspec.ValidationError as error:
        logger.warning("a step report cannot be used: %s", error)
        return None


def read_steps(task_dir: str, offset: int, after_us: int) -> tuple[list[Progress], int]:
    """Reports in steps.ndjson from byte `offset` on and later than `after_us`; and the offset behind the last whole line."""
    try:
        with open(os.path.join(task_dir, protocol.STEPS), "rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return [], offset
    end = data.rfind(b"\n") + 1
    reports = []
    for line in data[:end].splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        progress = to_progress(content) if isinstance(content, dict) else None
        if progress is not None and progress.time_us > after_us:
            reports.append(progress)
    return _thinned(reports), offset + end


def _thinned(reports: list[Progress]) -> list[Progress]:
    if len(reports) <= MAX_CAUGHT_UP:
        return reports
    last = len(reports) - 1
    return [reports[place * last // (MAX_CAUGHT_UP - 1)] for place in range(MAX_CAUGHT_UP)]


def to_exit(outcome: Mapping[str, Any], task_dir: str, blobs: BlobAccess) -> TaskExit:
    """The exit of a task with its result taken in. A result that cannot be taken is missing, the exit stands."""
    fields = {key: value for key, value in outcome.items() if key != "result"}
    try:
        task_exit = msgspec.convert(fields, TaskExit, strict=False)
    except msgspec.ValidationError as error:
        return TaskExit(
            code=70, reason=f"how the task ended cannot be read: {error}", ended_us=outcome.get("ended_us", 0)
        )
    content = outcome.get("result")
    if content is None:
        return task_exit
    try:
        manifest = msgspec.convert(content, ResultManifest, strict=False)
    except msgspec.ValidationError as error:
        reason = f"the result's description cannot be read: {error}"
        return msgspec.structs.replace(task_exit, result=ResultManifest(notes=(reason,)))
    return msgspec.structs.replace(task_exit, result=_take(manifest, os.path.join(task_dir, "result"), blobs))


def _take(manifest: ResultManifest, folder: str, blobs: BlobAccess) -> ResultManifest:
    files = [("pickle", manifest.pickle)] if manifest.pickle else []
    files += [(f"buffer.{number}", blob_hash) for number, blob_hash in enumerate(manifest.buffers)]
    try:
        for name, blob_hash in files:
            blobs.take(os.path.join(folder, name), blob_hash)
    except (GpuclusterError, OSError) as error:
        return _without_content(manifest, f"the result could not be taken in: {error}")
    return manifest


def _without_content(manifest: ResultManifest, reason: str) -> ResultManifest:
    lost = [*manifest.names, *([manifest.value_key] if manifest.has_value else [])]
    return ResultManifest(
        missing={**manifest.missing, **dict.fromkeys(lost, reason)}, notes=(*manifest.notes, reason)
    )


def whole_frames(path: str, offset: int, max_bytes: int) -> bytes:
    """Bytes of whole log records from `offset`, at most `max_bytes` unless the first alone is larger.

    Empty at the end of what is written. Raises ValueError when no record begins at `offset`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
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
        if magic != MAGIC:
            raise ValueError(f"no log record begins at byte {offset + position}")
        if position + HEADER.size + length > len(data):
            break
        position += HEADER.size + length
    return position
