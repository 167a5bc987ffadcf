"""The package is light, and loading the extension registers its magics once and starts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

import jupyter_gpucluster
from gpucluster.api.errors import InvalidRequest, NotSupported
from jupyter_gpucluster.functions import _option_values, call_text


def in_fresh_python(code: str, **env: str) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    heavy = "IPython", "httpx", "numpy", "ipywidgets", "tornado", "cloudpickle", "sqlalchemy"
    code = f"import sys, jupyter_gpucluster; print([name for name in {heavy!r} if name in sys.modules])"
    assert in_fresh_python(code) == "[]"


def test_every_public_name_can_be_had():
    for name in jupyter_gpucluster.__all__:
        assert getattr(jupyter_gpucluster, name) is not None
    with pytest.raises(AttributeError):
        jupyter_gpucluster.no_such_name  # noqa: B018


def test_loading_starts_no_scheduler(tmp_path):
    code = (
        "import threading, time\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell()\nshell.run_line_magic('load_ext', 'jupyter_gpucluster')\n"
        "[t.join() for t in threading.enumerate() if t.name == 'gpucluster-warm']\n"
        "from gpucluster.api import discovery\nprint(discovery.find_scheduler())"
    )
    folders = {
        "GPUCLUSTER_DATA": str(tmp_path / "d"),
        "GPUCLUSTER_RUNTIME": str(tmp_path / "r"),
        "HOME": str(tmp_path),
    }
    assert in_fresh_python(code, GPUCLUSTER_ADDRESS="", JUPYTER_GPUCLUSTER_URL="", **folders) == "None"


def test_extension_can_be_loaded_unloaded_and_reloaded(monkeypatch):
    monkeypatch.setenv("GPUCLUSTER_ADDRESS", "unix:/nonexistent.sock")
    shell = InteractiveShell()
    for _ in range(2):
        shell.run_line_magic("load_ext", "jupyter_gpucluster")
        shell.run_line_magic("reload_ext", "jupyter_gpucluster")
        names = [type(each).__name__ for each in shell.configurables]
        assert names.count("GPUClusterMagics") == 1
        assert shell.find_cell_magic("submit") is not None
        assert all(
            shell.find_line_magic(name)
            for name in ["submit", "jobs", "queues", "topology", "logs", "cancel", "attach", "why", "share"]
        )
        shell.run_line_magic("unload_ext", "jupyter_gpucluster")
        assert shell.find_cell_magic("submit") is None


def test_defaults_of_a_notebook_are_checked_when_they_are_set(monkeypatch):
    from traitlets import TraitError

    from jupyter_gpucluster.magics import GPUClusterMagics

    magics = GPUClusterMagics(shell=InteractiveShell())
    magics.memory, magics.gpus, magics.interrupt = "8G", "2", "cancel"
    assert magics._defaults() == {"wait": True, "memory": 8 << 30, "gpus": 2.0}
    for name, value in (("memory", "lots"), ("gpus", "two"), ("interrupt", "explode"), ("share", "nobody")):
        with pytest.raises(TraitError):
            setattr(magics, name, value)


def test_every_trait_is_documented():
    from jupyter_gpucluster.magics import GPUClusterMagics

    assert all(trait.help for name, trait in GPUClusterMagics.class_own_traits(config=True).items())


def test_options_of_a_function_are_those_of_the_magic():
    values = _option_values(
        {
            "gpus": 2,
            "memory": "8G",
            "time": "2h",
            "env": {"A": "b", "C": None},
            "after": [3],
            "gpu_type": ["A100", "V100"],
            "tasks": 4,
        }
    )
    assert values == {
        "gpus": 2.0, "memory": 8 << 30, "time": 7200.0, "env": [("A", "b"), ("C", None)], "after": [["3"]],
        "gpu_type": ["A100", "V100"], "tasks": "4",
    }  # fmt: skip


def test_keyword_that_is_no_option_is_sent_to_kwargs():
    with pytest.raises(InvalidRequest, match="kwargs") as caught:
        jupyter_gpucluster.submit(print, 1, epochs=3)
    assert caught.value.field == "epochs"


def test_executor_refuses_a_bad_option_at_once():
    with pytest.raises(InvalidRequest):
        jupyter_gpucluster.Executor(gpus="two")


def test_option_of_a_later_version_is_refused_by_name():
    with pytest.raises(NotSupported, match="image"):
        jupyter_gpucluster.submit(print, image="x")


def test_call_is_shown_as_one_would_write_it():
    assert call_text(sorted, ([3, 1],), {"reverse": True}) == "sorted(<list>, reverse=True)"
