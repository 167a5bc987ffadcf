"""Submit → first output and submit → result, ours beside what a user would otherwise choose, in one run.

    python benchmarks/submit_latency.py [--repeat 100] [--only ours,subprocess] [--json out.json]

Every contender does the same small thing: print one line, return 42. Rounds are interleaved (one of each, then again),
so that whatever else the machine does meets all alike. Contenders whose package is not installed are named and left out
(`pip install 'jupyter-gpucluster[benchmark]'` brings them). Figures are for the machine that runs it; the ratios travel.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CODE = "print('first output', flush=True)\n21 * 2"
Sample = tuple[float, float]  # seconds to the first output, to the result


class Contender:
    """`once()` gives one sample. Set-up happens in `open`, and is not timed."""

    name = ""
    cold = False  # a cold one is expensive: fewer repeats

    def open(self) -> None: ...
    def once(self) -> Sample:
        raise NotImplementedError

    def close(self) -> None: ...


def answer() -> int:
    print("first output", flush=True)
    return 42


class BareSubprocess(Contender):
    name = "bare subprocess"

    def once(self) -> Sample:
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        first = time.perf_counter() - begin
        process.wait()
        return first, time.perf_counter() - begin


class _FirstWrite(io.StringIO):
    """A stdout that remembers when the job's own line came."""

    def __init__(self) -> None:
        super().__init__()
        self.time: float | None = None

    def write(self, text: str) -> int:
        if self.time is None and "first output" in text:
            self.time = time.perf_counter()
        return super().write(text)


class OursWarm(Contender):
    name = "%%submit, warm"

    def open(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        self.folder = Path(tempfile.mkdtemp(prefix="gpb-"))
        (self.folder / "run").mkdir(mode=0o700)
        os.environ["GPUCLUSTER_DATA"] = str(self.folder / "data")
        os.environ["GPUCLUSTER_RUNTIME"] = str(self.folder / "run")
        self.shell = InteractiveShell.instance()
        self.shell.run_line_magic("load_ext", "jupyter_gpucluster")
        self.once()

    def once(self) -> Sample:
        stream = _FirstWrite()
        begin = time.perf_counter()
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
            self.shell.run_cell_magic("submit", "--gpus 1", CODE.replace("21", "answer = 21", 1))
        end = time.perf_counter()
        if stream.time is None or self.shell.user_ns.pop("answer") != 42:
            raise RuntimeError(f"no output: {stream.getvalue()!r}")
        return stream.time - begin, end - begin

    def close(self) -> None:
        subprocess.run([sys.executable, "-m", "gpucluster", "stop"], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class OursCold(Contender):
    """Nothing runs: the first cell starts the scheduler, a fork server, and the task."""

    name = "%%submit, nothing running yet"
    cold = True

    def once(self) -> Sample:
        folder = Path(tempfile.mkdtemp(prefix="gpb-"))
        (folder / "run").mkdir(mode=0o700)
        env = {
            **os.environ,
            "GPUCLUSTER_DATA": str(folder / "data"),
            "GPUCLUSTER_RUNTIME": str(folder / "run"),
        }
        program = (
            "from IPython.core.interactiveshell import InteractiveShell as S\n"
            "import sys, time\n"
            "shell = S.instance(); shell.run_line_magic('load_ext', 'jupyter_gpucluster')\n"
            "print('begin', time.perf_counter(), flush=True)\n"
            f"shell.run_cell_magic('submit', '', {CODE!r})\n"
            "print('end', time.perf_counter(), flush=True)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, text=True
        )
        times: dict[str, float] = {}
        assert process.stdout is not None
        for line in process.stdout:
            word = line.split()[0] if line.split() else ""
            if word in ("begin", "end"):
                times[word] = float(line.split()[1])
            elif line.startswith("first output"):
                times["first"] = time.perf_counter()
        process.wait()
        subprocess.run(
            [sys.executable, "-m", "gpucluster", "stop"], env=env, check=False, capture_output=True
        )
        shutil.rmtree(folder, ignore_errors=True)
        return times["first"] - times["begin"], times["end"] - times["begin"]


class IPyParallel(Contender):
    name = "ipyparallel, warm engine"

    def open(self) -> None:
        import ipyparallel

        self.cluster = ipyparallel.Cluster(n=1, log_level=40)
        self.view = self.cluster.start_and_connect_sync(activate=False).load_balanced_view()
        self.once()

    def once(self) -> Sample:
        begin = time.perf_counter()
        result = self.view.apply_async(answer)
        first = None
        while not result.ready():
            result.wait(0.001)
            if first is None and result.stdout:
                first = time.perf_counter() - begin
        if result.get() != 42:
            raise RuntimeError("wrong result")
        end = time.perf_counter() - begin
        while first is None:
            result.wait_for_output(1)
            first = time.perf_counter() - begin
        return first, end

    def close(self) -> None:
        self.cluster.stop_cluster_sync()


class Submitit(Contender):
    name = "submitit, local executor"

    def open(self) -> None:
        import submitit

        self.folder = tempfile.mkdtemp(prefix="gpb-submitit-")
        self.executor = submitit.LocalExecutor(folder=self.folder)

    def once(self) -> Sample:
        begin = time.perf_counter()
        job = self.executor.submit(answer)
        while "first output" not in (job.stdout() or ""):
            time.sleep(0.001)
        first = time.perf_counter() - begin
        if job.result() != 42:
            raise RuntimeError("wrong result")
        return first, time.perf_counter() - begin

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class RayBase(Contender):
    context: Any = None

    def open(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        if not ray.is_initialized():
            RayBase.context = ray.init(
                include_dashboard=True,
                dashboard_host="127.0.0.1",
                log_to_driver=False,
                num_cpus=2,
                logging_level=40,
            )
        self.ray = ray


class RayActor(RayBase):
    name = "Ray, warm actor that starts a process"

    def open(self) -> None:
        super().open()
        ray = self.ray

        @ray.remote(num_cpus=0)
        class Agent:
            def run(self, code: str) -> Iterator[str]:
                process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
                assert process.stdout is not None
                # Not `yield from`: Ray sends into the generator, and a file has no `send`.
                for line in process.stdout:  # noqa: UP028
                    yield line
                process.wait()

        self.agent = Agent.remote()
        self.once()

    def once(self) -> Sample:
        begin = time.perf_counter()
        lines = self.agent.run.options(num_returns="streaming").remote(CODE)
        self.ray.get(next(lines))
        first = time.perf_counter() - begin
        for _ in lines:
            pass
        return first, time.perf_counter() - begin


class RayJob(RayBase):
    name = "Ray job"
    cold = True

    def open(self) -> None:
        super().open()
        from ray.job_submission import JobSubmissionClient

        self.client = JobSubmissionClient(f"http://{self.context.dashboard_url}")

    def once(self) -> Sample:
        begin = time.perf_counter()
        job = self.client.submit_job(entrypoint=f'{sys.executable} -c "{CODE.splitlines()[0]}"')
        while "first output" not in self.client.get_job_logs(job):
            time.sleep(0.005)
        first = time.perf_counter() - begin
        while not self.client.get_job_status(job).is_terminal():
            time.sleep(0.005)
        return first, time.perf_counter() - begin

    def close(self) -> None:
        self.ray.shutdown()


CONTENDERS: dict[str, Callable[[], Contender]] = {
    "subprocess": BareSubprocess,
    "ours": OursWarm,
    "ours-cold": OursCold,
    "ipyparallel": IPyParallel,
    "submitit": Submitit,
    "ray-actor": RayActor,
    "ray-job": RayJob,
}


def measure(contenders: list[Contender], repeat: int, repeat_cold: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for number in range(repeat):
        for contender in contenders:
            if not contender.cold or number < repeat_cold:
                samples[contender.name].append(contender.once())
        print(f"\rround {number + 1}/{repeat}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return samples


def summary(samples: list[Sample]) -> dict[str, float]:
    def quantile(values: list[float], share: float) -> float:
        return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]

    first, result = [sample[0] for sample in samples], [sample[1] for sample in samples]
    return {
        "n": len(samples),
        "first_p50_ms": 1000 * statistics.median(first), "first_p95_ms": 1000 * quantile(first, 0.95),
        "result_p50_ms": 1000 * statistics.median(result), "result_p95_ms": 1000 * quantile(result, 0.95),
    }  # fmt: skip


def report(rows: dict[str, dict[str, float]]) -> str:
    ours = rows.get(OursWarm.name)
    lines = [
        "| contender | n | first output p50 | p95 | result p50 | p95 | first output ÷ ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ratio = f"{row['first_p50_ms'] / ours['first_p50_ms']:.2f}" if ours else ""
        lines.append(
            f"| {name} | {row['n']:.0f} | {row['first_p50_ms']:.1f} ms | {row['first_p95_ms']:.1f} ms "
            f"| {row['result_p50_ms']:.1f} ms | {row['result_p95_ms']:.1f} ms | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--repeat-cold", type=int, default=10)
    parser.add_argument(
        "--only", default=",".join(CONTENDERS), help="comma-separated: " + ", ".join(CONTENDERS)
    )
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    opened: list[Contender] = []
    try:
        for key in options.only.split(","):
            contender = CONTENDERS[key]()
            try:
                contender.open()
            except ImportError as error:
                print(f"left out: {contender.name} ({error})", file=sys.stderr)
                continue
            opened.append(contender)
        samples = measure(opened, options.repeat, options.repeat_cold)
    finally:
        for contender in reversed(opened):
            contender.close()
    rows: dict[str, dict[str, Any]] = {name: summary(values) for name, values in samples.items() if values}
    print(report(rows))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
