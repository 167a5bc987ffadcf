"""Jobs that write very much: nothing of it is lost, the notebook stays readable, and the scheduler stays small and answers."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest
from support.place import TIMEOUT_S, Place

from .kernels import Once, start_kernel

LINES = 1_000_000
#: Far above what the scheduler takes when idle, far below what holding the output would take.
MEMORY_BOUND_BYTES = 150 << 20
#: On a machine that two floods keep busy. A scheduler that reads a log in its loop would stand still for many times this.
ANSWER_BOUND_S = 10.0

FLOOD = f"for n in range({LINES}):\n    print('line', n)"
#: About 10 MB each second for five seconds, in lines of 1 kB.
STREAM = (
    "import sys, time\nblock = ('x' * 1023 + '\\n') * 1000\nbegan = time.monotonic()\nfor n in range(50):\n"
    "    sys.stdout.write(block)\n    sys.stdout.flush()\n    time.sleep(max(0, began + 0.1 * (n + 1) - time.monotonic()))\n"
    "print('last', flush=True)"
)


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watch(threading.Thread):
    """Asks the scheduler for its status again and again; the slowest answer and the most memory it was seen with."""

    def __init__(self, where: Place) -> None:
        super().__init__(daemon=True)
        info = where.info()
        assert info is not None
        self._where = where
        self._pid = info.pid
        self._over = threading.Event()
        self.at_first = resident_bytes(self._pid)
        self.slowest_s = 0.0
        self.most_bytes = 0
        self.answers = 0
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            with self._where.client() as client:
                while not self._over.is_set():
                    began = time.monotonic()
                    client.status()
                    client.jobs(limit=5)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.most_bytes = max(self.most_bytes, resident_bytes(self._pid))
                    self.answers += 1
                    self._over.wait(0.05)
        except BaseException as error:
            self.fault = error

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join(TIMEOUT_S)

    def check(self) -> None:
        assert self.fault is None, repr(self.fault)
        assert self.answers > 5
        assert self.slowest_s < ANSWER_BOUND_S
        assert self.most_bytes - self.at_first < MEMORY_BOUND_BYTES


def shown(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^line (\d+)$", text, re.MULTILINE)]


def test_million_lines_show_head_and_tail_and_stand_whole_in_the_log(cluster: Place) -> None:
    kernel = start_kernel(cluster)
    kernel.run("%submit --gpus 0 1")
    with Watch(cluster) as watch:
        cell = kernel.run(f"%%submit --gpus 1\n{FLOOD}\n'end'")
        number = str(cell.card["number"])
        out, _ = cluster.cli("logs", number)
    assert (cell.status, cell.result) == ("ok", "'end'"), str(cell.reply)
    numbers = shown(cell.stdout)
    assert numbers[0] == 0
    assert numbers[-1] == LINES - 1
    assert numbers == sorted(set(numbers)), "in order, none twice"
    assert len(cell.stdout) < 4_000_000, "a notebook that can still be opened"
    assert f"%logs {number}" in cell.stdout + cell.stderr, "says where the rest is"
    assert out == "".join(f"line {n}\n" for n in range(LINES)) + "'end'\n"
    tail, _ = cluster.cli("logs", number, "--tail", "3")
    assert tail == f"line {LINES - 2}\nline {LINES - 1}\n'end'\n"
    watch.check()


def test_ten_megabytes_each_second_hold_up_nobody(cluster: Place) -> None:
    kernel = start_kernel(cluster)
    with Watch(cluster) as watch:
        kernel.run(f"%%submit --gpus 1 --no-wait --as flood\n{STREAM}")
        number = kernel.run("flood.number").result
        quick = kernel.run("%%submit --gpus 1\nprint('quick')\n'done'")
        assert (quick.stdout, quick.result) == ("quick\n", "'done'")
        assert kernel.run("flood.result()").status == "ok"
    out, _ = cluster.cli("logs", str(number))
    assert len(out) == 50 * 1000 * 1024 + len("last\n")
    assert out.endswith("x\nlast\n")
    watch.check()


def test_interrupt_gets_through_a_flood(cluster: Place) -> None:
    """■ while output pours in: the cell lets go soon, and the job can be cancelled."""
    kernel = start_kernel(cluster)
    cell = kernel.run(
        "%%submit --gpus 1\nn = 0\nwhile True:\n    print('line', n)\n    n += 1",
        Once(lambda cell: "line" in cell.stdout, kernel.interrupt),
    )
    assert cell.ename == "Detached", cell.reply
    number = cell.card["number"]
    kernel.run(f"%cancel {number}")
    assert cluster.ended(number).state == "cancelled"


@pytest.mark.parametrize(
    "command", ["yes a-line-that-goes-on-and-on | head -c 30000000", "head -c 30000000 /dev/zero"]
)
def test_command_without_line_ends_or_with_many_is_kept_byte_by_byte(cluster: Place, command: str) -> None:
    with Watch(cluster) as watch:
        number = cluster.cli("submit", "--gpus", "0", "--", "sh", "-c", command)[0].strip()
        assert cluster.ended(number).state == "succeeded"
        out, _ = cluster.cli("logs", number)
    assert len(out) == 30_000_000
    watch.check()
