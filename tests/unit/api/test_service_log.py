from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from gpucluster.api.service_log import LOG_NAME, service_log

HOSTILE = "\x1b]0;owned\x07\x9b2J\nsecond line"


def test_log_lines_are_json_and_steer_no_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with service_log(tmp_path, to_terminal=True):
        logging.getLogger("test").warning("job %s failed", HOSTILE)
        logging.getLogger("test").warning("odd file name %s", "a\udc80b")
    lines = (tmp_path / LOG_NAME).read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines] == [
        f"job {HOSTILE} failed", "odd file name a\ufffdb",
    ]  # fmt: skip
    terminal = capfd.readouterr().err
    assert "owned" in terminal
    for said in ("\n".join(lines), terminal):
        assert not set(said) & {"\x1b", "\x07", "\x9b"}
