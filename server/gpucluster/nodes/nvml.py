"""GPUs as NVIDIA's management library (NVML) reports them. No exception leaves this module.

Any call may fail: a library that is not there, a driver that is not loaded, a GPU that fell off the bus, a question that
a card does not know. What fails becomes a note, and the rest is read all the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")

#: Xids that tell of a fault of the program, not of the GPU.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
#: Errors after which nothing else works until NVML is initialised anew.
_FATAL = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
#: A card or driver that does not know the question: no reason for a note.
_UNKNOWN_HERE = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
_REASONS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "NVIDIA's library (libnvidia-ml.so.1) is not installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "library and driver are of different versions (an update without a reboot?)",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU has fallen off the bus; it needs a reset or a reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU needs a reset",
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML has lost its connection to the driver",
}


class NvmlGone(Exception):
    """NVML as a whole does not work (any more). For callers inside `nodes` only."""


@dataclasses.dataclass(frozen=True)
class GpuProcess:
    """`compute` False: it only draws (a display, a game)."""

    pid: int
    memory_bytes: int | None
    compute: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What does not change while the machine runs."""

    index: int
    uuid: str
    product: str
    memory_bytes: int
    pci_bus_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuState:
    """What changes. `faults` are reasons to take the GPU out, in words; `warnings` are not. None = NVML does not say."""

    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    mig_enabled: bool = False
    processes: tuple[GpuProcess, ...] = ()
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NvmlTopology:
    """Between pairs of GPUs (places in the list of facts): PCIe ancestor level (pynvml.NVML_TOPOLOGY_*) and NVLinks."""

    ancestors: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    links: tuple[tuple[int, int], ...] = ()
    on_switch: tuple[int, ...] = ()


class Nvml:
    """The one door to NVML. `library` is the module `pynvml`, or a recording that acts like it."""

    def __init__(self, library: Any = pynvml) -> None:
        self._library = library
        self._handles: dict[str, Any] = {}  # by UUID
        self._events: Any = None
        self._xids: dict[str, set[int]] = {}
        self._open = False
        #: What could not be read, each thing once; emptied by `open`.
        self.notes: list[str] = []

    # ---- opening

    def open(self) -> list[GpuFacts]:
        """Initialise and list the GPUs. Raises NvmlGone with one sentence that says why not."""
        self.close()
        self.notes = []
        self._xids = {}
        self._call(self._library.nvmlInit)
        self._open = True
        count = self._call(self._library.nvmlDeviceGetCount)
        found = [facts for facts in map(self._facts, range(count)) if facts is not None]
        self._listen_for_xids()
        return found

    def close(self) -> None:
        """Let go of NVML. Never fails."""
        self._handles, self._events = {}, None
        if self._open:
            self._open = False
            with contextlib.suppress(Exception):
                self._library.nvmlShutdown()

    def driver_version(self) -> str | None:
        version = self._ask(None, "the driver's version", self._library.nvmlSystemGetDriverVersion)
        return _text(version) if version else None

    def _facts(self, index: int) -> GpuFacts | None:
        """None for a GPU that cannot be named: it cannot be given out either."""
        library, where = self._library, f"GPU {index}"
        handle = self._ask(None, where, library.nvmlDeviceGetHandleByIndex, index, required=True)
        if handle is None:
            return None
        uuid = self._ask(None, f"the UUID of {where}", library.nvmlDeviceGetUUID, handle, required=True)
        if not uuid:
            return None
        product = self._ask("GPU", f"the name of {where}", library.nvmlDeviceGetName, handle)
        memory = self._ask(None, f"the memory of {where}", library.nvmlDeviceGetMemoryInfo, handle)
        pci = self._ask(None, f"the PCI address of {where}", library.nvmlDeviceGetPciInfo, handle)
        self._handles[_text(uuid)] = handle
        return GpuFacts(
            index=index,
            uuid=_text(uuid),
            product=_text(product),
            memory_bytes=int(memory.total) if memory else 0,
            pci_bus_id=_text(pci.busId) if pci else None,
        )

    # ---- what changes

    def state(self, facts: GpuFacts) -> GpuState:
        """Raises NvmlGone when NVML as a whole has gone; a single lost GPU is a fault in the answer."""
        handle = self._handles.get(facts.uuid)
        if handle is None:
            raise NvmlGone("NVML is not open")
        library, where = self._library, f"GPU {facts.index}"
        faults: list[str] = []
        memory = self._ask(
            None, f"the memory of {where}", library.nvmlDeviceGetMemoryInfo, handle, faults=faults
        )
        rates = self._ask(
            None, f"the use of {where}", library.nvmlDeviceGetUtilizationRates, handle, faults=faults
        )
        mig = self._ask(None, f"the MIG mode of {where}", library.nvmlDeviceGetMigMode, handle, faults=faults)
        processes = self._processes(handle, where, faults)
        warnings = self._memory_faults(handle, where, faults)
        faults += [f"Xid {xid}, an error of the hardware" for xid in sorted(self._xids.get(facts.uuid, ()))]
        return GpuState(
            utilization_percent=int(rates.gpu) if rates else None,
            memory_used_bytes=int(memory.used) if memory else None,
            mig_enabled=bool(mig and mig[0]),
            processes=processes,
            faults=tuple(dict.fromkeys(faults)),
            warnings=warnings,
        )

    def _processes(self, handle: Any, where: str, faults: list[str]) -> tuple[GpuProcess, ...]:
        library, what = self._library, f"the processes on {where}"
        compute = self._ask([], what, library.nvmlDeviceGetComputeRunningProcesses, handle, faults=faults)
        graphics = self._ask([], what, library.nvmlDeviceGetGraphicsRunningProcesses, handle, faults=faults)
        found: dict[int, GpuProcess] = {}
        for processes, computes in ((compute, True), (graphics, False)):
            for process in processes:
                used = process.usedGpuMemory
                found.setdefault(
                    process.pid, GpuProcess(int(process.pid), None if used is None else int(used), computes)
                )
        return tuple(found.values())

    def _memory_faults(self, handle: Any, where: str, faults: list[str]) -> tuple[str, ...]:
        """Adds what makes the GPU unfit to `faults`; returns what does not."""
        library, warnings = self._library, []
        rows = self._ask(
            None, f"the remapped rows of {where}", library.nvmlDeviceGetRemappedRows, handle, faults=faults
        )
        if rows and rows[3]:
            faults.append("a row of its memory could not be remapped; the GPU must be replaced")
        elif rows and rows[2]:
            warnings.append(f"{where} waits for a reset: rows of its memory are to be remapped")
        errors = self._ask(
            0, f"the memory errors of {where}", library.nvmlDeviceGetTotalEccErrors, handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC, faults=faults,
        )  # fmt: skip
        if errors:
            faults.append(
                f"{errors} memory errors that could not be corrected since the driver was loaded; reset the GPU"
            )
        return tuple(warnings)

    # ---- Xid errors come as events

    def _listen_for_xids(self) -> None:
        library = self._library
        self._events = self._ask(None, "error events", library.nvmlEventSetCreate)
        if self._events is None:
            return
        for handle in self._handles.values():
            self._ask(
                None, "error events", library.nvmlDeviceRegisterEvents, handle,
                pynvml.nvmlEventTypeXidCriticalError, self._events,
            )  # fmt: skip

    def take_events(self) -> None:
        """Take note of the Xid errors that came since the last call. Never waits."""
        for _ in range(1000):  # a GPU in distress can send faster than they are read
            if self._events is None or not self._take_event():
                return

    def _take_event(self) -> bool:
        try:
            event = self._library.nvmlEventSetWait_v2(self._events, 0)
            uuid = _text(self._library.nvmlDeviceGetUUID(event.device))
        except Exception as error:
            if _code(error) not in (pynvml.NVML_ERROR_TIMEOUT, None):
                self._events = None  # it will not work the next time either; states are still read
            return False
        if event.eventData not in APPLICATION_XIDS:
            self._xids.setdefault(uuid, set()).add(int(event.eventData))
        return True

    # ---- topology

    def topology(self, facts: list[GpuFacts]) -> NvmlTopology:
        handles = [self._handles.get(gpu.uuid) for gpu in facts]
        ancestors = {}
        for one in range(len(facts)):
            for other in range(one + 1, len(facts)):
                level = self._ask(
                    None, "the PCIe topology", self._library.nvmlDeviceGetTopologyCommonAncestor,
                    handles[one], handles[other],
                )  # fmt: skip
                if level is not None:
                    ancestors[one, other] = ancestors[other, one] = int(level)
        links: list[tuple[int, int]] = []
        on_switch: list[int] = []
        places = {gpu.pci_bus_id.lower(): place for place, gpu in enumerate(facts) if gpu.pci_bus_id}
        for place, handle in enumerate(handles):
            for remote in self._nvlinks(handle, places):
                if remote is None:
                    on_switch.append(place)
                else:
                    links.append((place, remote))
        return NvmlTopology(
            ancestors=ancestors, links=tuple(links), on_switch=tuple(dict.fromkeys(on_switch))
        )

    def _nvlinks(self, handle: Any, places: dict[str, int]) -> list[int | None]:
        """Where the active links of a GPU lead: places of other GPUs, None for an NVSwitch."""
        found: list[int | None] = []
        library = self._library
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            state = self._ask(None, "the NVLinks", library.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break  # links are numbered without gaps; a card without NVLink has no link 0
            if state != pynvml.NVML_FEATURE_ENABLED:
                continue
            remote = self._ask(None, "the NVLinks", library.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            place = places.get(_text(remote.busId).lower()) if remote else None
            kind = self._ask(None, "the NVLinks", library.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            if place is not None:
                found.append(place)
            elif kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                found.append(None)
        return found

    # ---- calls

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """A call without which nothing goes."""
        try:
            return function(*arguments)
        except Exception as error:
            raise NvmlGone(reason(error)) from None

    def _ask(
        self,
        default: T,
        what: str,
        function: Callable[..., Any],
        *arguments: Any,
        faults: list[str] | None = None,
        required: bool = False,
    ) -> Any:
        """The answer, or `default` when this card, driver or user cannot have it.

        `faults`: a lost GPU is one of those. `required`: nothing goes without it, so a refusal is always worth a note.
        Raises NvmlGone when NVML as a whole has gone.
        """
        try:
            return function(*arguments)
        except Exception as error:
            code = _code(error)
            if code in _FATAL:
                raise NvmlGone(reason(error)) from None
            if code in _GONE and faults is not None:
                faults.append(reason(error))
            elif code not in _UNKNOWN_HERE or required:
                self._note(f"{what} cannot be read: {reason(error)}")
            return default

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _code(error: Exception) -> int | None:
    value = getattr(error, "value", None)
    return value if isinstance(error, pynvml.NVMLError) and isinstance(value, int) else None


def reason(error: Exception) -> str:
    """What an NVML error means, for people."""
    known = _REASONS.get(_code(error) or -1)
    return known or f"NVML says {str(error) or type(error).__name__}"


def _text(value: Any) -> str:
    """Older bindings answer in bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
