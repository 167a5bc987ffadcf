"""The secret part of a job's environment: a file for each job, 0600, never a row, an event or a log.

Written before the job is committed, removed once it has ended; what a crash leaves behind is swept at start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from ..model.errors import InvalidRequest, NotFound, Unavailable
from .folder import explain_os_error, write_file

#: What may stand in a file name here; ids are 26 letters and digits, tests use shorter ones.
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Secrets:
    """The folder `secrets/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, job_id: str, values: dict[str, str]) -> None:
        """Durable on return; nothing is written for a job without secrets. Raises Unavailable."""
        if values:
            write_file(self._path(job_id), msgspec.json.encode(values), mode=0o600)

    def read(self, job_id: str, names: Sequence[str]) -> dict[str, str]:
        """The values of these names (Program.secret_env). Raises NotFound when one is gone: the task must not run without."""
        if not names:
            return {}
        try:
            values = _decode(self._path(job_id).read_bytes())
        except FileNotFoundError:
            values = {}
        except OSError as error:
            raise explain_os_error(error, f"The secrets of job {job_id} cannot be read") from error
        except msgspec.MsgspecError as error:
            raise Unavailable(f"The secrets of job {job_id} are damaged.", hint="Submit it again.") from error
        missing = [name for name in names if name not in values]
        if missing:
            raise NotFound(
                f"The secrets {', '.join(missing)} of job {job_id} are no longer stored.",
                hint="Submit it again.",
            )
        return {name: values[name] for name in names}

    def remove(self, job_id: str) -> None:
        """Harmless when there are none."""
        try:
            self._path(job_id).unlink(missing_ok=True)
        except OSError as error:
            raise explain_os_error(error, f"The secrets of job {job_id} cannot be removed") from error

    def sweep(self, keep: Collection[str]) -> int:
        """Remove every file but those of the jobs `keep` (all that have not ended); the number removed. Only at start:
        a submission on its way has its file before its row.
        """
        wanted = {f"{job_id}.json" for job_id in keep}
        removed = 0
        try:
            for path in self._folder.iterdir():
                if path.name not in wanted:
                    path.unlink(missing_ok=True)
                    removed += 1
        except OSError as error:
            raise explain_os_error(error, f"{self._folder} cannot be cleaned") from error
        return removed

    def _path(self, job_id: str) -> Path:
        if not _SAFE_ID.fullmatch(job_id):
            raise InvalidRequest("job_id", f"{job_id!r} is not a job id")
        return self._folder / f"{job_id}.json"
