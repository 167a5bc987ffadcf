"""spec.json as the worker reads it (protocol.py, *TaskSpec*)."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from . import protocol

#: What a worker runs; a command is run by the supervisor itself.
KINDS = ("cell", "function")


class BadSpec(ValueError):
    """The task folder does not hold a specification that this worker can run; one sentence for people."""


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What to run and where. Keys of spec.json that only the supervisor needs are left out."""

    job_number: int
    rank: int
    node: str
    kind: str
    source: str
    cwd: str
    sys_path: list[str]
    env: dict[str, str]
    inputs: dict[str, Any] | None
    outputs: list[str]
    mutable_inputs: list[str]
    digest_budget_bytes: int
    bundle: str

    @classmethod
    def read(cls, task_dir: str) -> TaskSpec:
        """Raises BadSpec."""
        path = os.path.join(task_dir, protocol.SPEC)
        try:
            with open(path, "rb") as file:
                content = json.load(file)
        except (OSError, ValueError) as error:
            raise BadSpec(f"the task's specification {path} cannot be read: {error}") from None
        version = content.get("format", 0) if isinstance(content, dict) else 0
        if not protocol.DISK_FORMAT_MIN <= version <= protocol.DISK_FORMAT:
            raise BadSpec(
                f"the task folder has format {version}; this worker knows "
                f"{protocol.DISK_FORMAT_MIN} to {protocol.DISK_FORMAT}"
            )
        try:
            spec = cls(**{field.name: content[field.name] for field in dataclasses.fields(cls)})
        except KeyError as error:
            raise BadSpec(f"the task's specification {path} lacks {error}") from None
        if spec.kind not in KINDS:
            raise BadSpec(f"a worker runs {' or '.join(KINDS)}, not a task of kind {spec.kind!r}")
        return spec
