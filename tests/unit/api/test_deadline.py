from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "server")}
HANG = """
import logging, sys, threading, time
from gpucluster.api.deadline import end_within
logging.basicConfig(stream=sys.stderr)
hang = lambda: time.sleep(3600)
threading.Thread(target=hang, name="agent-0").start()
end_within({patience}, 3)
"""


def test_process_with_a_thread_that_hangs_ends_at_its_deadline_and_says_where_it_hung() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANG.format(patience=0.2)],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "agent-0 in <lambda>" in done.stderr


def test_process_that_ends_by_itself_is_not_held_up() -> None:
    script = "from gpucluster.api.deadline import end_within; end_within(3600, 3)"
    assert subprocess.run([sys.executable, "-c", script], env=ENV, timeout=60, check=False).returncode == 0
