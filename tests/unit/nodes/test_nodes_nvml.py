"""The inventory of real GPUs, against recordings of NVML (from vendor documentation, not yet seen on hardware)."""

from __future__ import annotations

import os

import pynvml
import pytest
from nvml_double import NAMES, RecordedHost, RecordedNvml, load

from gpucluster.model.topology import GpuHealth, Node
from gpucluster.nodes.detected import RETRY_PAUSES_S, DetectedNode
from gpucluster.nodes.inventory import Inventory
from gpucluster.nodes.nvml import Nvml
from gpucluster.nodes.settings import ForeignGpus, GpuTypeSettings, NodeDeclaration, NodeSettings, Source

NOBODY = 2**22 + 7  # above any pid that Linux gives


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Machine:
    """A recorded machine and the inventory that looks at it."""

    def __init__(self, name: str, settings: NodeSettings | None = None, **callables) -> None:
        recording = load(name)
        self.library = RecordedNvml(recording)
        self.clock = Clock()
        self.detected = DetectedNode(
            settings or NodeSettings(source=Source.DETECT),
            nvml=Nvml(self.library),
            host=RecordedHost(recording),
            monotonic_s=self.clock,
            **callables,
        )

    def open(self) -> Node:
        self.detected.open()
        return self.detected.node


# ---- shape


def test_dgx_a100_has_four_pairs_below_switches_on_four_sockets_and_one_nvlink_island():
    node = Machine("dgx_a100").open()
    assert [gpu.type for gpu in node.gpus] == ["A100"] * 8
    assert [gpu.memory_bytes for gpu in node.gpus] == [80 << 30] * 8
    assert [gpu.socket for gpu in node.gpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [gpu.switch for gpu in node.gpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {gpu.nvlink_island for gpu in node.gpus} == {0}
    assert not node.simulated
    assert not any(gpu.simulated for gpu in node.gpus)
    assert node.labels["driver"] == "535.104.05"
    assert node.labels["nics"] == "mlx5_0 (NUMA 3), mlx5_2 (NUMA 1), enp225s0f0 (NUMA 7)"


def test_v100_pairs_are_two_islands():
    node = Machine("v100_pairs").open()
    assert [gpu.nvlink_island for gpu in node.gpus] == [0, 0, 1, 1]
    assert [gpu.socket for gpu in node.gpus] == [0, 0, 1, 1]
    assert [gpu.type for gpu in node.gpus] == ["V100"] * 4


def test_single_t4_without_nvlink_and_numa_node_is_one_gpu_on_one_socket():
    machine = Machine("t4_single")
    (gpu,) = machine.open().gpus
    assert (gpu.type, gpu.socket, gpu.switch, gpu.nvlink_island) == ("T4", 0, 0, None)
    assert gpu.health is GpuHealth.OK
    assert machine.detected.notes == []  # what a card does not know is no reason for a note


def test_sockets_come_from_nvml_where_the_kernel_names_no_numa_node():
    machine = Machine("v100_pairs")
    machine.detected._host._numa = {}
    assert [gpu.socket for gpu in machine.open().gpus] == [0, 0, 1, 1]


def test_gpu_with_mig_is_shown_and_not_given_out():
    node = Machine("a100_mig").open()
    assert [gpu.mig_enabled for gpu in node.gpus] == [True, False]
    assert node.gpus[0].health is GpuHealth.BAD
    assert "MIG is enabled" in node.gpus[0].note
    assert node.capacity()["gpu"] == 1000


def test_gpus_of_which_only_some_are_visible_form_no_island_with_the_others():
    machine = Machine("v100_pairs")
    del machine.library.gpus[3]
    assert [gpu.nvlink_island for gpu in machine.open().gpus] == [0, 0, None]


def test_site_may_name_its_own_types():
    types = (GpuTypeSettings(name="big", products=("nvidia a100-sxm4-80gb",)),)
    node = Machine("dgx_a100", NodeSettings(source=Source.DETECT, gpu_types=types)).open()
    assert {gpu.type for gpu in node.gpus} == {"big"}


# ---- processes


def test_process_of_somebody_else_makes_its_gpu_foreign_and_is_named():
    machine = Machine("dgx_a100")
    machine.library.gpus[2]["compute"] = [{"pid": os.getpid(), "memory": 1 << 30}]
    gpu = machine.open().gpus[2]
    assert gpu.health is GpuHealth.FOREIGN
    assert f"pid {os.getpid()}, user " in gpu.note
    assert machine.detected.node.capacity()["gpu"] == 7000


def test_gpu_is_given_out_again_when_the_stranger_has_gone():
    machine = Machine("dgx_a100")
    machine.library.gpus[2]["compute"] = [{"pid": os.getpid()}]
    machine.open()
    machine.library.gpus[2]["compute"] = []
    assert machine.detected.refresh().gpus[2].health is GpuHealth.OK


def test_process_of_a_task_of_ours_does_not_make_a_gpu_foreign():
    machine = Machine("dgx_a100", is_ours=lambda pid: pid == os.getpid())
    machine.library.gpus[2]["compute"] = [{"pid": os.getpid()}]
    assert machine.open().gpus[2].health is GpuHealth.OK


def test_foreign_gpus_are_given_out_where_the_site_says_so():
    machine = Machine("dgx_a100", NodeSettings(source=Source.DETECT, foreign_gpus=ForeignGpus.IGNORE))
    machine.library.gpus[2]["compute"] = [{"pid": os.getpid()}]
    assert machine.open().gpus[2].health is GpuHealth.OK


def test_display_that_only_draws_does_not_take_the_gpu_away():
    machine = Machine("t4_single")
    machine.library.gpus[0]["graphics"] = [{"pid": os.getpid()}]
    assert machine.open().gpus[0].health is GpuHealth.OK


def test_process_that_cannot_be_seen_is_named_by_its_pid():
    machine = Machine("t4_single")
    machine.library.gpus[0]["compute"] = [{"pid": NOBODY}]
    assert f"a process (pid {NOBODY})" in machine.open().gpus[0].note


def test_process_with_a_number_from_outside_the_container_is_taken_for_the_task_that_holds_the_gpu():
    machine = Machine("t4_single", holds=lambda uuid: True)
    machine.library.gpus[0]["compute"] = [{"pid": NOBODY}]
    assert machine.open().gpus[0].health is GpuHealth.OK


# ---- faults of GPUs


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"remapped_rows": [0, 1, 0, 1]}, "could not be remapped"),
        ({"ecc_uncorrected": 3}, "3 memory errors that could not be corrected"),
    ],
)
def test_broken_memory_takes_the_gpu_out_with_a_note(change, wanted):
    machine = Machine("dgx_a100")
    machine.library.gpus[5].update(change)
    gpu = machine.open().gpus[5]
    assert gpu.health is GpuHealth.BAD
    assert wanted in gpu.note


def test_rows_that_wait_for_a_reset_are_a_note_and_the_gpu_goes_on():
    machine = Machine("dgx_a100")
    machine.library.gpus[5]["remapped_rows"] = [0, 1, 1, 0]
    assert machine.open().gpus[5].health is GpuHealth.OK
    assert any("GPU 5 waits for a reset" in note for note in machine.detected.notes)


def test_xid_of_the_hardware_takes_the_gpu_out_and_one_of_a_program_does_not():
    machine = Machine("dgx_a100")
    machine.open()
    machine.library.events = [(1, 13), (3, 79)]
    node = machine.detected.refresh()
    assert node.gpus[1].health is GpuHealth.OK
    assert node.gpus[3].health is GpuHealth.BAD
    assert node.gpus[3].note == "Xid 79, an error of the hardware"
    assert machine.detected.refresh().gpus[3].health is GpuHealth.BAD  # it stays


def test_flood_of_events_ends():
    machine = Machine("dgx_a100")
    machine.open()
    machine.library.events = [(0, 31)] * 5000
    machine.detected.refresh()
    assert machine.library.events  # the rest is read the next time


def test_lost_gpu_is_bad_and_the_others_go_on():
    machine = Machine("dgx_a100")
    machine.open()
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetRemappedRows"):
        machine.library.gpu_failures[function, 4] = pynvml.NVML_ERROR_GPU_IS_LOST
    node = machine.detected.refresh()
    assert node.gpus[4].health is GpuHealth.BAD
    assert node.gpus[4].note == "the GPU has fallen off the bus; it needs a reset or a reboot"
    assert sum(gpu.health is GpuHealth.OK for gpu in node.gpus) == 7


# ---- NVML itself fails


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVIDIA's library (libnvidia-ml.so.1) is not installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "this user may not use the NVIDIA driver"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "of different versions"),
        (pynvml.NVML_ERROR_UNKNOWN, "NVML says Unknown Error"),
    ],
)
def test_nvml_that_does_not_open_is_one_note_and_the_machine_is_there_without_gpus(code, wanted):
    machine = Machine("dgx_a100")
    machine.library.failures["nvmlInit"] = code
    node = machine.open()
    assert node.gpus == ()
    assert node.cpu > 0
    assert node.memory > 0
    (note,) = machine.detected.notes
    assert note.startswith("no GPUs were found: ")
    assert wanted in note


def test_nvml_that_dies_later_leaves_the_last_known_state_with_a_note():
    machine = Machine("dgx_a100")
    machine.library.gpus[2]["ecc_uncorrected"] = 1
    before = machine.open()
    machine.library.died = pynvml.NVML_ERROR_UNINITIALIZED
    after = machine.detected.refresh()
    assert after == before
    assert "as they were last seen" in " ".join(machine.detected.notes)
    assert machine.detected.state(before.gpus[0].uuid) is None  # no invented usage


def test_nvml_that_died_is_tried_again_with_growing_pauses_and_comes_back():
    machine = Machine("dgx_a100")
    machine.open()
    machine.library.died = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    machine.detected.refresh()
    tries = machine.library.calls["nvmlInit"]
    for pause_s in RETRY_PAUSES_S:
        machine.clock.now_s += pause_s * 0.9
        machine.detected.refresh()
        assert machine.library.calls["nvmlInit"] == tries, "not before its pause is over"
        machine.clock.now_s += pause_s * 0.2
        machine.detected.refresh()
        tries += 1
        assert machine.library.calls["nvmlInit"] == tries
    machine.library.died = None
    machine.clock.now_s += RETRY_PAUSES_S[-1]
    node = machine.detected.refresh()
    assert machine.detected.notes == []
    assert all(gpu.health is GpuHealth.OK for gpu in node.gpus)


def test_driver_that_is_loaded_later_brings_the_gpus():
    machine = Machine("t4_single")
    machine.library.failures["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert machine.open().gpus == ()
    machine.library.failures.clear()
    machine.clock.now_s += RETRY_PAUSES_S[0]
    assert len(machine.detected.refresh().gpus) == 1


FUNCTIONS = sorted(name for name in vars(RecordedNvml) if name.startswith("nvml"))
CODES = [
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_TIMEOUT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_UNKNOWN,
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_failure_of_any_call_gets_out_neither_at_the_start_nor_later(name, function):
    for code in CODES:
        at_start = Machine(name)
        at_start.library.failures[function] = code
        at_start.open()
        assert all(at_start.detected.notes), "a note says something"
        assert len(at_start.detected.notes) == len(set(at_start.detected.notes))
        at_start.detected.close()

        later = Machine(name)
        count = len(later.open().gpus)
        later.library.failures[function] = code
        assert len(later.detected.refresh().gpus) == count, "no GPU disappears from the view"
        later.detected.close()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_failure_that_is_no_nvml_error_does_not_get_out_either(function, monkeypatch):
    machine = Machine("dgx_a100")
    machine.open()

    def broken(*_):
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "an old driver's answer")

    monkeypatch.setattr(machine.library, function, broken)
    machine.detected.refresh()
    machine.detected.open()
    assert all(machine.detected.notes)


def test_question_that_a_user_may_not_ask_is_one_note_for_each_gpu_at_most():
    machine = Machine("dgx_a100")
    machine.library.failures["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_NO_PERMISSION
    machine.open()
    for _ in range(3):
        machine.detected.refresh()
    assert len(machine.detected.notes) == 8
    assert machine.detected.notes[0] == (
        "the processes on GPU 0 cannot be read: this user may not use the NVIDIA driver"
    )


# ---- the whole inventory


def inventory(name: str, settings: NodeSettings) -> Inventory:
    recording = load(name)
    return Inventory(settings, nvml=Nvml(RecordedNvml(recording)), host=RecordedHost(recording))


def test_machine_with_gpus_is_used_when_nothing_is_configured():
    found = inventory("t4_single", NodeSettings())
    (node,) = found.open()
    assert not node.simulated
    assert found.notes == []


def test_machine_without_gpus_gets_simulated_ones_and_says_why():
    found = inventory("t4_single", NodeSettings())
    found._nvml._library.failures["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    nodes = found.open()
    assert [node.name for node in nodes] == ["node-0", "node-1"]
    assert all(node.simulated for node in nodes)
    (note,) = found.notes
    assert "is not installed. The GPUs here are simulated" in note
    assert found.refresh() == []


def test_found_and_declared_nodes_stand_side_by_side():
    settings = NodeSettings(
        source=Source.DECLARED,
        detect=True,
        detected_name="here",
        declared=(NodeDeclaration(name="pretend", gpus=2),),
    )
    nodes = inventory("t4_single", settings).open()
    assert [(node.name, node.simulated) for node in nodes] == [("here", False), ("pretend", True)]


def test_refresh_names_the_nodes_that_changed_and_only_those():
    found = inventory("t4_single", NodeSettings(source=Source.DETECT))
    found.open()
    assert found.refresh() == []
    found._nvml._library.gpus[0]["ecc_uncorrected"] = 1
    (node,) = found.refresh()
    assert node.gpus[0].health is GpuHealth.BAD
    assert found.refresh() == []
    found.close()
