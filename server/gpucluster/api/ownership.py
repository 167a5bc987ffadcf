"""One scheduler per data folder: its locks, and the files by which it is found.

Two locks: one in the data folder, trusted where that lies on a local disk, and one in the runtime folder, which is
always local. On a network file system no lock is trusted, so the file scheduler.json there serves as a claim that is
renewed: another machine's scheduler is refused while the claim is fresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

import msgspec

from ..model.errors import Conflict, Unavailable
from ..store.filesystem import network_file_system
from ..store.folder import make_private
from . import discovery
from .discovery import RuntimeInfo

LOCK_NAME = "scheduler.lock"
#: A claim on a network file system is renewed this often, and counts for this long.
RENEW_S = 15.0
CLAIM_S = 90.0


class DataFolderOwnership:
    """A context: entered, this process is the only scheduler of `folder`. Raises Conflict or Unavailable."""

    def __init__(self, folder: Path, runtime: Path, key: str) -> None:
        self._folder = folder
        self._claim = discovery.claim_file(folder)
        self._runtime_file = discovery.runtime_file(runtime, key)
        self._lock_paths = [runtime / f"{key}.lock"]
        self._locks: list[int] = []
        self.network = network_file_system(folder)
        if self.network is None:
            self._lock_paths.append(folder / LOCK_NAME)

    def __enter__(self) -> DataFolderOwnership:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private(self._folder)
            for path in self._lock_paths:
                self._locks.append(self._lock(path))
            if self.network is not None:
                self._refuse_other_machine()
            self._sweep_earlier_boots()
        except OSError as error:
            self._unlock()
            raise Unavailable(
                f"the data folder {self._folder} cannot be used: {error.strerror or error}",
                hint=f"Set {discovery.ENV_DATA} to a folder of yours with free space.",
            ) from None
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.withdraw()
        self._unlock()

    def _lock(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise self._taken() from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _taken(self) -> Conflict:
        other = discovery.read_runtime_file(self._runtime_file) or discovery.read_runtime_file(self._claim)
        who = f" (pid {other.pid} on {other.host})" if other else ""
        return Conflict(
            f"another scheduler{who} has the data folder {self._folder}",
            hint="Use it, stop it with `gpucluster stop`, or take another data folder.",
        )

    def _refuse_other_machine(self) -> None:
        other = discovery.read_runtime_file(self._claim)
        if other is None:
            return
        if other.host == discovery.host_name():
            # Its lock may be in another runtime folder than ours.
            if discovery.is_running(other) and discovery.accepts(other.socket):
                raise self._taken()
            return
        age_s = time.time() - other.seen_us / 1e6
        if age_s < CLAIM_S:
            raise Conflict(
                f"a scheduler on {other.host} (pid {other.pid}) has the data folder {self._folder}, "
                f"seen {max(age_s, 0):.0f} s ago",
                hint=f"Stop it there, wait {CLAIM_S:.0f} s if that machine is down, or take another data folder.",
            )

    def _sweep_earlier_boots(self) -> None:
        """Remove what schedulers of earlier boots left in a runtime folder that outlives a boot (/tmp may)."""
        for path in self._runtime_file.parent.glob("*.json"):
            info = discovery.read_runtime_file(path)
            if info is None or info.host != discovery.host_name() or info.boot_id == discovery.boot_id():
                continue
            for suffix in (".json", ".sock", ".lock", ".start.lock"):
                with contextlib.suppress(OSError):
                    path.with_suffix(suffix).unlink()

    def _unlock(self) -> None:
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks = []

    # ---- being found

    def publish(self, info: RuntimeInfo) -> None:
        """Tell clients where we are. Raises Unavailable."""
        try:
            for path in (self._claim, self._runtime_file):
                discovery.write_runtime_file(path, info)
        except OSError as error:
            raise Unavailable(f"the runtime file cannot be written: {error.strerror or error}") from None

    def renew(self, info: RuntimeInfo, now_us: int) -> RuntimeInfo:
        """Keep the files there, and fresh: temporary folders are cleaned, claims run out. Raises Conflict when another
        machine's scheduler has taken a claim that we had let run out.
        """
        if self.network is not None:
            other = discovery.read_runtime_file(self._claim)
            if other is not None and (other.host, other.boot_id, other.pid) != (
                info.host,
                info.boot_id,
                info.pid,
            ):
                raise self._taken()
        info = msgspec.structs.replace(info, seen_us=now_us)
        self.publish(info)
        for path in self._lock_paths:
            with contextlib.suppress(OSError):
                os.utime(path)
        return info

    def withdraw(self) -> None:
        """Remove the files that name us; those of others stay."""
        for path in (self._claim, self._runtime_file):
            info = discovery.read_runtime_file(path)
            if info is not None and info.pid == os.getpid() and info.host == discovery.host_name():
                with contextlib.suppress(OSError):
                    path.unlink()
