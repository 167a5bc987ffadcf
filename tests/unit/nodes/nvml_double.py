"""Stands in for the module `pynvml`: answers from a recording, and fails where a test says so.

The recordings in recordings/ are written from vendor documentation; none has been taken from hardware yet.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from gpucluster.nodes.host import Host, Nic, sysfs_bus_id

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


class RecordedNvml:
    """`failures` maps a function's name to the error code it raises, `gpu_failures` for one GPU alone.

    `died`: every call raises this code. `events`: Xid events not read yet, as (GPU index, xid).
    """

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording
        self.gpus = recording["gpus"]
        self.failures: dict[str, int] = {}
        self.gpu_failures: dict[tuple[str, int], int] = {}
        self.died: int | None = None
        self.events: list[tuple[int, int]] = []
        self.calls: Counter[str] = Counter()
        self.is_open = False

    def _enter(self, function: str, gpu: dict[str, Any] | None = None) -> None:
        self.calls[function] += 1
        code = self.died or self.failures.get(function)
        if gpu is not None:
            code = code or self.gpu_failures.get((function, self.gpus.index(gpu)))
        if code is not None:
            raise pynvml.NVMLError(code)
        if function != "nvmlInit" and not self.is_open:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    @staticmethod
    def _supported(value: Any) -> Any:
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def nvmlInit(self):
        self._enter("nvmlInit")
        self.is_open = True

    def nvmlShutdown(self):
        self._enter("nvmlShutdown")
        self.is_open = False

    def nvmlSystemGetDriverVersion(self):
        self._enter("nvmlSystemGetDriverVersion")
        return self.recording["driver"]

    def nvmlDeviceGetCount(self):
        self._enter("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        self._enter("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        self._enter("nvmlDeviceGetUUID", gpu)
        return gpu["uuid"]

    def nvmlDeviceGetName(self, gpu):
        self._enter("nvmlDeviceGetName", gpu)
        return gpu["name"]

    def nvmlDeviceGetMemoryInfo(self, gpu):
        self._enter("nvmlDeviceGetMemoryInfo", gpu)
        return SimpleNamespace(total=gpu["memory_total"], used=gpu["memory_used"])

    def nvmlDeviceGetPciInfo(self, gpu):
        self._enter("nvmlDeviceGetPciInfo", gpu)
        return SimpleNamespace(busId=gpu["bus_id"])

    def nvmlDeviceGetUtilizationRates(self, gpu):
        self._enter("nvmlDeviceGetUtilizationRates", gpu)
        return SimpleNamespace(gpu=self._supported(gpu["utilization"]), memory=0)

    def nvmlDeviceGetMigMode(self, gpu):
        self._enter("nvmlDeviceGetMigMode", gpu)
        return self._supported(gpu["mig"])

    def _processes(self, found):
        return [SimpleNamespace(pid=process["pid"], usedGpuMemory=process.get("memory")) for process in found]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        self._enter("nvmlDeviceGetComputeRunningProcesses", gpu)
        return self._processes(gpu["compute"])

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu):
        self._enter("nvmlDeviceGetGraphicsRunningProcesses", gpu)
        return self._processes(gpu["graphics"])

    def nvmlDeviceGetRemappedRows(self, gpu):
        self._enter("nvmlDeviceGetRemappedRows", gpu)
        return tuple(self._supported(gpu["remapped_rows"]))

    def nvmlDeviceGetTotalEccErrors(self, gpu, kind, counter):
        self._enter("nvmlDeviceGetTotalEccErrors", gpu)
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self._supported(gpu["ecc_uncorrected"])

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        self._enter("nvmlDeviceGetTopologyCommonAncestor", one)
        return self.recording["ancestors"][self.gpus.index(one)][self.gpus.index(other)]

    def _link(self, gpu, link):
        links = self._supported(gpu["nvlinks"])
        if link >= len(links):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return links[link]

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        self._enter("nvmlDeviceGetNvLinkState", gpu)
        return pynvml.NVML_FEATURE_DISABLED if self._link(gpu, link) is None else pynvml.NVML_FEATURE_ENABLED

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):
        self._enter("nvmlDeviceGetNvLinkRemotePciInfo", gpu)
        remote = self._link(gpu, link)
        return SimpleNamespace(busId="00000000:C4:00.0" if remote == "switch" else remote)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, link):
        self._enter("nvmlDeviceGetNvLinkRemoteDeviceType", gpu)
        is_switch = self._link(gpu, link) == "switch"
        return pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if is_switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU

    def nvmlEventSetCreate(self):
        self._enter("nvmlEventSetCreate")
        return object()

    def nvmlDeviceRegisterEvents(self, gpu, kinds, events):
        self._enter("nvmlDeviceRegisterEvents", gpu)

    def nvmlEventSetWait_v2(self, events, timeout_ms):
        self._enter("nvmlEventSetWait_v2")
        assert timeout_ms == 0, "a reading must never wait"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        index, xid = self.events.pop(0)
        return SimpleNamespace(device=self.gpus[index], eventData=xid)


class RecordedHost(Host):
    """The machine around the recorded GPUs: NUMA nodes and network cards; cores and memory are this machine's."""

    def __init__(self, recording: dict[str, Any]) -> None:
        super().__init__()
        self._numa = {sysfs_bus_id(gpu["bus_id"]): gpu["numa"] for gpu in recording["gpus"]}
        self._nics = recording["nics"]

    def numa_node(self, pci_bus_id: str) -> int | None:
        numa = self._numa.get(sysfs_bus_id(pci_bus_id), -1)
        return numa if numa >= 0 else None

    def nics(self) -> list[Nic]:
        return [
            Nic(nic["name"], nic["numa"] if nic["numa"] >= 0 else None, nic["kind"] == "infiniband")
            for nic in self._nics
        ]
