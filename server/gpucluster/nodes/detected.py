"""The machine as a node: its GPUs by NVML, and what becomes of them while it runs.

The shape of the node (which GPUs there are, how they hang together) is read when NVML is opened; `refresh` reads what
changes: foreign processes, faults, MIG. When NVML dies the last known state stands, with a note, and opening is tried
again with a growing pause.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

import msgspec
import psutil
import pynvml

from ..model.topology import Gpu, GpuHealth, Node
from .gpu_types import gpu_type
from .host import Host
from .nvml import GpuFacts, GpuProcess, GpuState, Nvml, NvmlGone, NvmlTopology
from .settings import ForeignGpus, NodeSettings
from .topology import components, dense, islands

#: Pauses between tries to open NVML again, in seconds; the last one is repeated.
RETRY_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0)


def no_task_owns(pid: int) -> bool:
    """For an inventory without tasks: every process is somebody else's."""
    return False


def no_task_holds(uuid: str) -> bool:
    """For an inventory without tasks: no GPU is held."""
    return False


class DetectedNode:
    """`is_ours(pid)`: the process belongs to a task of ours. `holds(uuid)`: a task of ours has that GPU.

    Not thread-safe: one caller at a time. No method raises.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        is_ours: Callable[[int], bool] = no_task_owns,
        holds: Callable[[str], bool] = no_task_holds,
        nvml: Nvml | None = None,
        host: Host | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._is_ours = is_ours
        self._holds = holds
        self._nvml = nvml or Nvml()
        self._host = host or Host()
        self._monotonic_s = monotonic_s
        self._facts: list[GpuFacts] = []
        self._shape: list[Gpu] = []  # as opened; what changes is laid over it
        self._labels: dict[str, str] = {}
        self._states: dict[str, GpuState] = {}
        self._gone: str | None = "NVML was not opened yet"
        self._tries = 0
        self._retry_at_s = 0.0
        self.node = self._build()

    # ---- opening

    def open(self) -> None:
        """Try to open NVML; what came of it is in `node` and `notes`."""
        try:
            self._facts = self._nvml.open()
            topology = self._nvml.topology(self._facts)
            driver = self._nvml.driver_version()
        except NvmlGone as error:
            self._lose(str(error))
            self.node = self._build()
            return
        self._shape = self._shaped(topology)
        self._labels = {"driver": driver} if driver else {}
        self._gone, self._tries, self._states = None, 0, {}
        self.refresh()

    def close(self) -> None:
        self._nvml.close()

    def _lose(self, why: str) -> None:
        self._nvml.close()
        self._gone = why
        self._retry_at_s = self._monotonic_s() + RETRY_PAUSES_S[min(self._tries, len(RETRY_PAUSES_S) - 1)]
        self._tries += 1

    # ---- reading

    def refresh(self) -> Node:
        """Read what changes; the node as it is now."""
        if self._gone is None:
            self._read()
        elif self._monotonic_s() >= self._retry_at_s:
            self.open()
            return self.node
        self.node = self._build()
        return self.node

    def _read(self) -> None:
        self._nvml.take_events()
        try:
            self._states = {facts.uuid: self._nvml.state(facts) for facts in self._facts}
        except NvmlGone as error:
            self._lose(str(error))

    def state(self, uuid: str) -> GpuState | None:
        """The newest state; None for what is not known or no longer read."""
        return self._states.get(uuid) if self._gone is None else None

    @property
    def notes(self) -> list[str]:
        """What a person should know: what could not be read, what warns of a fault, who else is on the GPUs."""
        notes = list(self._nvml.notes)
        if self._gone and self._shape:
            notes.append(f"{self._gone}; the GPUs stand as they were last seen, and it is tried again")
        elif self._gone:
            notes.append(f"no GPUs were found: {self._gone}")
        elif not self._shape:
            notes.append("no GPUs were found: the NVIDIA driver lists none")
        for state in self._states.values():
            notes += state.warnings
        return notes

    # ---- the node

    def _build(self) -> Node:
        settings, host = self._settings, self._host
        nics = [
            f"{nic.name} (NUMA {nic.numa_node})" if nic.numa_node is not None else nic.name
            for nic in host.nics()
        ]
        return Node(
            name=settings.detected_name or host.name(),
            gpus=tuple(self._dressed(gpu) for gpu in self._shape),
            cpu=host.cpu_milli(),
            memory=host.memory_bytes(),
            rack=settings.detected_rack,
            labels={**self._labels, **({"nics": ", ".join(nics)} if nics else {})},
        )

    def _shaped(self, topology: NvmlTopology) -> list[Gpu]:
        """GPUs with the topology cells around them. NVML's answer is used where the kernel does not tell the NUMA node."""
        count = len(self._facts)
        numa = [self._host.numa_node(facts.pci_bus_id) if facts.pci_bus_id else None for facts in self._facts]
        by_ancestor = components(count, _within(topology, pynvml.NVML_TOPOLOGY_NODE))
        known = topology.ancestors or count == 1
        sockets = dense(numa if None not in numa else by_ancestor if known else [0] * count)
        by_switch = components(count, _within(topology, pynvml.NVML_TOPOLOGY_MULTIPLE))
        switches = dense(list(zip(sockets, by_switch, strict=True)))
        return [
            Gpu(
                uuid=facts.uuid,
                index=facts.index,
                type=gpu_type(facts.product, self._settings.gpu_types),
                memory_bytes=facts.memory_bytes,
                socket=sockets[place],
                switch=switches[place],
                nvlink_island=island,
                pci_bus_id=facts.pci_bus_id,
            )
            for place, (facts, island) in enumerate(
                zip(self._facts, islands(count, topology.links, topology.on_switch), strict=True)
            )
        ]

    def _dressed(self, gpu: Gpu) -> Gpu:
        """The GPU with its health as of the last reading."""
        state = self._states.get(gpu.uuid)
        if state is None:
            return gpu
        health, note = self._health(gpu, state)
        return msgspec.structs.replace(gpu, mig_enabled=state.mig_enabled, health=health, note=note)

    def _health(self, gpu: Gpu, state: GpuState) -> tuple[GpuHealth, str | None]:
        if state.faults:
            return GpuHealth.BAD, "; ".join(state.faults)
        if state.mig_enabled:
            return GpuHealth.BAD, "MIG is enabled; slices of a GPU come with a later version"
        if self._settings.foreign_gpus is ForeignGpus.IGNORE:
            return GpuHealth.OK, None
        foreign = self._foreign(gpu, state.processes)
        if not foreign:
            return GpuHealth.OK, None
        who = ", ".join(process_text(process.pid) for process in foreign[:3])
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        return GpuHealth.FOREIGN, f"in use by {who}{more}, which is not a job of this cluster"

    def _foreign(self, gpu: Gpu, processes: Iterable[GpuProcess]) -> list[GpuProcess]:
        """Computing processes that are not ours. A display that draws on the GPU does not take it away from jobs.

        Inside a container NVML may name processes by numbers that mean nothing here: such a one is taken for ours
        where a task of ours holds the GPU.
        """
        held = self._holds(gpu.uuid)
        return [
            process
            for process in processes
            if process.compute
            and not self._is_ours(process.pid)
            and not (held and not psutil.pid_exists(process.pid))
        ]


def _within(topology: NvmlTopology, level: int) -> Callable[[int, int], bool]:
    return lambda one, other: topology.ancestors.get((one, other), level + 1) <= level


def process_text(pid: int) -> str:
    """Such as "python (pid 4711, user ada)", as far as it can be found out."""
    name, user = "a process", ""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        name = process.name()
        with contextlib.suppress(psutil.Error, KeyError):  # a user without a name
            user = f", user {process.username()}"
    return f"{name} (pid {pid}{user})"
