"""cluster.yaml: its schema, its defaults, and the checked configuration that the scheduler is started with.

Every key is explained in docs/administrator/configuration.md; a test compares the two. A broken file changes nothing:
`load_config` either returns a whole configuration or raises InvalidConfig, which names file, line and field of
everything that is wrong.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..model.queues import QueueSpec
from ..model.resources import Resources, sum_resources
from ..model.topology import DEFAULT_LEVELS, GpuHealth, Node, NodeHealth
from ..nodes.declared import declared_nodes
from ..nodes.settings import ForeignGpus, NodeSettings
from .config_nodes import NodeReader
from .config_queues import DEFAULT_QUEUES, NAME_PATTERN, NAME_WHAT, QueueConfig, read_queues, resolve_queues
from .discovery import ENV_CONFIG, SOCKET_PATH_LIMIT
from .schemas import INPUT_LIMIT_BYTES
from .yaml_reader import InvalidConfig, Problem, Value, YamlReader, suggestion

__all__ = ["ClusterConfig", "InvalidConfig", "Limits", "Retention", "load_config"]

DAY_S = 86400.0
EMBEDDED_IDLE_STOP_S = 3600.0

TOP_KEYS = (
    "cluster", "nodes", "gpu_types", "topology", "queues", "default_queue", "policies", "limits", "retention", "data",
    "listen", "idle_stop",
)  # fmt: skip
POLICY_KEYS = ("foreign_gpus",)
LIMIT_KEYS = ("input", "tasks_per_job", "log_per_task")
RETENTION_KEYS = ("steps_age", "logs_age", "logs_size", "events_age", "events_size")
LATER_TOP_KEYS = {
    "auth": "authentication comes with a later version",
    "database": "databases other than the built-in SQLite come with a later version",
    "backend": "backends other than the local one come with a later version",
    "runtimes": "runtimes other than processes come with a later version",
}
LATER_POLICIES = {
    "min_run_time": "minimum run times come with a later version",
    "grace": "a cap on the grace time comes with a later version",
    "preemption": "preemption comes with a later version",
    "reservations": "reservations come with a later version",
    "time_slice": "time-slicing comes with a later version",
    "packing": "packing of jobs on one GPU comes with a later version",
    "migration": "migration comes with a later version",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may ask for. Sizes in bytes."""

    input_bytes: int = INPUT_LIMIT_BYTES
    tasks_per_job: int = 1024
    log_bytes_per_task: int = 1 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """How long what has ended is kept (seconds) and how large it may grow (bytes); the oldest goes first."""

    steps_age_s: float = 365 * DAY_S
    logs_age_s: float = 30 * DAY_S
    logs_bytes: int = 20 << 30
    events_age_s: float = 7 * DAY_S
    events_bytes: int = 256 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """A whole, checked configuration. `path` is None for the built-in one.

    `data_dir` and `socket_path` are absolute; None = the user's default places. `idle_stop_s` None = unset.
    """

    name: str = "local"
    nodes: NodeSettings = dataclasses.field(default_factory=NodeSettings)
    levels: tuple[str, ...] = DEFAULT_LEVELS
    queues: tuple[QueueConfig, ...] = DEFAULT_QUEUES
    default_queue: str = DEFAULT_QUEUES[0].name
    limits: Limits = dataclasses.field(default_factory=Limits)
    retention: Retention = dataclasses.field(default_factory=Retention)
    data_dir: str | None = None
    socket_path: str | None = None
    idle_stop_s: float | None = None
    path: str | None = None

    def idle_after_s(self, embedded: bool) -> float | None:
        """Seconds without any job that waits or runs after which the scheduler ends; None = never."""
        if self.idle_stop_s is None:
            return EMBEDDED_IDLE_STOP_S if embedded else None
        return None if math.isinf(self.idle_stop_s) else self.idle_stop_s

    def queue_specs(self, nodes: Sequence[Node]) -> tuple[list[QueueSpec], list[str]]:
        """The queue tree on these nodes, parents first (without the root, which is the whole cluster), and notes.

        Percentages are of all GPUs, healthy or not, so that a guarantee does not change with a node's health.
        Guarantees above what the found nodes have are a note (hardware may be away); the scheduler lends less then.
        Raises InvalidConfig when the tree contradicts itself on these nodes.
        """
        resolved = resolve_queues(self.queues, nominal_capacity(nodes))
        if resolved.problems:
            raise InvalidConfig(
                Path(self.path).name if self.path else "built-in configuration", resolved.problems
            )
        return list(resolved.specs), [problem.reason for problem in resolved.over]


def nominal_capacity(nodes: Iterable[Node]) -> Resources:
    """What the nodes hold in all when everything on them is well."""
    return sum_resources(_well(node).capacity() for node in nodes)


def _well(node: Node) -> Node:
    gpus = tuple(msgspec.structs.replace(gpu, health=GpuHealth.OK) for gpu in node.gpus)
    return msgspec.structs.replace(node, health=NodeHealth.READY, gpus=gpus)


#: Given for a file, this means the built-in cluster.
BUILT_IN = "built-in"


def load_config(path: str | os.PathLike[str] | None = None) -> ClusterConfig:
    """The configuration of this file, of the one that $GPUCLUSTER_CONFIG names, or the built-in one (also: "built-in").

    Raises InvalidConfig with every problem found; NotFound never: a file that is not there is a problem too.
    """
    chosen = path or os.environ.get(ENV_CONFIG)
    if not chosen or chosen == BUILT_IN:
        return ClusterConfig()
    file = Path(chosen).expanduser()
    reader = YamlReader(file.name)
    try:
        content = file.read_bytes()
    except OSError as error:
        problem = Problem(None, "", f"the file cannot be read: {error.strerror or error}")
        raise InvalidConfig(str(file), [problem]) from None
    return _Loader(reader, file.resolve()).load(content)


class _Loader:
    """Reads one file key by key into a ClusterConfig."""

    def __init__(self, reader: YamlReader, file: Path) -> None:
        self.reader = reader
        self.file = file

    def load(self, content: bytes) -> ClusterConfig:
        root = self.reader.compose(content)
        entries = self.reader.mapping(root, TOP_KEYS, LATER_TOP_KEYS) if root else {}
        nodes = self._nodes(entries)
        queues = self._queues(entries, nodes)
        config = ClusterConfig(
            name=self._cluster_name(entries),
            nodes=nodes,
            levels=self._levels(entries["topology"]) if "topology" in entries else DEFAULT_LEVELS,
            queues=queues,
            default_queue=self._default_queue(entries, queues),
            limits=self._limits(entries["limits"]) if "limits" in entries else Limits(),
            retention=self._retention(entries["retention"]) if "retention" in entries else Retention(),
            data_dir=self._data(entries["data"]) if "data" in entries else None,
            socket_path=self._listen(entries["listen"]) if "listen" in entries else None,
            idle_stop_s=self._idle_stop(entries["idle_stop"]) if "idle_stop" in entries else None,
            path=str(self.file),
        )
        self.reader.finish()
        self._check_queues(config)
        return config

    def _cluster_name(self, entries: dict[str, Value]) -> str:
        if "cluster" not in entries:
            return ClusterConfig.name
        return self.reader.text(entries["cluster"], ClusterConfig.name, NAME_PATTERN, NAME_WHAT)

    def _nodes(self, entries: dict[str, Value]) -> NodeSettings:
        node_reader = NodeReader(self.reader)
        if "gpu_types" in entries:
            node_reader.read_gpu_types(entries["gpu_types"])
        settings = NodeSettings(gpu_types=node_reader.gpu_types)
        if "nodes" in entries:
            settings = node_reader.read_nodes(entries["nodes"])
        if "policies" not in entries:
            return settings
        policies = self.reader.mapping(entries["policies"], POLICY_KEYS, LATER_POLICIES)
        if "foreign_gpus" not in policies:
            return settings
        choices = [choice.value for choice in ForeignGpus]
        foreign = self.reader.choice(policies["foreign_gpus"], ForeignGpus.WITHHOLD.value, choices)
        return dataclasses.replace(settings, foreign_gpus=ForeignGpus(foreign))

    def _queues(self, entries: dict[str, Value], nodes: NodeSettings) -> tuple[QueueConfig, ...]:
        if "queues" not in entries:
            return DEFAULT_QUEUES
        extras = {name for declaration in nodes.declared for name in declaration.extra}
        gpu_types = None if nodes.detect and not nodes.gpu_types else nodes.type_names
        return read_queues(self.reader, entries["queues"], gpu_types, extras)

    def _default_queue(self, entries: dict[str, Value], queues: tuple[QueueConfig, ...]) -> str:
        """As stated, else the first queue without children."""
        inner = {queue.parent for queue in queues}
        leaves = [queue.name for queue in queues if queue.name not in inner]
        if "default_queue" not in entries:
            return leaves[0] if leaves else ""
        value = entries["default_queue"]
        name = self.reader.text(value, "", NAME_PATTERN, NAME_WHAT)
        if name in inner and name in {queue.name for queue in queues}:
            self.reader.problem(value, f"queue {name} has children; jobs go to a queue without any")
        elif name and name not in leaves and leaves:
            self.reader.problem(value, f"there is no queue {name}", suggestion(name, leaves))
        return name

    def _levels(self, value: Value) -> tuple[str, ...]:
        """`topology.levels`: new names for the levels between gpu and cluster."""
        entries = self.reader.mapping(value, ("levels",))
        if "levels" not in entries:
            return DEFAULT_LEVELS
        renamed = self.reader.mapping(entries["levels"], DEFAULT_LEVELS[1:-1])
        names = {
            level: self.reader.text(name, level, NAME_PATTERN, NAME_WHAT) for level, name in renamed.items()
        }
        levels = tuple(names.get(level, level) for level in DEFAULT_LEVELS)
        if len(set(levels)) != len(levels):
            self.reader.problem(entries["levels"], "two levels have the same name")
        return levels

    def _limits(self, value: Value) -> Limits:
        entries, default = self.reader.mapping(value, LIMIT_KEYS), Limits()
        return Limits(
            input_bytes=self._size(entries, "input", default.input_bytes),
            tasks_per_job=self.reader.integer(entries["tasks_per_job"], default.tasks_per_job, 1, 1_000_000)
            if "tasks_per_job" in entries
            else default.tasks_per_job,
            log_bytes_per_task=self._size(entries, "log_per_task", default.log_bytes_per_task),
        )

    def _retention(self, value: Value) -> Retention:
        entries, default = self.reader.mapping(value, RETENTION_KEYS), Retention()
        return Retention(
            steps_age_s=self._duration(entries, "steps_age", default.steps_age_s),
            logs_age_s=self._duration(entries, "logs_age", default.logs_age_s),
            logs_bytes=self._size(entries, "logs_size", default.logs_bytes),
            events_age_s=self._duration(entries, "events_age", default.events_age_s),
            events_bytes=self._size(entries, "events_size", default.events_bytes),
        )

    def _size(self, entries: dict[str, Value], key: str, default: int) -> int:
        return self.reader.size(entries[key], default) if key in entries else default

    def _duration(self, entries: dict[str, Value], key: str, default: float) -> float:
        return self.reader.duration(entries[key], default) if key in entries else default

    def _data(self, value: Value) -> str:
        """A relative folder counts from the folder of cluster.yaml."""
        return str(self.file.parent / Path(self.reader.text(value, ".", what="a folder")).expanduser())

    def _listen(self, value: Value) -> str | None:
        text = self.reader.text(value, "auto", what="`auto` or the path of a socket")
        if text == "auto":
            return None
        if re.match(r"(tcp|https?)://|[^/]*:\d+$", text):
            reason = "listening on the network comes with a later version, together with authentication"
            self.reader.problem(value, reason, "This version knows `auto` and the path of a socket.")
            return None
        path = str(self.file.parent / Path(text.removeprefix("unix://").removeprefix("unix:")).expanduser())
        if len(os.fsencode(path)) >= SOCKET_PATH_LIMIT:
            reason = f"{path} is too long for a socket (at most {SOCKET_PATH_LIMIT - 1} bytes)"
            self.reader.problem(value, reason, "Choose a shorter one, for example below /run.")
        return path

    def _idle_stop(self, value: Value) -> float:
        return math.inf if value.text == "never" else self.reader.duration(value, EMBEDDED_IDLE_STOP_S)

    def _check_queues(self, config: ClusterConfig) -> None:
        """Declared nodes are all there is, so the tree can be checked against them at once; found ones come later."""
        if config.nodes.detect:
            return
        capacity = nominal_capacity(declared_nodes(config.nodes.declared))
        resolved = resolve_queues(config.queues, capacity)
        self.reader.problems += [*resolved.problems, *resolved.over]
        self.reader.finish()
