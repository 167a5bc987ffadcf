"""Fork servers as the agent keeps them: started, preloaded, kept warm, replaced when they die.

A few at most: one of the scheduler's own interpreter that preloads nothing (it forks supervisors for commands and cold
starts), and warm ones by (interpreter, what a fork cannot change of the environment).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..worker import protocol
from .environment import DEFAULT_PATH, fixed_variables
from .starting import StartFailed
from .supervisor.launch import PLACEHOLDER
from .threads import DaemonThreads

_PRELOAD_TIMEOUT_S = 120.0  # a cold interpreter on a network file system takes its time
_SPAWN_TIMEOUT_S = 30.0
_CLOSE_S = 4.0
_STDERR_TAIL_BYTES = 2000
#: What the system says of a path that is no program for us, now or later.
_NO_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)


#: The oldest Python that a supervisor and a worker run on.
_OLDEST = (3, 9)


def _version_of(interpreter: str) -> tuple[int, ...] | None:
    """What version of Python it is; None when it cannot even tell."""
    try:
        done = subprocess.run(
            [interpreter, "-c", "import sys; print('%d %d' % sys.version_info[:2])"],
            env={"PATH": DEFAULT_PATH},
            cwd="/",
            capture_output=True,
            timeout=10,
            check=True,
        )
        return tuple(int(number) for number in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


class ForkServerDied(Exception):
    """It is gone, or does not answer. Whether the last request was served, the task's folder tells."""


class ForkServer:
    """One fork server process. Blocking, one request at a time; called on threads."""

    def __init__(self, interpreter: str, bundle: str, env: Mapping[str, str], error_path: str) -> None:
        """Start the process. Raises StartFailed when the interpreter cannot be run."""
        self.interpreter = interpreter
        self._error_path = error_path
        self._lock = threading.Lock()
        self.last_used_s = time.monotonic()
        ours, theirs = socket.socketpair()
        self._socket = ours
        arguments = [interpreter, os.path.join(bundle, "start.py"), "forkserver", str(theirs.fileno())]
        try:
            with open(error_path, "wb") as errors:
                self._process = subprocess.Popen(
                    arguments,
                    env={"PATH": DEFAULT_PATH, **env, protocol.ENV_TASK_ID: PLACEHOLDER},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise StartFailed(
                f"the interpreter {interpreter} cannot be run: {error.strerror}",
                retry=error.errno not in _NO_PROGRAM,
            ) from error
        finally:
            theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def preload(self) -> None:
        """Load what a cell's worker needs. Raises StartFailed with what the interpreter said."""
        try:
            answer = self._ask({"op": "preload"}, None, _PRELOAD_TIMEOUT_S)
        except ForkServerDied as error:
            self.close()
            raise self._explain(error) from error
        if not answer.get("ok"):
            self.close()
            raise StartFailed(
                f"{self.interpreter} cannot load the worker: {answer.get('reason')}", retry=False
            )

    def _explain(self, error: ForkServerDied) -> StartFailed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        with open(self._error_path, "rb") as file:
            file.seek(max(os.path.getsize(self._error_path) - _STDERR_TAIL_BYTES, 0))
            said = file.read().decode("utf-8", "replace").strip()
        version = _version_of(self.interpreter)
        if version is not None and version < _OLDEST:
            older, oldest = (".".join(map(str, numbers)) for numbers in (version, _OLDEST))
            return StartFailed(
                f"{self.interpreter} is Python {older}; a task needs {oldest} or later", retry=False
            )
        # By itself an interpreter that runs a sound script does not end: it is broken, and will be the next time.
        retry = not said and self._process.returncode in (None, -9)
        words = said.rpartition("\n")[2].strip() or str(error)
        return StartFailed(f"{self.interpreter} cannot run the worker: {words}", retry=retry)

    def spawn(self, task_dir: str, is_warm: bool, control: socket.socket) -> int:
        """Fork a supervisor that holds `control`; returns its pid. Raises ForkServerDied, StartFailed(retry=True)."""
        self.last_used_s = time.monotonic()
        answer = self._ask({"op": "spawn", "task_dir": task_dir, "warm": is_warm}, control, _SPAWN_TIMEOUT_S)
        if not answer.get("ok"):
            raise StartFailed(f"no supervisor can be started: {answer.get('reason')}", retry=True)
        return int(answer["pid"])

    def _ask(
        self, request: dict[str, Any], attached: socket.socket | None, timeout_s: float
    ) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            self._socket.settimeout(timeout_s)
            try:
                sent = socket.send_fds(self._socket, [line], [attached.fileno()] if attached else [])
                self._socket.sendall(line[sent:])
                return self._read_answer()
            except (OSError, ValueError) as error:
                raise ForkServerDied(f"the fork server does not answer ({error})") from error

    def _read_answer(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\n"):
            more = self._socket.recv(64 << 10)
            if not more:
                raise OSError("it has ended")
            data += more
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise ValueError("not a JSON object")
        return answer

    def close(self) -> None:
        """End it; supervisors that it forked live on."""
        self._socket.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it at once, with what a wrapper script around the interpreter may have started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)


Key = tuple[str, tuple[tuple[str, str], ...]]


class ForkServers:
    """The agent's fork servers, by what they are good for. Used from one event loop."""

    def __init__(self, bundle: str, folder: str, max_warm: int = 4, idle_s: float = 1800.0) -> None:
        self._bundle = bundle
        self._folder = folder
        self._max_warm = max_warm
        self._idle_s = idle_s
        self._servers: dict[Key, asyncio.Future[ForkServer]] = {}
        self._threads = DaemonThreads(max_warm + 1, "gpucluster-fork-server")
        self._loading: list[ForkServer] = []
        self._count = 0
        os.makedirs(folder, mode=0o700, exist_ok=True)

    async def base(self) -> ForkServer:
        """The one that preloads nothing, of the scheduler's own interpreter. Raises StartFailed."""
        return await self._get((sys.executable, ()), {}, preload=False)

    async def warm(self, interpreter: str, env: Mapping[str, str]) -> ForkServer | None:
        """A warm one for tasks with this environment; None when there are too many. Raises StartFailed."""
        fixed = fixed_variables(env)
        key = (interpreter, (("warm", ""), *sorted(fixed.items())))
        if not self._is_usable(key) and not self._make_room():
            return None
        return await self._get(key, fixed, preload=True)

    async def _get(self, key: Key, env: Mapping[str, str], preload: bool) -> ForkServer:
        if not self._is_usable(key):
            self._discard(key)
            self._count += 1
            path = os.path.join(self._folder, f"{self._count % 64}.err")
            self._servers[key] = asyncio.get_running_loop().run_in_executor(
                self._threads, self._make, key[0], dict(env), path, preload
            )
        # Shielded: one task that gives up waiting does not take the server from the others.
        return await asyncio.shield(self._servers[key])

    def _make(self, interpreter: str, env: dict[str, str], error_path: str, preload: bool) -> ForkServer:
        server = ForkServer(interpreter, self._bundle, env, error_path)
        if preload:
            self._loading.append(server)
            try:
                server.preload()
            finally:
                self._loading.remove(server)
        return server

    def _is_usable(self, key: Key) -> bool:
        task = self._servers.get(key)
        if task is None:
            return False
        if not task.done():
            return True
        return not task.cancelled() and task.exception() is None and task.result().is_alive

    def _make_room(self) -> bool:
        """Let the least recently used warm one go when there are as many as may be; False when all are starting."""
        warm = [key for key in self._servers if key[1]]
        for key in [key for key in warm if not self._is_usable(key)]:
            self._discard(key)
            warm.remove(key)
        if len(warm) < self._max_warm:
            return True
        ready = [key for key in warm if self._servers[key].done()]
        if not ready:
            return False
        self._discard(min(ready, key=lambda key: self._servers[key].result().last_used_s))
        return True

    def close_idle(self) -> None:
        """Let go the warm ones that nobody has used for long."""
        now_s = time.monotonic()
        for key, task in list(self._servers.items()):
            if (
                key[1]
                and task.done()
                and self._is_usable(key)
                and task.result().last_used_s < now_s - self._idle_s
            ):
                self._discard(key)

    def _discard(self, key: Key) -> None:
        task = self._servers.pop(key, None)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            self._threads.submit(task.result().close)

    async def close(self) -> None:
        """End all of them; one that does not end within a few seconds is left to end with its socket."""
        tasks = list(self._servers.values())
        self._servers.clear()
        for server in list(self._loading):
            server.kill()
        closing = []
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, ForkServer):
                closing.append(asyncio.wrap_future(self._threads.submit(outcome.close)))
        self._threads.shutdown()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), _CLOSE_S)
