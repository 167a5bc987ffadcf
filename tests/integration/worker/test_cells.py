"""How a cell runs and ends: values, magics, errors with its own lines, exits, signals, its environment."""

from __future__ import annotations

import json
import re
import signal

import pytest

from gpucluster.worker.frames import Kind

from .harness import INTERRUPT, STOP, Workers


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_the_last_expression_is_shown_and_returned(workers: Workers) -> None:
    run = workers.run("x = 20\nx + 1")
    (display,) = run.displays
    assert display == {
        "data": {"text/plain": "21"},
        "metadata": {},
        "display_id": None,
        "execute_result": True,
    }
    assert run.result() == {"<value>": 21}
    assert run.manifest["has_value"] is True


@pytest.mark.parametrize("source", ["1 + 1;", "x = 1", "None", "", "# nothing"])
def test_a_cell_without_a_value_shows_nothing(workers: Workers, source: str) -> None:
    run = workers.run(source)
    assert run.displays == []
    assert run.manifest["has_value"] is False
    assert run.code == 0


def test_top_level_await_works(workers: Workers) -> None:
    run = workers.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nawait f()")
    assert run.result() == {"<value>": 7}


def test_asyncio_run_works(workers: Workers) -> None:
    assert workers.run("import asyncio\nasyncio.run(asyncio.sleep(0, 'slept'))").result() == {
        "<value>": "slept"
    }


def test_magics_work(workers: Workers) -> None:
    run = workers.run(
        """
%load_ext autoreload
%env A_NAME=a value
import os
print(os.environ["A_NAME"])
files = !echo one; echo two
print(list(files))
with open("script.py", "w") as file:
    file.write("y = 5\\nprint('from the script')")
%run script.py
print(y)
get_ipython().run_cell_magic("capture", "captured", "print('hidden')")
print(repr(captured.stdout))
"""
    )
    assert run.stdout == "env: A_NAME=a value\na value\n['one', 'two']\nfrom the script\n5\n'hidden\\n'\n"
    assert run.code == 0


def test_a_bash_cell_runs(workers: Workers) -> None:
    run = workers.run("%%bash\necho out\necho err >&2\nexit 0\n")
    assert run.stdout == "out\n"
    assert run.stderr == "err\n"


def test_help_is_shown_without_a_pager(workers: Workers) -> None:
    run = workers.run("len?")
    assert "number of items" in run.displays[0]["data"]["text/plain"]


def test_an_error_shows_the_cells_own_lines(workers: Workers) -> None:
    run = workers.run(
        "def inner(x):\n    return 1 / x\n\ndef outer():\n    return inner(0)\n\nprint('first')\nouter()"
    )
    assert run.code == 1
    assert run.story() == ["first\n", "<error ZeroDivisionError>"]
    assert run.error["evalue"] == "division by zero"
    assert "\x1b[" in run.traceback
    text = plain(run.traceback)
    assert "Cell of job 12, line 2, in inner(x)" in text
    assert "return 1 / x" in text
    assert "Cell of job 12, line 8" in text
    assert "gpucluster" not in text


def test_a_syntax_error_shows_its_line(workers: Workers) -> None:
    run = workers.run("x = 1\nif x\n    pass")
    assert run.error["ename"] == "SyntaxError"
    assert "if x" in plain(run.traceback)
    assert run.code == 1


def test_an_unknown_magic_is_an_error(workers: Workers) -> None:
    run = workers.run("%%nosuchmagic\nx")
    assert run.error["ename"] == "UsageError"
    assert run.code == 1


def test_a_group_of_exceptions_is_an_error_too(workers: Workers) -> None:
    if workers.python < (3, 11):
        pytest.skip("exception groups came with Python 3.11")
    run = workers.run("raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])")
    assert run.error["ename"] == "ExceptionGroup"
    assert "ValueError: a" in run.traceback
    assert "interactiveshell" not in run.traceback
    assert run.stderr == ""
    assert run.code == 1


def test_an_exception_that_cannot_be_told_is_still_one(workers: Workers) -> None:
    run = workers.run("class Bad(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Bad()")
    assert run.error["ename"] == "Bad"
    assert run.code == 1


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("exit()", 0),
        ("quit", 0),
        ("raise SystemExit(300)", 300 & 0xFF),
        ("import os; os._exit(9)", 9),
    ],
)
def test_an_exit_gives_its_code_without_an_error(workers: Workers, source: str, code: int) -> None:
    run = workers.run(f"print('before')\n{source}\nprint('after')" if source != "quit" else source)
    assert run.code == code
    assert run.json_of(Kind.ERROR) == []
    assert "after" not in run.stdout
    assert run.stderr == ""


def test_an_exit_with_a_text_prints_it(workers: Workers) -> None:
    run = workers.run("import sys\nsys.exit('no data')")
    assert run.stderr == "no data\n"
    assert run.code == 1


def test_names_come_back_after_an_exit_with_zero(workers: Workers) -> None:
    assert workers.run("x = 1\nimport sys\nsys.exit(0)", outputs=["x"]).result() == {"x": 1}


@pytest.mark.parametrize("source", ["input('name? ')", "import getpass; getpass.getpass()", "breakpoint()"])
def test_input_is_refused_with_a_clear_sentence(workers: Workers, source: str) -> None:
    run = workers.run(source)
    assert run.error["ename"] == "StdinNotImplementedError"
    assert "nobody to ask" in run.error["evalue"]
    assert run.code == 1
    text = plain(run.traceback)
    assert "Cell of job 12, line 1" in text
    assert "gpucluster" not in text
    assert "asking.py" not in text


def test_no_frame_of_ours_stands_between_those_of_the_cell(workers: Workers) -> None:
    run = workers.run(
        "class Bad:\n    def __bytes__(self): raise KeyError('inside')\nimport sys\n"
        "try:\n    input()\nexcept Exception as first:\n    sys.stdout.buffer.write(Bad())"
    )
    text = plain(run.traceback)
    assert "Cell of job 12, line 5" in text
    assert "Cell of job 12, line 2, in Bad.__bytes__" in text
    assert "streams.py" not in text
    assert "asking.py" not in text


def test_standard_input_is_empty(workers: Workers) -> None:
    assert workers.run("import sys\nprint(repr(sys.stdin.read()))\n!cat").stdout == "''\n"


def test_an_interrupt_is_an_error_of_the_cell(workers: Workers) -> None:
    task = workers.start("import time\nprint('ready')\ntime.sleep(60)")
    task.until(lambda run: "ready" in run.stdout)
    run = task.end_by(INTERRUPT)
    assert run.error["ename"] == "KeyboardInterrupt"
    assert run.code == 130


def test_the_notice_to_stop_runs_finally_and_exit_functions(workers: Workers) -> None:
    task = workers.start(
        "import atexit, time\natexit.register(print, 'exit function')\n"
        "try:\n    print('ready')\n    time.sleep(60)\nfinally:\n    print('saved')"
    )
    task.until(lambda run: "ready" in run.stdout)
    run = task.end_by(STOP)
    assert run.stdout == "ready\nsaved\nexit function\n"
    assert run.json_of(Kind.ERROR) == []
    assert run.code == 143
    assert not (run.task_dir / "result.json").exists()


def test_the_notice_to_stop_a_cell_that_awaits_is_no_error(workers: Workers) -> None:
    task = workers.start("import asyncio\nprint('ready')\nawait asyncio.sleep(60)")
    task.until(lambda run: "ready" in run.stdout)
    run = task.end_by(STOP)
    assert run.json_of(Kind.ERROR) == []
    assert run.code == 143


def test_the_notice_to_stop_while_ipython_prepares_the_cell_is_no_error(workers: Workers) -> None:
    run = workers.run(
        "class Stopped:\n    def visit(self, tree):\n        raise SystemExit(143)\n"
        "ip = get_ipython()\nip.ast_transformers.append(Stopped())\nip.run_cell('1')"
    )
    assert run.json_of(Kind.ERROR) == []


def test_a_notice_to_stop_that_comes_just_before_a_blocking_call_is_seen_with_the_next_signal(
    workers: Workers,
) -> None:
    """The calls below are chained in C, so that Python cannot look for signals between the notice and the sleep."""
    task = workers.start(
        "import ctypes, itertools, os, time\nkill = ctypes.CDLL(None).kill\n"
        "list(itertools.chain(map(print, ['ready']), map(kill, [os.getpid()], [15]), map(time.sleep, [600])))"
    )
    task.until(lambda run: "ready" in run.stdout)
    assert task.end_by(signal.SIGCONT).code == 143


def test_a_child_that_is_told_to_end_right_at_its_start_ends(workers: Workers) -> None:
    """The first function called in the child, before any of ours, sends it the signal, as a quick pool would."""
    run = workers.run(
        "import os, signal, time\nparent = os.getpid()\n"
        "def early():\n    if os.getpid() != parent: os.kill(os.getpid(), signal.SIGTERM)\n"
        "import gpucluster.worker.main as main\noriginal = main.signal.getsignal\n"
        "def getsignal(number):\n    early()\n    return original(number)\n"
        "main.signal.getsignal = getsignal\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    time.sleep(60)\n    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert run.stdout == "-15\n"
    assert "race" not in run.stderr


def test_the_notice_to_stop_can_be_handled_by_the_cell(workers: Workers) -> None:
    task = workers.start(
        "import signal, time\nstopped = []\nsignal.signal(signal.SIGTERM, lambda *_: stopped.append(1))\n"
        "print('ready')\nwhile not stopped: time.sleep(.01)\nprint('checkpoint')"
    )
    task.until(lambda run: "ready" in run.stdout)
    run = task.end_by(STOP)
    assert run.stdout == "ready\ncheckpoint\n"
    assert run.code == 0


def test_an_interrupt_amid_heavy_output_tears_no_packet(workers: Workers) -> None:
    for _ in range(5):
        task = workers.start("while True:\n    print('q' * 5000)")
        task.until(lambda run: len(run.events) > 50)
        run = task.end_by(INTERRUPT)
        assert run.error["ename"] == "KeyboardInterrupt"
        assert set(run.bytes_of(Kind.STDOUT)) <= set(b"q\n")


def test_a_signal_handler_may_print_while_output_is_sent(workers: Workers) -> None:
    run = workers.run(
        """
import signal, sys
hits = []
def on_alarm(*_):
    hits.append(1)
    sys.stdout.write(f"alarm {len(hits)}\\n")
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for i in range(20_000):
    sys.stdout.write(f"line {i}\\n")
signal.setitimer(signal.ITIMER_REAL, 0)
print("hits", len(hits))
"""
    )
    lines = run.stdout.splitlines()
    assert [line for line in lines if line.startswith("line")] == [f"line {n}" for n in range(20_000)]
    hits = int(next(line for line in lines if line.startswith("hits")).split()[1])
    alarms = [
        line for line in lines if line.startswith("alarm")
    ]  # a handler may come in the middle of a handler
    assert sorted(alarms) == sorted(f"alarm {number + 1}" for number in range(hits))
    assert hits > 0


def test_output_goes_on_after_signals_that_raise_in_the_middle_of_prints(workers: Workers) -> None:
    run = workers.run(
        """
import os, signal, sys, time
class Alarm(Exception): pass
caught = 0
def on_alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
for i in range(20_000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00001 + (i % 50) * 0.000001)
        print("piece", end=" ")
        print("line", i)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        caught += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print()
print(caught > 100)
print("unfinished", end="")
time.sleep(0.2)
os.system("echo child")
print("end")
"""
    )
    assert run.stdout.endswith("True\nunfinishedchild\nend\n")
    assert run.json_of(Kind.ERROR) == []
    assert run.code == 0


def test_a_crash_of_the_process_loses_no_printed_line(workers: Workers) -> None:
    run = workers.run("import ctypes\nprint('last words')\nctypes.string_at(0)")
    assert run.code == -11
    assert run.stdout == "last words\n"
    assert "Fatal Python error: Segmentation fault" in run.crash
    assert run.stderr == ""


def test_a_crash_of_a_child_is_told_at_once(workers: Workers) -> None:
    run = workers.run(
        "import ctypes, os\npid = os.fork()\nif pid == 0: ctypes.string_at(0)\nos.waitpid(pid, 0)\nprint('end')"
    )
    assert "Fatal Python error: Segmentation fault" in run.stderr
    assert (run.stdout, run.crash) == ("end\n", "")


def test_the_environment_is_exactly_that_of_the_job(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workers.run(
        "import json, os, sys\nprint(json.dumps(dict(os.environ))); print(os.getcwd()); print(sys.argv)",
        env={"PATH": "/bin", "A": "b", "TZ": "Asia/Tokyo"},
    )
    environment, folder, arguments = run.stdout.splitlines()
    assert json.loads(environment) == {
        "PATH": "/bin",
        "A": "b",
        "TZ": "Asia/Tokyo",
        "GPUCLUSTER_TASK_DIR": str(run.task_dir),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    assert folder == str(run.task_dir / "work")
    assert arguments == "['']"


def test_a_module_beside_the_notebook_is_found(workers: Workers) -> None:
    task_dir = workers.prepare("import beside\nbeside.VALUE")
    (task_dir / "work" / "beside.py").write_text("VALUE = 'found'")
    assert workers.start_in(task_dir).wait().result() == {"<value>": "found"}


def test_a_missing_working_directory_is_named(workers: Workers) -> None:
    run = workers.run("1", cwd="/no/such/folder")
    assert run.code == 1
    assert (
        run.error["evalue"]
        == "the working directory /no/such/folder cannot be used on node-1: No such file or directory"
    )


def test_tasks_of_one_fork_server_draw_different_numbers(workers: Workers) -> None:
    source = "import random, tempfile, numpy\nprint(random.random(), numpy.random.rand(), tempfile.mktemp())"
    assert not set(workers.run(source).stdout.split()) & set(workers.run(source).stdout.split())


def test_the_cell_lives_in_main(workers: Workers) -> None:
    run = workers.run(
        "import sys, pickle, __main__\ndef f(): return x\nx = 3\nprint(f.__module__, __main__.x, __name__, "
        "sys.modules['__main__'].__dict__ is globals(), pickle.loads(pickle.dumps(f))())"
    )
    assert run.stdout == "__main__ 3 __main__ True 3\n"


def test_the_worker_says_that_it_is_up_and_what_it_is(workers: Workers) -> None:
    kind, payload = workers.run("1").events[0]
    assert kind == 33
    assert json.loads(payload)["shell"] == "shell"


def test_a_damaged_specification_is_an_error_in_the_log(workers: Workers) -> None:
    task_dir = workers.prepare("1")
    (task_dir / "spec.json").write_text("{")
    run = workers.start_in(task_dir).wait()
    assert run.code == 70
    assert "cannot be read" in run.error["evalue"]


def test_a_task_folder_from_a_newer_version_is_refused(workers: Workers) -> None:
    run = workers.run("1", format=99)
    assert run.code == 70
    assert "format 99" in run.error["evalue"]


def test_no_traces_of_history_or_profile_are_left(workers: Workers) -> None:
    task_dir = workers.prepare("x = 1\nprint(x)\n1 / 0")
    spec = json.loads((task_dir / "spec.json").read_text())
    spec["env"]["HOME"] = str(task_dir / "work")
    (task_dir / "spec.json").write_text(json.dumps(spec))
    workers.start_in(task_dir).wait()
    assert list((task_dir / "work").iterdir()) == []


def test_a_cold_start_runs_the_cell_too(workers: Workers) -> None:
    run = workers.run_cold("import os\nprint(os.environ['SECRET'])\n%env SECRET", env={"SECRET": "s"})
    assert run.stdout == "s\n"
    assert run.code == 0


def test_a_job_without_an_import_path_has_the_interpreters_own(workers: Workers) -> None:
    for run in (workers.run, workers.run_cold):
        ended = run("import asyncio, numpy\nfrom gpucluster.worker import report\nprint('here')", sys_path=[])
        assert (ended.stdout, ended.code) == ("here\n", 0), ended.story()


@pytest.mark.parametrize(
    "source",
    [
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()\npool.submit(print, 'done').result()",
        "import multiprocessing\npool = multiprocessing.get_context('fork').Pool(1)\nprint(pool.apply(str, ('done',)))",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint('done')",
        "import asyncio\nloop = asyncio.new_event_loop()\nloop.run_in_executor(None, print, 'done')",
    ],
)
def test_what_a_cell_leaves_running_does_not_hold_the_job(workers: Workers, source: str) -> None:
    run = workers.run(source)
    assert (run.stdout, run.code) == ("done\n", 0)


def test_a_task_of_another_kind_is_refused(workers: Workers) -> None:
    run = workers.run("1", kind="command")
    assert run.code == 70
    assert "not a task of kind 'command'" in run.error["evalue"]
