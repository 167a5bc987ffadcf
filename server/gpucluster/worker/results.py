"""What goes back to the notebook after a cell: its names, changed inputs, its last value.

A cell that raised gives back the names that it had assigned and the inputs that it had changed by then, as if it had
been run in the notebook: hours of training are not lost to a mistake in the last line. A name that cannot be pickled is
left out with the reason, all others come. Files first, `result.json` last and at once (protocol.py), so what it speaks
of is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import types
from collections.abc import Sequence
from typing import Any

from . import protocol
from .outcome import Outcome, message_of
from .spec import TaskSpec

VALUE_KEY = "<value>"
INPUT_FOLDER = "inputs"
RESULT_FOLDER = "result"
NEVER_ASSIGNED = "the cell did not assign it"
HAS_FAILED = "the cell failed; these are the names it had assigned before"


class Digests:
    """The digests of the inputs that a cell may change in place, taken before it runs."""

    def __init__(self, names: Sequence[str], namespace: dict[str, Any], budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._before = {name: self._of(namespace[name]) for name in names if name in namespace}

    def _of(self, value: Any) -> str | None:
        from .digest import digest

        return digest(value, self._budget_bytes)

    def changed(self, namespace: dict[str, Any]) -> tuple[list[str], list[str]]:
        """(names that changed, notes on those that were too large to tell)."""
        changed, notes = [], []
        for name, before in self._before.items():
            if name not in namespace:
                continue
            after = None if before is None else self._of(namespace[name])
            if before is None or after is None:
                notes.append(
                    f"{name} is over the budget of {_size(self._budget_bytes)} for finding changes: whether the cell "
                    f"changed it in place is not known, so it stays as it was. Name it with --out {name} to have it back."
                )
            elif after != before:
                changed.append(name)
        return changed, notes


def _size(count: int) -> str:
    return f"{count >> 20:,} MiB" if count >= 1 << 20 else f"{count:,} bytes"


def _known_over_there(spec: TaskSpec, namespace: dict[str, Any]) -> list[str]:
    """Inputs that are data: functions that come back find these in the notebook and need not carry them."""
    carried = (types.FunctionType, types.ModuleType, type)
    return [
        name
        for name in (spec.inputs or {}).get("names", ())
        if name in namespace and not isinstance(namespace[name], carried)
    ]


def _deleted(spec: TaskSpec, namespace: dict[str, Any]) -> list[str]:
    """Inputs of a cell that it deleted, and the notebook is to forget."""
    names = (spec.inputs or {}).get("names", ()) if spec.kind == "cell" else ()
    return [name for name in names if name not in namespace]


def store(
    task_dir: str, spec: TaskSpec, namespace: dict[str, Any], outcome: Outcome, digests: Digests
) -> None:
    """Write the result's files and result.json; nothing when the cell failed before there was anything to give back.

    Raises OSError when not even result.json can be written.
    """
    changed, notes = digests.changed(namespace)
    wanted = list(dict.fromkeys([*spec.outputs, *changed]))
    objects = {name: namespace[name] for name in wanted if name in namespace}
    deleted = _deleted(spec, namespace) if outcome.exit_code == 0 else []
    missing = {name: NEVER_ASSIGNED for name in wanted if name not in namespace and name not in deleted}
    if outcome.has_value:
        objects[VALUE_KEY] = outcome.value
    if outcome.exit_code != 0:
        if not (objects or notes):
            return
        notes = [HAS_FAILED, *notes] if objects else notes
    manifest = _manifest(notes=notes, missing=missing, deleted=deleted)
    if objects:
        try:
            known = _known_over_there(spec, namespace)
            manifest.update(_write(task_dir, objects, namespace, missing, changed, known))
            manifest["notes"] = [*notes, *manifest["notes"]]
        except OSError as error:
            shutil.rmtree(os.path.join(task_dir, RESULT_FOLDER), ignore_errors=True)
            reason = f"the result could not be written: {error.strerror or error}"
            manifest = _manifest(notes=notes, missing={**missing, **dict.fromkeys(objects, reason)})
    write_json(os.path.join(task_dir, protocol.RESULT), manifest)


def _manifest(**known: Any) -> dict[str, Any]:
    """A ResultManifest (model/jobs.py) as JSON."""
    return {
        "pickle": None,
        "buffers": [],
        "names": [],
        "changed": [],
        "deleted": [],
        "has_value": False,
        "value_key": VALUE_KEY,
        "missing": {},
        "notes": [],
        "total_bytes": 0,
        **known,
    }


def _write(
    task_dir: str,
    objects: dict[str, Any],
    namespace: dict[str, Any],
    missing: dict[str, str],
    changed: list[str],
    known: list[str],
) -> dict[str, Any]:
    from . import pickling

    try:
        pickled = pickling.dump(objects, ns=namespace, known=known)
    except Exception as error:  # one object may drag all down: a recursion without end, memory
        reason = f"the results could not be pickled: {type(error).__name__}: {message_of(error)}"
        return {"missing": {**missing, **dict.fromkeys(objects, reason)}, "notes": []}
    folder = os.path.join(task_dir, RESULT_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    hashes = [_write_file(os.path.join(folder, "pickle"), pickled.pickle)]
    for number, buffer in enumerate(pickled.buffers):
        hashes.append(_write_file(os.path.join(folder, f"buffer.{number}"), buffer))
    sent = [name for name in objects if name not in pickled.failed]
    return {
        "pickle": hashes[0][0],
        "buffers": [sha256 for sha256, _ in hashes[1:]],
        "names": [name for name in sent if name != VALUE_KEY],
        "changed": [name for name in changed if name in sent],
        "has_value": VALUE_KEY in sent,
        "missing": {**missing, **pickled.failed},
        "notes": list(pickled.notes),
        "total_bytes": sum(size for _, size in hashes),
    }


def _write_file(path: str, data: Any) -> tuple[str, int]:
    """Write it whole; (SHA-256 in hex, bytes)."""
    with memoryview(data) as view, view.cast("B") as content, open(path, "wb", buffering=0) as file:
        written = 0
        while written < len(content):
            written += file.write(content[written:])
        return hashlib.sha256(content).hexdigest(), len(content)


def write_json(path: str, content: Any) -> None:
    """Write atomically: a reader sees the whole file or none. Raises OSError and then leaves nothing."""
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def load_inputs(task_dir: str, spec: TaskSpec) -> dict[str, Any]:
    """The names that the cell reads. Raises OSError (a file is missing) or pickling.CannotLoad."""
    if spec.inputs is None:
        return {}
    from . import pickling

    folder = os.path.join(task_dir, INPUT_FOLDER)
    buffers = [
        pickling.read_buffer(os.path.join(folder, f"buffer.{number}"))
        for number in range(spec.inputs["buffers"])
    ]
    with open(os.path.join(folder, "pickle"), "rb") as file:
        return pickling.load(file.read(), buffers)
