"""Cells from warm fork servers: the worker's side is tested elsewhere; here, how it is started and what comes back."""

from __future__ import annotations

import os
import pickle
import stat
import sys
from pathlib import Path

import pytest

from gpucluster.engine.events import TaskStartFailed
from gpucluster.model.jobs import InputManifest, StopCause
from gpucluster.worker.frames import Kind

from .lab import Lab, cell, shell, wait_until


def test_cell_runs_in_a_fork_of_a_warm_server_and_its_result_is_taken_in(lab: Lab) -> None:
    names = lab.blobs.add(pickle.dumps({"x": 20}, protocol=5))
    program = cell(
        "print('hello')\ny = x + 1\ny * 2",
        inputs=InputManifest(pickle=names, names=("x",)),
        outputs=("y",),
    )
    attempt = lab.start(program)
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.reason) == (0, None)
    assert lab.output(attempt) == b"hello\n"
    assert task_exit.result is not None
    assert task_exit.result.names == ("y",)
    assert task_exit.result.pickle is not None
    content = pickle.loads((lab.blobs.folder / task_exit.result.pickle).read_bytes())
    assert (content["y"], content["<value>"]) == (21, 42)


def test_second_cell_comes_from_the_same_server_but_shares_nothing(lab: Lab) -> None:
    source = (
        "import os, random, builtins\n"
        "print(os.getppid() != 1, getattr(builtins, 'mark', None), random.random())\n"
        "builtins.mark = 1"
    )
    attempts = [lab.start(cell(source)) for _ in range(2)]
    for attempt in attempts:
        assert lab.exit(attempt).code == 0
    first, second = (lab.output(attempt).split() for attempt in attempts)
    assert first[:2] == second[:2] == [b"True", b"None"]
    assert first[2] != second[2]
    assert len(lab.backend._runtime._servers._servers) == 2  # type: ignore[union-attr]


def test_variables_that_a_fork_cannot_change_get_a_server_of_their_own(lab: Lab) -> None:
    source = "import os; print(os.environ.get('OMP_NUM_THREADS'), open('/proc/self/environ').read().count('OMP_NUM_THREADS=3'))"
    plain, threads = lab.start(cell(source)), lab.start(cell(source, env={"OMP_NUM_THREADS": "3"}))
    assert lab.exit(plain).code == lab.exit(threads).code == 0
    assert lab.output(plain) == b"None 0\n"
    assert lab.output(threads) == b"3 1\n"


def test_more_environments_than_servers_start_cold(folder: Path) -> None:
    lab = Lab(folder)
    attempts = [
        lab.start(cell("import os; print(os.environ['OMP_X'])", env={"OMP_X": str(n)})) for n in range(6)
    ]
    for number, attempt in enumerate(attempts):
        assert lab.exit(attempt).code == 0
        assert lab.output(attempt) == f"{number}\n".encode()
    servers = lab.backend._runtime._servers
    assert servers is not None
    assert len([key for key in servers._servers if key[1]]) <= 4
    lab.close()


def test_exception_of_a_cell_is_named_in_its_exit(lab: Lab) -> None:
    attempt = lab.start(cell("1 / 0"))
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.error_name) == (1, "ZeroDivisionError")
    assert task_exit.reason == "ZeroDivisionError: division by zero"
    assert [frame for frame in lab.frames(attempt) if frame.kind is Kind.ERROR]


def test_notice_to_stop_reaches_a_cell_as_an_exception(lab: Lab) -> None:
    source = "import time\ntry:\n    print('in', flush=True); time.sleep(300)\nfinally:\n    print('out')"
    attempt = lab.start(cell(source))
    wait_until(lambda: b"in" in lab.output(attempt))
    lab.stop(attempt, StopCause.CANCEL, grace_s=30)
    assert lab.exit(attempt).reason == "stopped (cancel): ended within the grace"
    assert lab.output(attempt) == b"in\nout\n"


def test_notice_to_stop_that_comes_just_before_a_blocking_call_is_noticed(lab: Lab) -> None:
    """From the wait in C, which the notice ends, to the sleep there is no place where Python looks for signals."""
    attempt = lab.start(
        cell(
            "import ctypes, itertools, time\nprint('up')\nlibc = ctypes.CDLL(None)\n"
            "list(itertools.chain(itertools.starmap(libc.pause, [()]), map(time.sleep, [600])))"
        )
    )
    wait_until(lambda: lab.output(attempt) == b"up\n", "the first line")
    lab.stop(attempt, StopCause.CANCEL, grace_s=45)
    task_exit = lab.exit(attempt)
    assert (task_exit.code, task_exit.reason) == (143, "stopped (cancel): ended within the grace")


def test_crash_shows_the_stack_of_the_cell_and_nothing_of_what_runs_it(lab: Lab) -> None:
    source = "import ctypes\ndef crash():\n    ctypes.string_at(0)\nprint('before')\ncrash()"
    attempt = lab.start(cell(source))
    assert lab.exit(attempt).reason == "killed by signal 11 (SIGSEGV)"
    said = lab.output(attempt, Kind.STDERR).decode()
    assert said.startswith("Fatal Python error: Segmentation fault\n")
    assert "line 3 in crash" in said
    assert "line 5 in <module>" in said
    assert "IPython/core" not in said
    assert "gpucluster" not in said
    assert said.count("hread 0x") == 1, said


def test_order_of_prints_and_of_what_children_write_is_kept(lab: Lab) -> None:
    source = (
        "import subprocess\nfor i in range(20):\n    print('p', i)\n    subprocess.run(['echo', 'c', str(i)])"
    )
    attempt = lab.start(cell(source))
    assert lab.exit(attempt).code == 0
    assert lab.output(attempt).decode().split("\n") == [f"{who} {i}" for i in range(20) for who in "pc"] + [
        ""
    ]


def test_interpreter_that_does_not_exist_is_a_clear_start_failure(lab: Lab) -> None:
    event = lab.last(lab.start(cell("1", interpreter="/no/python")))
    assert isinstance(event, TaskStartFailed)
    assert not event.retry
    assert event.reason == "the interpreter /no/python does not exist on node-0"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'error while loading shared libraries: libpython' >&2; exit 127", "libpython"),
        ("exec no-such-python", "no-such-python"),
        (f"exec {sys.executable} -c 'import no_such_module'", "No module named 'no_such_module'"),
    ],
)
def test_interpreter_that_cannot_run_the_worker_is_a_start_failure_with_its_words(
    lab: Lab, folder: Path, script: str, said: str
) -> None:
    broken = folder / "python"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    event = lab.last(lab.start(cell("1", interpreter=str(broken))))
    assert isinstance(event, TaskStartFailed)
    assert not event.retry
    assert said in event.reason
    assert str(broken) in event.reason


def test_interpreter_that_is_too_old_is_named_with_its_version(lab: Lab, folder: Path) -> None:
    old = folder / "python"
    old.write_text('#!/bin/sh\ncase "$1" in -c) echo 3 8;; *) echo SyntaxError >&2; exit 1;; esac\n')
    old.chmod(0o700)
    event = lab.last(lab.start(cell("1", interpreter=str(old))))
    assert isinstance(event, TaskStartFailed)
    assert event.reason == f"{old} is Python 3.8; a task needs 3.9 or later"


def test_task_stopped_while_its_server_loads_never_runs(lab: Lab, folder: Path) -> None:
    slow = folder / "python"
    slow.write_text(f'#!/bin/sh\nsleep 20\nexec {sys.executable} "$@"\n')
    slow.chmod(0o700)
    attempt = lab.start(cell("1", interpreter=str(slow)))
    wait_until((lab.task_dir(attempt) / "spec.json").exists)
    lab.stop(attempt)
    event = lab.last(attempt)
    assert isinstance(event, TaskStartFailed)
    assert event.reason == "it was stopped before it had started"


def test_input_that_is_no_blob_is_a_start_failure(lab: Lab) -> None:
    event = lab.last(lab.start(cell("x", inputs=InputManifest(pickle="0" * 64, names=("x",)))))
    assert isinstance(event, TaskStartFailed)
    assert "the inputs cannot be placed: There is no blob" in event.reason


def test_result_that_cannot_be_taken_is_missing_and_the_exit_stands(lab: Lab) -> None:
    source = "import os\ny = 1\ndef hurt(path):\n    os.chmod(path, 0o600); open(path, 'ab').write(b'x')\n"
    source += "import atexit; atexit.register(lambda: hurt(os.environ['GPUCLUSTER_TASK_DIR'] + '/result/pickle'))\ny"
    attempt = lab.start(cell(source, outputs=("y",)))
    task_exit = lab.exit(attempt)
    assert task_exit.code == 0
    assert task_exit.result is not None
    assert task_exit.result.pickle is None
    assert set(task_exit.result.missing) >= {"y", "<value>"}
    assert "SHA-256" in task_exit.result.missing["y"]


def test_warm_prepares_a_server_that_the_next_cell_uses(lab: Lab) -> None:
    program = cell("1")
    lab.call(lab.backend.warm(program, "unix:0"))
    servers = lab.backend._runtime._servers
    assert servers is not None
    wait_until(lambda: [key for key in servers._servers if key[1] and servers._servers[key].done()])
    assert lab.exit(lab.start(program)).code == 0
    assert len([key for key in servers._servers if key[1]]) == 1


def test_fork_servers_end_with_their_scheduler_and_tasks_do_not(lab: Lab) -> None:
    assert lab.exit(lab.start(cell("1"))).code == 0
    attempt = lab.start(shell("until [ -e $GPUCLUSTER_TASK_DIR.go ]; do sleep 0.01; done; exit 3"))
    lab.started(attempt)
    servers = [future.result()._process for future in lab.backend._runtime._servers._servers.values()]  # type: ignore[union-attr]
    lab.go_away()
    assert all(process.poll() == 0 for process in servers)
    lab.open()
    lab.adopt(attempt)
    lab.started(attempt)
    lab.mark(attempt, "go").touch()
    assert lab.exit(attempt).code == 3
    assert os.path.exists(lab.task_dir(attempt) / "exit.json")
