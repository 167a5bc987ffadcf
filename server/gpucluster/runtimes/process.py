"""The process runtime: from an order to a running supervisor, on this machine, without root.

A cell of a known interpreter and environment is forked from a warm fork server. A command, and a cell for which there
is no room in one, are executed by a supervisor that comes from the scheduler's own small fork server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from ..engine.protocols import BlobAccess, TaskOrder
from ..model.errors import GpuclusterError, Unavailable
from ..model.jobs import InputManifest, Program, ProgramKind
from ..model.topology import Node
from ..worker import protocol
from . import bundle, taskfolder
from .environment import DEFAULT_PATH, program_environment, secret_environment, task_environment
from .forkservers import ForkServer, ForkServerDied, ForkServers
from .limits import CpuLimit, task_limits
from .starting import StartFailed
from .supervisor import folder, processes

DEFAULT_LOG_LIMIT_BYTES = 256 << 20
#: The kernel's limit for the path of a Unix socket is 108 bytes with its end; the promise is to stay below 100.
_MAX_SOCKET_PATH = 100

Result = TypeVar("Result")


class ProcessRuntime:
    """Prepares task folders and starts their supervisors. Used from one event loop; file work goes to `threads`."""

    def __init__(
        self,
        *,
        data_dir: str,
        runtime_dir: str,
        blobs: BlobAccess,
        threads: Executor,
        log_limit_bytes: int = DEFAULT_LOG_LIMIT_BYTES,
        cpu_limit: CpuLimit = CpuLimit.SHARE,
        pids_limit: int | None = None,
        max_fork_servers: int = 4,
        fork_server_idle_s: float = 1800.0,
    ) -> None:
        self._data_dir = os.path.abspath(data_dir)
        self._socket_dir = os.path.join(os.path.abspath(runtime_dir), "t")
        self._blobs = blobs
        self._threads = threads
        self._log_limit_bytes = log_limit_bytes
        self._cpu_limit = cpu_limit
        self._pids_limit = pids_limit
        self._max_fork_servers = max_fork_servers
        self._fork_server_idle_s = fork_server_idle_s
        self._bundle = ""
        self._servers: ForkServers | None = None

    async def open(self) -> None:
        """Write the bundle and bring up the small fork server. Raises Unavailable (data folder not writable, disk full)."""
        try:
            self._bundle = await self._in_thread(self._prepare_folders)
        except OSError as error:
            raise Unavailable(f"The data folder {self._data_dir} cannot be used: {error}") from error
        folder_path = os.path.join(self._data_dir, "forkservers")
        self._servers = ForkServers(
            self._bundle, folder_path, self._max_fork_servers, self._fork_server_idle_s
        )
        try:
            await self._servers.base()
        except StartFailed as error:
            raise Unavailable(error.reason) from error

    def _prepare_folders(self) -> str:
        for path in (self._data_dir, os.path.join(self._data_dir, "tasks"), self._socket_dir):
            os.makedirs(path, mode=0o700, exist_ok=True)
        current = bundle.write_bundle(self._data_dir)
        bundle.prune_bundles(self._data_dir, {current, *self._bundles_in_use()})
        return current

    def _bundles_in_use(self) -> set[str]:
        used: set[str] = set()
        for parent, names, files in os.walk(os.path.join(self._data_dir, "tasks")):
            if protocol.SPEC not in files:
                continue
            names.clear()
            if protocol.EXIT in files and not folder.is_locked(parent):
                continue  # over
            spec = folder.read_json(os.path.join(parent, protocol.SPEC))
            if isinstance(spec, dict):
                used.add(str(spec.get("bundle")))
        return used

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def task_folder(self, attempt_id: str, role: str, rank: int) -> str:
        """Where the task's files are. Raises ValueError for names that cannot be part of a path."""
        return taskfolder.task_folder(self._data_dir, attempt_id, role, rank)

    def control_path(self, attempt_id: str, rank: int) -> str:
        """Where the task's supervisor listens. Raises StartFailed when the path is too long for a socket."""
        path = os.path.join(self._socket_dir, f"{attempt_id}.{rank}")
        if len(os.fsencode(path)) >= _MAX_SOCKET_PATH:
            raise StartFailed(
                f"the runtime folder {self._socket_dir} is too long a path for sockets", retry=False
            )
        return path

    # -- start ---------------------------------------------------------------------------------------------------------

    async def prepare(self, order: TaskOrder, node: Node, task_dir: str) -> dict[str, str]:
        """Write the task's folder; returns its environment. Raises StartFailed, and then no folder is there."""
        return await self._in_thread(self._prepare, order, node, task_dir)

    def _prepare(self, order: TaskOrder, node: Node, task_dir: str) -> dict[str, str]:
        program = order.program
        spec = self._spec(order, node, task_dir)
        _check_program(program, spec["cwd"], node.name)
        try:
            secrets = secret_environment(order)
            taskfolder.create(task_dir, spec, secrets, lambda inputs: self._place(program.inputs, inputs))
        except OSError as error:
            raise StartFailed(f"the task's folder cannot be written: {error.strerror}", retry=True) from error
        except Unavailable as error:
            raise StartFailed(f"the inputs cannot be placed: {error}", retry=True) from error
        except GpuclusterError as error:
            raise StartFailed(f"the inputs cannot be placed: {error}", retry=False) from error
        env: dict[str, str] = spec["env"]
        return env

    def _place(self, manifest: InputManifest | None, inputs: str) -> None:
        if manifest is None:
            return
        self._blobs.place(manifest.pickle, os.path.join(inputs, "pickle"))
        for number, blob_hash in enumerate(manifest.buffers):
            self._blobs.place(blob_hash, os.path.join(inputs, f"buffer.{number}"))

    def _spec(self, order: TaskOrder, node: Node, task_dir: str) -> dict[str, Any]:
        program, placement = order.program, order.placement
        inputs = program.inputs
        return {
            "format": protocol.DISK_FORMAT,
            "job_id": order.job_id,
            "attempt_id": order.attempt_id,
            "job_number": order.job_number,
            "attempt_number": order.attempt_number,
            "job_name": order.job_name,
            "role": placement.role,
            "queue": order.queue,
            "owner_name": order.owner_name,
            "node": placement.node,
            "rank": placement.rank,
            "local_rank": placement.local_rank,
            "world_size": order.world_size,
            "kind": program.kind.value,
            "source": program.source,
            "command": list(program.command),
            "interpreter": program.interpreter or sys.executable,
            "cwd": program.cwd or os.path.join(task_dir, protocol.SCRATCH_FOLDER),
            "sys_path": list(program.sys_path),
            "env": task_environment(order, node, task_dir, os.path.join(self._bundle, bundle.SCRIPTS)),
            "inputs": inputs and {"names": list(inputs.names), "buffers": len(inputs.buffers)},
            "outputs": list(program.outputs),
            "mutable_inputs": list(program.mutable_inputs),
            "digest_budget_bytes": program.digest_budget_bytes,
            "limits": task_limits(placement.resources, self._cpu_limit, self._pids_limit),
            "grace_s": order.grace_s,
            "control": self.control_path(order.attempt_id, placement.rank),
            "bundle": self._bundle,
            "log_limit_bytes": self._log_limit_bytes,
            "boot_id": processes.boot_id(),
            "host": processes.host_name(),
        }

    async def spawn(
        self, program: Program, env: dict[str, str], task_dir: str, gave_up: asyncio.Event
    ) -> socket.socket:
        """Start a supervisor for a prepared folder; returns the agent's end of its control connection.

        Raises StartFailed, also when `gave_up` is set while a fork server is still loading. After an error a supervisor
        may still come: whoever does not want it any more revokes the folder.
        """
        for is_last_try in (False, True):
            server, is_warm = await _unless(gave_up, self._server_for(program, env))
            try:
                return await self._in_thread(_spawn, server, task_dir, is_warm)
            except ForkServerDied as error:
                if is_last_try:
                    raise StartFailed(str(error), retry=True) from error
                await self._in_thread(server.close)
        raise AssertionError("unreachable")

    async def _server_for(self, program: Program, env: dict[str, str]) -> tuple[ForkServer, bool]:
        assert self._servers is not None, "open() comes first"
        if program.kind is not ProgramKind.COMMAND:
            server = await self._servers.warm(program.interpreter or sys.executable, env)
            if server is not None:
                return server, True
        return await self._servers.base(), False

    async def warm(self, program: Program) -> None:
        """Have a fork server ready for such programs. A hint: what goes wrong shows at the start of a task."""
        if program.kind is ProgramKind.COMMAND or self._servers is None:
            return
        try:
            await self._servers.warm(program.interpreter or sys.executable, program_environment(program))
        except StartFailed:
            return

    def close_idle(self) -> None:
        """Let go fork servers that nobody has used for long; to be called now and then."""
        if self._servers is not None:
            self._servers.close_idle()

    async def close(self) -> None:
        """End the fork servers; tasks run on under their supervisors."""
        if self._servers is not None:
            await self._servers.close()


def _spawn(server: ForkServer, task_dir: str, is_warm: bool) -> socket.socket:
    """On a thread, whole: nobody who stops waiting for it can close a descriptor under it."""
    ours, theirs = socket.socketpair()
    try:
        server.spawn(task_dir, is_warm, theirs)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours


async def _unless(gave_up: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work`, but not longer than until `gave_up` is set. Raises StartFailed then."""
    waiting = asyncio.ensure_future(work)
    given_up = asyncio.ensure_future(gave_up.wait())
    try:
        await asyncio.wait({waiting, given_up}, return_when=asyncio.FIRST_COMPLETED)
        if gave_up.is_set():
            raise StartFailed("it was stopped before it had started", retry=True)
        return waiting.result()
    finally:
        waiting.cancel()
        given_up.cancel()


def _check_program(program: Program, cwd: str, node: str) -> None:
    """What can be told before anything starts. Raises StartFailed(retry=False)."""
    if program.cwd is not None and not os.path.isdir(cwd):
        raise StartFailed(f"the working directory {cwd} does not exist on {node}", retry=False)
    if program.kind is ProgramKind.COMMAND:
        if not program.command:
            raise StartFailed("the command is empty", retry=False)
        return
    interpreter = program.interpreter or sys.executable
    if shutil.which(interpreter, path=program.env.get("PATH", DEFAULT_PATH)) is None:
        what = "is not executable" if os.path.exists(interpreter) else "does not exist"
        raise StartFailed(f"the interpreter {interpreter} {what} on {node}", retry=False)
