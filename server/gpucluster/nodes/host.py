"""What this machine offers beside its GPUs: name, cores, memory, network cards; read from the kernel's files."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil


class Nic(NamedTuple):
    """A network card. `numa_node` None = the kernel does not say; `infiniband`: an RDMA device, not an interface."""

    name: str
    numa_node: int | None
    infiniband: bool


class Host:
    """`root` is the file system's root; tests give a folder."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._sys = root / "sys"
        self._proc = root / "proc"

    def name(self) -> str:
        """The host name up to its first dot, as far as a node may be called so."""
        short = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().split(".")[0]).strip("-")
        return short[:63] or "localhost"

    def cpu_milli(self) -> int:
        """Thousandths of a core that this process may use: affinity and cgroup quota count."""
        cores = 1000 * (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        return max(min([cores, *self._cpu_quotas()]), 1)

    def memory_bytes(self) -> int:
        """Memory of the machine, or of the cgroup that this process is confined to."""
        return min([psutil.virtual_memory().total, *self._memory_limits()])

    def numa_node(self, pci_bus_id: str) -> int | None:
        """The NUMA node of a PCI device ("00000000:3B:00.0" or "0000:3b:00.0"); None where the kernel does not say."""
        return self._number(self._sys / "bus" / "pci" / "devices" / sysfs_bus_id(pci_bus_id) / "numa_node")

    def nics(self) -> list[Nic]:
        """Hardware network interfaces and InfiniBand devices."""
        found = []
        for kind in ("net", "infiniband"):
            for device in sorted(self._entries(self._sys / "class" / kind)):
                if (device / "device").exists():
                    numa = self._number(device / "device" / "numa_node")
                    found.append(Nic(device.name, numa, kind == "infiniband"))
        return found

    # ---- cgroups: a limit of any ancestor holds too

    def _cpu_quotas(self) -> Iterator[int]:
        for folder in self._cgroups("cpu"):
            words = self._text(folder / "cpu.max").split()
            if not words:
                words = [self._text(folder / "cpu.cfs_quota_us"), self._text(folder / "cpu.cfs_period_us")]
            if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
                yield 1000 * int(words[0]) // int(words[1])

    def _memory_limits(self) -> Iterator[int]:
        for folder in self._cgroups("memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = self._text(folder / name)
                if text.isdigit() and int(text) < 1 << 60:  # v1 says "no limit" by a number near 2**63
                    yield int(text)

    def _cgroups(self, controller: str) -> Iterator[Path]:
        """The folders of this process's cgroup and its ancestors, of version 2 and of version 1."""
        for line in self._text(self._proc / "self" / "cgroup").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            if controllers and controller not in controllers.split(","):
                continue
            base = self._sys / "fs" / "cgroup" / (controller if controllers else "")
            folder = base / path.lstrip("/")
            yield from [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]

    def _entries(self, folder: Path) -> list[Path]:
        try:
            return list(folder.iterdir())
        except OSError:
            return []

    def _text(self, path: Path) -> str:
        try:
            return path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _number(self, path: Path) -> int | None:
        """None for what is not there and for the kernel's "-1", which means that it does not know."""
        text = self._text(path)
        return int(text) if text.isdigit() else None


def sysfs_bus_id(pci_bus_id: str) -> str:
    """NVML's "00000000:3B:00.0" as /sys writes it: "0000:3b:00.0"."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
