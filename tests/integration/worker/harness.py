"""Runs cells in real workers and reads what they send, with the supervisor's own readers."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpucluster.runtimes.supervisor.channels import PacketReader, RawPipe
from gpucluster.worker import pickling, protocol
from gpucluster.worker.frames import Kind

SERVER = Path(__file__).parents[3] / "server"
PATIENCE_S = 60
#: The Python of the workers, for trying another version than that of the tests.
INTERPRETER = os.environ.get("GPUCLUSTER_TEST_INTERPRETER", sys.executable)


@dataclasses.dataclass
class Run:
    """What one task sent and left behind. `events`: (kind, payload) in the order of the log."""

    task_dir: Path
    events: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)
    code: int | None = None

    def bytes_of(self, *kinds: Kind) -> bytes:
        return b"".join(payload for kind, payload in self.events if kind in kinds)

    @property
    def stdout(self) -> str:
        return self.bytes_of(Kind.STDOUT).decode().replace("\r\n", "\n")

    @property
    def stderr(self) -> str:
        return self.bytes_of(Kind.STDERR).decode()

    def json_of(self, *kinds: int) -> list[dict[str, Any]]:
        return [json.loads(payload) for kind, payload in self.events if kind in kinds]

    @property
    def displays(self) -> list[dict[str, Any]]:
        return self.json_of(Kind.DISPLAY)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.json_of(protocol.PACKET_STEP)

    @property
    def crash(self) -> str:
        return (self.task_dir / protocol.CRASH).read_text()

    @property
    def error(self) -> dict[str, Any]:
        (error,) = self.json_of(Kind.ERROR)
        return error

    @property
    def traceback(self) -> str:
        return "\n".join(self.error["traceback"])

    def story(self) -> list[str]:
        """The log as a reader sees it: streams joined, displays by their text."""
        told: list[str] = []
        last = None
        for kind, payload in self.events:
            if kind >= protocol.PACKET_STEP:
                continue
            text = payload.decode() if kind <= Kind.STDERR else _text_of(kind, payload)
            if kind == last and kind <= Kind.STDERR:
                told[-1] += text
            else:
                told.append(text)
            last = kind
        return [text.replace("\r\n", "\n") for text in told]

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.task_dir / protocol.RESULT).read_text())

    def result(self) -> dict[str, Any]:
        """The names that came back; the files are checked against their hashes first."""
        manifest, folder = self.manifest, self.task_dir / "result"
        contents = [(folder / "pickle").read_bytes()]
        contents += [(folder / f"buffer.{n}").read_bytes() for n in range(len(manifest["buffers"]))]
        hashes = [hashlib.sha256(content).hexdigest() for content in contents]
        assert hashes == [manifest["pickle"], *manifest["buffers"]]
        assert sum(map(len, contents)) == manifest["total_bytes"]
        return pickling.load(contents[0], contents[1:])


def _text_of(kind: int, payload: bytes) -> str:
    content = json.loads(payload)
    if kind == Kind.CLEAR:
        return f"<clear wait={content['wait']}>"
    if kind == Kind.ERROR:
        return f"<error {content['ename']}>"
    text = content["data"].get("text/plain", "")
    return f"<update {text}>" if kind == Kind.UPDATE else f"<display {text}>"


class Task:
    """A started task. `wait` reads to its end; `until` reads until something was seen."""

    def __init__(
        self, run: Run, messages: socket.socket, pipes: list[int], join: Callable[[], int], pid: int
    ) -> None:
        self.run = run
        self.pid = pid
        self._messages = PacketReader(messages)
        self._pipes = [RawPipe(pipe) for pipe in pipes]
        self._join = join

    def _read_once(self, patience_s: float = 1.0) -> None:
        ready = [reader.descriptor for reader in [self._messages, *self._pipes] if reader.is_open]
        select.select(ready, [], [], patience_s)
        amount = self._messages.waiting()
        for kind, pipe in zip((Kind.STDOUT, Kind.STDERR), self._pipes, strict=True):
            self.run.events += [(kind, data) for data in pipe.drain()]
        self.run.events += self._messages.take(amount)

    def until(self, seen: Callable[[Run], Any]) -> Run:
        deadline = time.monotonic() + PATIENCE_S
        while not seen(self.run):
            assert time.monotonic() < deadline, self.run.story()
            self._read_once()
        return self.run

    def wait(self) -> Run:
        self.until(lambda run: not (self._messages.is_open or any(pipe.is_open for pipe in self._pipes)))
        self.run.code = self._join()
        return self.run

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def has_ended(self) -> bool:
        """True when the worker has closed its message socket."""
        if self._messages.is_open:
            self._read_once(patience_s=0)
        return not self._messages.is_open

    def end_by(self, number: int) -> Run:
        """Send the signal, and as the supervisor does, SIGCONT until it was noticed; then read to the end."""
        self.send_signal(number)
        while not self.has_ended():
            time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                self.send_signal(signal.SIGCONT)
        return self.wait()

    def leave(self) -> int:
        """Be a supervisor that dies. Returns how the worker then ended."""
        self._messages.close()
        for pipe in self._pipes:
            pipe.close()
        return self._join()


class Workers:
    """Starts tasks from one warm process, in folders below `base`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._count = 0
        ask = [INTERPRETER, "-c", "import json, sys; print(json.dumps([sys.path[1:], sys.version_info[:2]]))"]
        self._sys_path, version = json.loads(subprocess.run(ask, capture_output=True, check=True).stdout)
        self.python = tuple(version)
        ours, theirs = socket.socketpair()
        command = [INTERPRETER, str(Path(__file__).parent / "forker.py"), str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": str(SERVER), "HOME": str(base)}
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self._connection = ours
        assert ours.recv(16) == b"ready"

    def close(self) -> None:
        self._connection.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def prepare(self, source: str, inputs: dict[str, Any] | None = None, **changes: Any) -> Path:
        """A task folder as the agent leaves it."""
        self._count += 1
        task_dir = self._base / f"task-{self._count}"
        (task_dir / "inputs").mkdir(parents=True)
        (task_dir / "work").mkdir()
        spec: dict[str, Any] = {
            "format": protocol.DISK_FORMAT,
            "job_number": 12,
            "rank": 0,
            "node": "node-1",
            "kind": "cell",
            "source": source,
            "cwd": str(task_dir / "work"),
            "sys_path": ["", *self._sys_path],
            "env": {"PATH": os.environ["PATH"], "HOME": str(self._base), "LANG": "C.UTF-8"},
            "inputs": None,
            "outputs": [],
            "mutable_inputs": [],
            "digest_budget_bytes": 1 << 20,
            "bundle": str(SERVER),
        }
        if inputs is not None:
            pickled = pickling.dump(inputs, ns={})
            assert not pickled.failed
            (task_dir / "inputs" / "pickle").write_bytes(pickled.pickle)
            for number, buffer in enumerate(pickled.buffers):
                (task_dir / "inputs" / f"buffer.{number}").write_bytes(buffer)
            spec["inputs"] = {"names": list(inputs), "buffers": len(pickled.buffers)}
        spec.update(changes)
        (task_dir / protocol.SPEC).write_text(json.dumps(spec))
        return task_dir

    def start(self, source: str, inputs: dict[str, Any] | None = None, **changes: Any) -> Task:
        return self.start_in(self.prepare(source, inputs, **changes))

    def start_in(self, task_dir: Path) -> Task:
        ours, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        socket.send_fds(self._connection, [str(task_dir).encode()], [theirs.fileno(), out[1], err[1]])
        pid = struct.unpack("<i", self._connection.recv(4))[0]
        for descriptor in (out[1], err[1]):
            os.close(descriptor)
        theirs.close()
        return Task(Run(task_dir), ours, [out[0], err[0]], self._join, pid)

    def _join(self) -> int:
        self._connection.settimeout(PATIENCE_S)
        return int(struct.unpack("<i", self._connection.recv(4))[0])

    def run(self, source: str, inputs: dict[str, Any] | None = None, **changes: Any) -> Run:
        return self.start(source, inputs, **changes).wait()

    def run_cold(
        self, source: str, *interpreter: str, env: dict[str, str] | None = None, **changes: Any
    ) -> Run:
        """By `start.py` of a bundle, with these interpreter arguments."""
        task_dir = self.prepare(source, **changes)
        shutil.copy(SERVER / "gpucluster" / "worker" / "start.py", task_dir / "start.py")
        (task_dir / "gpucluster").symlink_to(SERVER / "gpucluster")
        ours, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        process = subprocess.Popen(
            [
                INTERPRETER,
                *interpreter,
                str(task_dir / "start.py"),
                "worker",
                str(task_dir),
                str(theirs.fileno()),
            ],
            pass_fds=[theirs.fileno()],
            stdout=out[1],
            stderr=err[1],
            env={"PATH": os.environ["PATH"], "HOME": str(self._base), **(env or {})},
        )
        for descriptor in (out[1], err[1]):
            os.close(descriptor)
        theirs.close()
        return Task(
            Run(task_dir), ours, [out[0], err[0]], lambda: process.wait(PATIENCE_S), process.pid
        ).wait()


INTERRUPT, STOP = signal.SIGINT, signal.SIGTERM
