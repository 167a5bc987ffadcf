from __future__ import annotations

import pytest

from gpucluster.api.schemas import StreamItem
from gpucluster.cli_output import LogWriter, Output

GONE = StreamItem(type="gone", attempt=1, time_us=1_699_963_200_000_000, reason="the retention of 30 days")


def test_log_that_was_removed_is_told_once_and_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    writer = LogWriter(Output())
    record = StreamItem(type="record", attempt=2, kind="stdout", payload=b"two\n")
    writer.write_all([GONE, record])
    writer.write_all([GONE])
    said = capsys.readouterr()
    assert said.out == "two\n"
    assert said.err == "the log of attempt 1 was removed on 2023-11-14 by the retention of 30 days\n"
