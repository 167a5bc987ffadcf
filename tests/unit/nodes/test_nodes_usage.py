"""Usage samples of GPUs and of real process trees."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
from nvml_double import RecordedHost, RecordedNvml, load

from gpucluster.nodes.inventory import Inventory
from gpucluster.nodes.nvml import Nvml
from gpucluster.nodes.settings import NodeSettings, Source
from gpucluster.nodes.usage import UsageSampler


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def recorded(name: str) -> Inventory:
    recording = load(name)
    found = Inventory(
        NodeSettings(source=Source.DETECT), nvml=Nvml(RecordedNvml(recording)), host=RecordedHost(recording)
    )
    found.open()
    return found


def simulated() -> Inventory:
    found = Inventory(NodeSettings(source=Source.DECLARED, detect=False))
    found.open()
    return found


def test_simulated_gpus_report_no_usage():
    assert UsageSampler(simulated()).sample({}).gpus == {}


def test_real_gpus_report_what_nvml_says_and_nothing_where_it_says_nothing():
    sample = UsageSampler(recorded("a100_mig")).sample({})
    with_mig, without = sample.gpus.values()
    assert with_mig.utilization_percent is None
    assert without.utilization_percent == 0
    assert without.memory_used_bytes == 4 << 20


#: A supervisor of two processes: one uses CPU while its standard input is open, the other sleeps.
SUPERVISOR = """
import subprocess, sys
busy = subprocess.Popen([sys.executable, "-c", "print('up', flush=True)\\nwhile True: pass"], stdout=subprocess.PIPE)
idle = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE)
busy.stdout.readline(), idle.stdout.readline()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def supervisor():
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout.readline()
            yield child.pid
        finally:
            os.killpg(child.pid, 9)


def test_tree_counts_without_its_supervisor_and_a_tree_that_is_gone_has_no_entry(supervisor):
    sample = UsageSampler(simulated()).sample({"mine": supervisor, "gone": 2**22 + 7})
    assert set(sample.tasks) == {"mine"}
    assert sample.tasks["mine"].processes == 2
    assert sample.tasks["mine"].rss_bytes > 2 << 20
    assert sample.tasks["mine"].cpu_milli is None


def cpu_used(pid: int) -> float:
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process(pid).children())


def test_cpu_is_measured_between_two_samples(supervisor):
    clock = Clock()
    sampler = UsageSampler(simulated(), interval_s=1, monotonic_s=clock)
    sampler.sample({"mine": supervisor})
    before = cpu_used(supervisor)
    while cpu_used(supervisor) - before < 0.2:
        time.sleep(0.01)
    clock.now_s += 2
    assert sampler.sample({"mine": supervisor}).tasks["mine"].cpu_milli >= 100  # 0.2 s of one core in 2 s


def test_what_an_old_process_used_before_it_was_known_is_not_told_as_of_now(supervisor):
    clock = Clock()
    sampler = UsageSampler(simulated(), interval_s=0, monotonic_s=clock)
    sampler.sample({})
    while cpu_used(supervisor) < 0.1:
        time.sleep(0.01)
    clock.now_s += 0.001
    assert sampler.sample({"mine": supervisor}).tasks["mine"].cpu_milli is None
    clock.now_s += 1
    assert sampler.sample({"mine": supervisor}).tasks["mine"].cpu_milli is not None


def test_sampler_asked_too_soon_gives_the_last_sample_again():
    clock = Clock()
    sampler = UsageSampler(simulated(), interval_s=2, monotonic_s=clock)
    first = sampler.sample({})
    clock.now_s += 1.9
    assert sampler.sample({}) is first
    clock.now_s += 0.2
    assert sampler.sample({}) is not first
