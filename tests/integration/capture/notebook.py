"""A notebook's namespace here, its submitted cells in a real worker: what goes, comes back and is bound is the real thing."""

from __future__ import annotations

import builtins
import hashlib
import json
import linecache
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpucluster.api.schemas import ResultManifest
from gpucluster.worker import protocol
from jupyter_gpucluster.binding import Bound, bind_results
from jupyter_gpucluster.capture import Capture, collect

from ..worker.harness import Run, Workers


@dataclass
class Submitted:
    """A cell that was submitted and has ended."""

    capture: Capture
    run: Run
    manifest: ResultManifest
    bound: Bound = field(default_factory=Bound)


class Notebook:
    """Cells run here with `cell`, elsewhere with `submit`."""

    def __init__(self, workers: Workers, folder: Path) -> None:
        self.ns: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self.folder = folder
        self._workers = workers
        self._count = 0

    def cell(self, source: str) -> None:
        self._count += 1
        filename = f"<cell {self._count}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec", dont_inherit=True), self.ns)

    def __getitem__(self, name: str) -> Any:
        return self.ns[name]

    def submit(self, source: str, **options: Any) -> Submitted:
        """`--wait`: run it as a job and bind what comes back."""
        submitted = self.start(source, **options)
        assert submitted.run.code == 0, submitted.run.story()
        return self.bind(submitted)

    def start(self, source: str, **options: Any) -> Submitted:
        """`--no-wait`: run it as a job, bind nothing."""
        capture = collect(source, self.ns, **options)
        inputs = None
        if capture.manifest is not None:
            inputs = {"names": list(capture.manifest.names), "buffers": len(capture.manifest.buffers)}
        task_dir = self._workers.prepare(
            source,
            cwd=str(self.folder),
            outputs=list(capture.outputs),
            mutable_inputs=list(capture.mutable_inputs),
            digest_budget_bytes=options.get("digest_budget_bytes", 64 << 20),
        )
        if inputs is not None:
            spec_path = task_dir / protocol.SPEC
            spec_path.write_text(json.dumps({**json.loads(spec_path.read_text()), "inputs": inputs}))
            write_inputs(task_dir / "inputs", capture)
        run = self._workers.start_in(task_dir).wait()
        manifest = ResultManifest()
        if (task_dir / protocol.RESULT).exists():
            manifest = msgspec.convert(run.manifest, ResultManifest)
        return Submitted(capture, run, manifest)

    def bind(self, submitted: Submitted) -> Submitted:
        blobs = {}
        for path in (submitted.run.task_dir / "result").glob("*"):
            content = path.read_bytes()
            blobs[hashlib.sha256(content).hexdigest()] = content
        submitted.bound = bind_results(submitted.manifest, blobs.__getitem__, self.ns, home=self.ns)
        return submitted


def write_inputs(folder: Path, capture: Capture) -> None:
    """What the scheduler and the agent do: blobs to files, each checked by its hash."""
    assert capture.manifest is not None
    for sha, content in capture.blobs.items():
        assert hashlib.sha256(content).hexdigest() == sha
    (folder / "pickle").write_bytes(capture.blobs[capture.manifest.pickle])
    for number, sha in enumerate(capture.manifest.buffers):
        (folder / f"buffer.{number}").write_bytes(capture.blobs[sha])
