"""What cluster.yaml says about nodes, as plain data. Filled in by api/config.py, read by inventory.py."""

from __future__ import annotations

import dataclasses
import enum

GIB = 1 << 30

#: Type of GPUs that stand for no hardware. The name says so wherever a type is shown.
SIMULATED_TYPE = "SIM-80G"


class Source(str, enum.Enum):
    """Where the inventory comes from when cluster.yaml gives no list of nodes.

    `auto`: this machine's GPUs; where it has none, two simulated nodes. `detect`: this machine as it is.
    """

    AUTO = "auto"
    DETECT = "detect"
    DECLARED = "declared"


class ForeignGpus(str, enum.Enum):
    """What happens to a GPU that a process of somebody else uses: kept back, or given out all the same."""

    WITHHOLD = "withhold"
    IGNORE = "ignore"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeDeclaration:
    """One declared node. GPUs are numbered switch by switch; `memory_bytes` and `gpu_memory_bytes` in bytes.

    `nvlink` holds the islands as tuples of GPU indices; None = all GPUs of the node in one island.
    """

    name: str
    gpus: int = 8
    gpu_type: str = SIMULATED_TYPE
    gpu_memory_bytes: int = 80 * GIB
    sockets: int = 2
    switches_per_socket: int = 2
    nvlink: tuple[tuple[int, ...], ...] | None = None
    rack: str = "rack-0"
    cpus: int = 64
    memory_bytes: int = 512 * GIB
    extra: dict[str, int] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuTypeSettings:
    """A GPU type by its site's name. `products`: NVML product names that count as this type."""

    name: str
    memory_bytes: int | None = None
    products: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """`detect` adds this machine to the declared nodes; with Source.AUTO both fields below it are at their defaults."""

    source: Source = Source.AUTO
    detect: bool = True
    detected_name: str | None = None  # None = the host name
    detected_rack: str = "rack-0"
    declared: tuple[NodeDeclaration, ...] = ()
    gpu_types: tuple[GpuTypeSettings, ...] = ()
    foreign_gpus: ForeignGpus = ForeignGpus.WITHHOLD

    @property
    def type_names(self) -> frozenset[str]:
        """Every GPU type that cluster.yaml speaks of, in `gpu_types` or in a declared node."""
        declared = {node.gpu_type for node in self.declared if node.gpus}
        return frozenset(declared | {gpu_type.name for gpu_type in self.gpu_types})


#: The cluster of a machine without GPUs, when nothing is configured.
DEFAULT_DECLARATIONS = (NodeDeclaration(name="node-0"), NodeDeclaration(name="node-1"))
