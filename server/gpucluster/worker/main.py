"""The program inside a task: sets up the environment of the notebook, runs the cell, stores what comes back.

`preload()` does, before a fork, all that is slow and the same for every task of one interpreter and environment;
`run_task` goes on in the fresh child. Without a fork server, `main` does both.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

from . import hooks, protocol, reporting, results, streams
from .children import watch
from .displays import error_payload
from .frames import Kind
from .outbox import Outbox
from .outcome import EXIT_ERROR, Outcome, exit_code_of, message_of
from .spec import BadSpec, TaskSpec

#: The worker itself failed, not the cell.
EXIT_INTERNAL = 70
_PRELOADED = ("asyncio", "hashlib", "inspect", "linecache", "shutil", "subprocess", "traceback")
_PRELOADED_IF_THERE = (
    "cloudpickle",
    "gpucluster.worker.pickling",
    "gpucluster.worker.namespace",
    "gpucluster.worker.digest",
)
FUNCTION, ARGUMENTS, KEYWORDS = "<function>", "<args>", "<kwargs>"

_shell: Any = None
_shell_note: str | None = None
_has_inline_plots = False
_is_told_to_stop = False
_mask_before_fork: Any = ()


def preload() -> None:
    """Import and build what is slow, before a fork: starts no thread, opens no file, imports nothing that does."""
    for name in _PRELOADED:
        importlib.import_module(name)
    for name in _PRELOADED_IF_THERE:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    _prepare_shell()
    _plot_backend()
    gc.collect()
    gc.freeze()  # what is here stays shared with the children


def _prepare_shell() -> Any:
    global _shell, _shell_note
    if _shell is not None:
        return _shell
    try:
        from .shell import build
    except ImportError as error:
        from .plain import build  # type: ignore[assignment]

        if error.name != "IPython":
            _shell_note = f"IPython cannot be used here ({error}): the cell runs in a plain Python shell, without magics."
    _shell = build()
    return _shell


def run_task(task_dir: str, message_fd: int, env: dict[str, str] | None = None) -> int:
    """Run the task of that folder in this process, which is its alone, and return its exit code.

    `env`: the complete environment with the secrets in it; None = that of spec.json. The caller ends the process with
    `os._exit`: exit functions have been run, output is sent.
    """
    outbox = Outbox(message_fd)
    code = EXIT_INTERNAL
    try:
        code = _run(task_dir, outbox, env)
    except BadSpec as error:
        _fail(outbox, "BadSpec", str(error))
    except SystemExit as error:  # the notice to stop, while the task was being set up or its result stored
        code = exit_code_of(error)
    except BaseException as error:
        code = exit_code_of(error) if isinstance(error, KeyboardInterrupt) else EXIT_INTERNAL
        _fail(outbox, type(error).__name__, message_of(error), _own_traceback(error))
    return _finish(outbox, code)


def _run(task_dir: str, outbox: Outbox, env: dict[str, str] | None) -> int:
    spec = TaskSpec.read(task_dir)
    _set_environment(spec, task_dir, env)
    _reset_signals()
    _reset_standard_input()
    _tell_of_crashes(task_dir)
    streams.install(outbox)
    outbox.start()
    shell = _prepare_shell()
    watch(outbox)
    reporting.attach_worker(lambda payload: outbox.send(protocol.PACKET_STEP, payload))
    hooks.install()
    _reseed()
    shell.activate(outbox, shell.main, f"job {spec.job_number}")
    outbox.send(protocol.PACKET_UP, _greeting(shell))
    if _shell_note:
        print(_shell_note, file=sys.stderr)
    problem = _enter_folder(spec)
    if problem:
        _fail(outbox, "FileNotFoundError", problem)
        return EXIT_ERROR
    return _run_cell(task_dir, spec, shell, outbox)


def _run_cell(task_dir: str, spec: TaskSpec, shell: Any, outbox: Outbox) -> int:
    namespace = shell.main.__dict__
    from . import namespace as namespaces

    namespaces.bind(namespace)
    try:
        inputs = results.load_inputs(task_dir, spec)
    except Exception as error:
        sentence = (
            f"what the cell reads could not be loaded on {spec.node} by {sys.executable}: {message_of(error)}"
        )
        _fail(outbox, type(error).__name__, sentence)
        return EXIT_ERROR
    if spec.kind == "function":
        namespace.update((name, value) for name, value in inputs.items() if name.isidentifier())
        digests = results.Digests((), {}, 0)
        outcome = shell.call(inputs[FUNCTION], tuple(inputs[ARGUMENTS]), dict(inputs[KEYWORDS]))
    else:
        namespace.update(inputs)
        digests = results.Digests(spec.mutable_inputs, namespace, spec.digest_budget_bytes)
        del inputs
        outcome = shell.run(spec.source)
    return _store(task_dir, spec, outbox, namespace, outcome, digests)


def _store(
    task_dir: str,
    spec: TaskSpec,
    outbox: Outbox,
    namespace: dict[str, Any],
    outcome: Outcome,
    digests: results.Digests,
) -> int:
    """Of a cell that failed, what it had done until then comes back, as it would have stayed in the notebook."""
    has_failed = outcome.exit_code != 0
    if has_failed and (_is_told_to_stop or not outcome.has_begun):
        return outcome.exit_code
    try:
        results.store(task_dir, spec, namespace, outcome, digests)
    except Exception as error:
        if has_failed:  # the error to be told is the cell's own
            print(f"what the cell had assigned could not be stored: {message_of(error)}", file=sys.stderr)
        elif isinstance(error, OSError):
            sentence = f"the cell ended well, but its result could not be stored: {error}"
            _fail(outbox, type(error).__name__, sentence)
            return EXIT_ERROR
        else:
            raise
    return outcome.exit_code


def _set_environment(spec: TaskSpec, task_dir: str, env: dict[str, str] | None) -> None:
    """Exactly the job's environment, and its import path."""
    wanted = dict(spec.env if env is None else env)
    wanted.setdefault(protocol.ENV_TASK_DIR, task_dir)
    # The socket is this process's alone: a child that took the number for its own would write into something else.
    wanted.pop(protocol.ENV_MESSAGE_FD, None)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:  # most are the fork server's already; setting one takes time
            os.environ[name] = value
    # A job that says nothing of its path gets the interpreter's own.
    path = spec.sys_path or [entry for entry in sys.path if entry != spec.bundle]
    sys.path[:] = [*path, *([] if spec.bundle in path else [spec.bundle])]
    sys.argv[:] = [""]
    importlib.invalidate_caches()
    os.environ.setdefault("MPLBACKEND", _plot_backend())
    tempfile.tempdir = None
    time.tzset()


def _plot_backend() -> str:
    """Figures come back as displays, where that backend is installed beside matplotlib."""
    global _has_inline_plots
    if not _has_inline_plots:
        _has_inline_plots = all(importlib.util.find_spec(name) for name in ("matplotlib_inline", "IPython"))
    return "module://matplotlib_inline.backend_inline" if _has_inline_plots else "agg"


def _enter_folder(spec: TaskSpec) -> str | None:
    """Go to the job's working directory; a sentence when that cannot be."""
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        return f"the working directory {spec.cwd} cannot be used on {spec.node}: {error.strerror}"
    return None


def _tell_of_crashes(task_dir: str) -> None:
    """Into a file, from which the supervisor takes what belongs to the cell; those of children at once, on fd 2."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        faulthandler.enable(file=os.open(os.path.join(task_dir, protocol.CRASH), flags, 0o600))
    except OSError:  # a full disk
        faulthandler.enable(file=2)
    os.register_at_fork(after_in_child=_tell_of_crashes_in_child)


def _tell_of_crashes_in_child() -> None:
    if faulthandler.is_enabled():
        faulthandler.enable(file=2)


def _reset_signals() -> None:
    """A fresh process's handlers in place of the supervisor's, and the notice to stop as an exception.

    SIGTERM raises SystemExit(143) in the cell, so `finally` blocks and exit functions run within the grace. When it
    arrives just before a blocking call, Python would not look at it until that call returns: a SIGCONT that follows
    a little later ends the wait.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
    for number in (
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCHLD,
        signal.SIGALRM,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _on_stop)
    signal.signal(signal.SIGCONT, _on_continue)
    signal.siginterrupt(signal.SIGCONT, False)  # it also comes with each resume: what can go on waiting does
    os.register_at_fork(
        before=_hold_stop, after_in_parent=_let_stop_come, after_in_child=_stop_as_usual_in_child
    )


def _on_stop(_number: int, _frame: Any) -> None:
    global _is_told_to_stop
    _is_told_to_stop = True
    raise SystemExit(128 + signal.SIGTERM)


def _on_continue(_number: int, _frame: Any) -> None:
    """Only that it came matters: sleeping and polling end, and Python looks for signals."""


def _hold_stop() -> None:
    """A SIGTERM that came to a new child before it had left our handler would be noticed by nobody: it waits."""
    global _mask_before_fork
    _mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _let_stop_come() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask_before_fork)


def _stop_as_usual_in_child() -> None:
    """In children of the cell: a pool ends its workers by SIGTERM and expects them to die of it."""
    if signal.getsignal(signal.SIGTERM) is _on_stop:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_stop_come()


def _reset_standard_input() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, 0)
    if descriptor != 0:
        os.close(descriptor)


def _reseed() -> None:
    """All children of one fork server would otherwise draw the same numbers."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _greeting(shell: Any) -> bytes:
    ipython = sys.modules.get("IPython")
    return json.dumps(
        {
            "pid": os.getpid(),
            "protocol": [protocol.PROTOCOL_MIN, protocol.PROTOCOL_MAX],
            "python": sys.version.split()[0],
            "ipython": getattr(ipython, "__version__", None),
            "shell": type(shell).__module__.rpartition(".")[2],
        }
    ).encode()


def _fail(outbox: Outbox, name: str, sentence: str, lines: list[str] | None = None) -> None:
    outbox.send(Kind.ERROR, error_payload(name, sentence, lines or [f"{name}: {sentence}"]))


def _own_traceback(error: BaseException) -> list[str]:
    import traceback

    return traceback.format_exception(type(error), error, error.__traceback__)


def _finish(outbox: Outbox, code: int) -> int:
    """End as an interpreter does: wait for the cell's threads, run exit functions, send what is left."""
    for step in (threading._shutdown, atexit._run_exitfuncs, reporting.flush, _flush_files):  # type: ignore[attr-defined]
        try:
            step()
        except (SystemExit, KeyboardInterrupt) as error:  # told to stop while waiting for the cell's threads
            code = code or exit_code_of(error)
        except Exception as error:
            print(f"at the end of the job: {type(error).__name__}: {message_of(error)}", file=sys.stderr)
    outbox.close()
    return code


def _flush_files() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()


def main(arguments: list[str]) -> NoReturn:
    """Cold start: `start.py worker <task folder> <message fd>`, with the job's environment. Never returns."""
    task_dir, message_fd = arguments
    os._exit(run_task(task_dir, int(message_fd), dict(os.environ)))
