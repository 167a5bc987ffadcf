"""The IPython shell that a cell runs in: output, errors and exits go to the supervisor as a notebook kernel's would.

`build()` is called before the fork: it makes the shell and warms up what is slow, without threads, open files or
anything on disk. `activate` connects it, in the worker.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import atexit
import builtins
import contextlib
import getpass  # noqa: F401 (asking.py replaces its function)
import inspect
import os
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from IPython.core import page
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.paths import get_ipython_dir
from traitlets import Any as AnyTrait
from traitlets import Type, Unicode, default
from traitlets.config import Config

from . import asking, tracebacks
from .commands import run_command
from .displays import WIDGET_MIME, display_payload, error_payload
from .frames import Kind
from .outbox import Outbox
from .outcome import EXIT_ERROR, Outcome, exit_code_of, message_of

NO_WIDGETS = "note: widgets need a kernel; this one was shown as text"


class _CellExit(BaseException):
    """Takes SystemExit out of IPython's `run_code`, which would warn that this is not the way to end a session."""


def _emit(source: Any, kind: Kind, payload: bytes) -> None:
    source.shell.emit(kind, payload)


def _show(source: Any, kind: Kind, data: dict[str, Any], metadata: Any, **how: Any) -> None:
    """One display; of the first widget it is told why it is a text."""
    _emit(source, kind, display_payload(data, metadata, **how))
    if WIDGET_MIME in data and not source.shell.has_told_of_widgets:
        source.shell.has_told_of_widgets = True
        print(NO_WIDGETS, file=sys.stderr)


class _Hook(DisplayHook):
    """The value of the last expression: a DISPLAY record marked as the cell's result."""

    def write_output_prompt(self) -> None:
        """Numbered prompts belong to the notebook."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        _show(self, Kind.DISPLAY, format_dict, md_dict, execute_result=True)

    def log_output(self, format_dict: dict[str, Any]) -> None:
        """Outputs are kept in the log; a second copy in memory helps nobody."""

    def finish_displayhook(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._is_active = False


class _Publisher(DisplayPublisher):
    """`display()`, `update_display()`, `clear_output()` and what is built on them."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_ignored: Any,
    ) -> None:
        self._validate_data(data, metadata)
        display_id = (transient or {}).get("display_id")
        kind = Kind.UPDATE if update else Kind.DISPLAY
        _show(self, kind, data, metadata, display_id=display_id)

    def clear_output(self, wait: bool = False) -> None:
        _emit(self, Kind.CLEAR, b'{"wait": true}' if wait else b'{"wait": false}')


class _Compiler(CachingCompiler):
    """Names the cell in tracebacks: *Cell of job 12, line 3*."""

    job_label = "this job"

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", f"of {self.job_label}") if name in self._filename_map else None


class _Profile:
    """Stands in for IPython's profile folder, which would be made at once: only code that asks for it has it made."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    @property
    def location(self) -> str:
        return os.path.join(self._shell.ipython_dir, "profile_default")

    @property
    def startup_dir(self) -> str:
        return os.path.join(self.location, "startup")


class ZMQInteractiveShell(InteractiveShell):
    """The worker's shell. It bears the name by which rich, fastprogress and others recognise a notebook, so that they
    show tables and bars as they do there.
    """

    displayhook_class = Type(_Hook)
    display_pub_class = Type(_Publisher)
    compiler_class = _Compiler
    profile_dir = AnyTrait()
    ipython_dir = Unicode()

    has_told_of_widgets = False
    _outbox: Outbox | None = None
    _errors_shown = 0

    @default("ipython_dir")
    def _ipython_dir_when_asked(self) -> str:
        return str(get_ipython_dir())

    def init_ipython_dir(self, ipython_dir: Any) -> None:
        """Nothing on disk before it is needed."""

    def init_profile_dir(self, profile_dir: Any) -> None:
        self.profile_dir = _Profile(self)

    def init_sys_modules(self) -> None:
        """`__main__` is exchanged in the worker, not in the fork server."""

    def init_virtualenv(self) -> None:
        """The job's environment is complete as it is."""

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 90)

    @contextlib.contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        """IPython 9 keeps all that a cell prints in memory, for a history that a job has not."""
        yield

    def enable_gui(self, gui: str | None = None) -> None:
        if gui not in (None, "inline", "asyncio"):
            raise UsageError(f"a job has no screen: {gui!r} plots cannot be shown, use %matplotlib inline")

    def system(self, cmd: str) -> None:
        """`!cmd`; its exit code is left in `_exit_code`."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        code = run_command(self.var_expand(cmd, depth=1))
        self.user_ns["_exit_code"] = code
        if code != 0 and getattr(self, "system_raise_on_error", False):  # a setting of IPython 9
            raise subprocess.CalledProcessError(code, cmd)

    def ask_exit(self) -> None:
        """`exit` and `quit` end the job well."""
        raise SystemExit(0)

    def emit(self, kind: Kind, payload: bytes) -> None:
        """Send one record. Before the activation there is nobody to send to, and nothing is shown."""
        if self._outbox is not None:
            self._outbox.send(kind, payload)

    def activate(self, outbox: Outbox, main: types.ModuleType, label: str) -> None:
        """Connect the shell to the job: its output, and `main` as the namespace, which is the shell's own module."""
        self._outbox = outbox
        _Compiler.job_label = label
        for cls in type(self)._walk_mro():
            setattr(cls, "_instance", self)  # noqa: B010
        sys.modules["__main__"] = main
        self.starting_dir = os.getcwd()
        self.user_ns["_dh"][:] = [self.starting_dir]
        asking.refuse(StdinNotImplementedError)

    @property
    def main(self) -> types.ModuleType:
        module: types.ModuleType = self.user_module
        return module

    def run(self, source: str) -> Outcome:
        """Run the cell. Its errors have been shown when this returns."""
        result = self.run_cell(source, store_history=True)
        error = result.error_in_exec or result.error_before_exec
        if error is not None:
            code = EXIT_ERROR if isinstance(error, _CellExit) else exit_code_of(error)
            return Outcome(code, has_begun=result.error_in_exec is not None)
        if not result.success:
            return Outcome(EXIT_ERROR)
        return Outcome(has_value=result.result is not None, value=result.result)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call a function as the cell `function(*args, **kwargs)` would be run; a coroutine is awaited."""
        self.events.trigger("pre_execute")
        try:
            with self.builtin_trap, self.display_trap:
                value = function(*args, **kwargs)
                if inspect.iscoroutine(value):
                    value = _awaited(value)
            outcome = Outcome(has_value=True, value=value)
        except SystemExit as error:
            outcome = Outcome(exit_code_of(error))
        except BaseException as error:
            tracebacks.trim(error)
            self.showtraceback((type(error), error, error.__traceback__), tb_offset=0)
            outcome = Outcome(exit_code_of(error))
        self.events.trigger("post_execute")
        return outcome

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        try:
            etype, value, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            return super().showtraceback(exc_tuple)
        if issubclass(etype, SystemExit) and sys._getframe(1).f_code.co_name == "run_code":
            raise _CellExit
        if issubclass(etype, (SystemExit, _CellExit)):
            return None  # an end, and no error: exit(), or the notice to stop, wherever in IPython it came
        tracebacks.trim(value)
        if _holds_group(value):  # IPython prints these to stderr, as plain text
            lines = traceback.format_exception(etype, value, self._from_cell_on(tb))
            return self._showtraceback(etype, value, "".join(lines).rstrip().split("\n"))
        shown = self._errors_shown
        super().showtraceback(exc_tuple, filename, tb_offset, exception_only, running_compiled_code)
        if (
            self._errors_shown == shown
        ):  # IPython could not format it, as may happen with a `__str__` that fails
            lines = [*traceback.format_tb(self._from_cell_on(tb)), f"{etype.__name__}: {message_of(value)}"]
            self._showtraceback(etype, value, lines)
        return None

    def _from_cell_on(self, tb: types.TracebackType | None) -> types.TracebackType | None:
        """The traceback without the frames that only run the cell."""
        start = tb
        while start is not None:
            if start.tb_frame.f_code.co_filename in self.compile._filename_map:
                return start
            start = start.tb_next
        return tb

    def _format_exception_for_storage(self, exception: BaseException, *_args: Any, **_settings: Any) -> Any:
        """IPython 9 formats each error a second time for its history, which a job has not."""
        return {"ename": type(exception).__name__, "evalue": message_of(exception), "traceback": []}

    def show_usage_error(self, exc: BaseException) -> None:
        self._showtraceback(type(exc), exc, [f"UsageError: {message_of(exc)}"])

    def _showtraceback(self, etype: type[BaseException], evalue: Any, stb: list[str]) -> None:
        self._errors_shown += 1
        self.emit(Kind.ERROR, error_payload(etype.__name__, message_of(evalue), list(stb)))


def _awaited(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def _holds_group(error: BaseException | None) -> bool:
    group = getattr(builtins, "BaseExceptionGroup", None)
    while error is not None and group is not None:
        if isinstance(error, group):
            return True
        error = error.__cause__ or error.__context__
    return False


def build() -> ZMQInteractiveShell:
    """A shell with all that is slow already done, not connected to anything."""
    main = types.ModuleType("__main__", "The namespace of the submitted cell.")
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    shell = ZMQInteractiveShell(config=config, user_module=main, user_ns=main.__dict__)
    # At its end a task is not tidied up object by object; user code's own atexit functions do run.
    atexit.unregister(shell.atexit_operations)
    _warm_up(shell)
    return shell


def _warm_up(shell: ZMQInteractiveShell) -> None:
    """Go once through running, displaying and failing: what these import for their first time is then there."""
    shell.run_cell("pass", store_history=False)
    shell.displayhook.compute_format_data([1.0, "text"])
    name = shell.compile.cache("1 / 0", 0)
    try:
        exec(compile("1 / 0", name, "exec"), {})
    except ZeroDivisionError:
        shell.InteractiveTB.structured_traceback(*sys.exc_info())
    del shell.compile._filename_map[name]
    shell.execution_count = 1
