"""What is done before a fork must leave nothing that a fork could break."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).parents[3] / "server"

SCRIPT = """
import json, os, sys, threading
before = set(os.listdir("/proc/self/fd"))
from gpucluster.worker import main
main.preload()
print(json.dumps({
    "threads": threading.active_count(),
    "system_threads": len(os.listdir("/proc/self/task")),
    "new_files": sorted(set(os.listdir("/proc/self/fd")) - before),
    "heavy": [name for name in ("numpy", "matplotlib", "torch", "pandas", "tqdm", "zmq") if name in sys.modules],
    "is_main_kept": sys.modules["__main__"].__dict__ is globals(),
    "shell": type(main._shell).__module__,
}))
"""


def preloaded(folder: Path, *interpreter: str) -> dict[str, object]:
    environment = {"PATH": "/bin", "PYTHONPATH": str(SERVER), "HOME": str(folder)}
    command = [sys.executable, *interpreter, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert list(folder.iterdir()) == []
    content: dict[str, object] = json.loads(done.stdout)
    return content


def test_preload_leaves_no_thread_no_file_and_nothing_heavy(tmp_path: Path) -> None:
    assert preloaded(tmp_path) == {
        "threads": 1,
        "system_threads": 1,
        "new_files": [],
        "heavy": [],
        "is_main_kept": True,
        "shell": "gpucluster.worker.shell",
    }


def test_preload_works_with_the_standard_library_alone(tmp_path: Path) -> None:
    assert preloaded(tmp_path, "-S")["shell"] == "gpucluster.worker.plain"


def test_report_is_cheap_to_import(tmp_path: Path) -> None:
    script = "import sys; from gpucluster.worker import report; print('IPython' in sys.modules, 'asyncio' in sys.modules)"
    environment = {"PATH": "/bin", "PYTHONPATH": str(SERVER)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False False\n"
