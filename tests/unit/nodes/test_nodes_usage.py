"""Usage samples of GPUs and of real process trees."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_tree_counts_with_its_children_and_a_tree_that_is_gone_has_no_entry():
    script = (
        "import subprocess, sys; subprocess.Popen(['sleep', '60']); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            child.stdout.readline()
            sample = UsageSampler(simulated()).sample({"mine": child.pid, "gone": 2**22 + 7})
            assert set(sample.tasks) == {"mine"}
            assert sample.tasks["mine"].processes == 2
            assert sample.tasks["mine"].rss_bytes > 1 << 20
            assert sample.tasks["mine"].cpu_milli is None
        finally:
            os.killpg(child.pid, 9)


def test_cpu_is_measured_between_two_samples():
    clock = Clock()
    sampler = UsageSampler(simulated(), interval_s=1, monotonic_s=clock)
    sampler.sample({"me": os.getpid()})
    before = sum(os.times()[:2])
    while sum(os.times()[:2]) - before < 0.2:
        pass
    clock.now_s += 2
    cpu = sampler.sample({"me": os.getpid()}).tasks["me"].cpu_milli
    assert cpu >= 100  # 0.2 s of one core in 2 s


def test_sampler_asked_too_soon_gives_the_last_sample_again():
    clock = Clock()
    sampler = UsageSampler(simulated(), interval_s=2, monotonic_s=clock)
    first = sampler.sample({})
    clock.now_s += 1.9
    assert sampler.sample({}) is first
    clock.now_s += 0.2
    assert sampler.sample({}) is not first
