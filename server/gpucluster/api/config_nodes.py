"""The nodes of cluster.yaml: found ones (`detect`), declared ones, GPU types, and what to do about foreign GPUs."""

from __future__ import annotations

import dataclasses
import re

from ..nodes.settings import GIB, SIMULATED_TYPE, GpuTypeSettings, NodeDeclaration, NodeSettings, Source
from .yaml_reader import Value, YamlReader, suggestion

NODE_NAME_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?"
NODE_NAME_WHAT = "a node name (letters, digits, dots, dashes; at most 63)"
TYPE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
TYPE_WHAT = "a GPU type (letters, digits, dots, dashes, underscores)"
RESOURCE_PATTERN = r"[a-z][a-z0-9_-]{0,62}"
RANGE = re.compile(r"\[(\d{1,6})-(\d{1,6})\]")
#: One entry of `nodes` stands for at most this many.
MAX_NODES_PER_ENTRY = 4096
#: Resources that the scheduler counts by itself; `extra` cannot redefine them.
BUILT_IN_RESOURCES = frozenset({"gpu", "gpus", "cpu", "cpus", "memory"})

DECLARED_KEYS = (
    "name", "names", "gpus", "gpu_type", "gpu_memory", "sockets", "switches_per_socket", "nvlink", "rack", "cpus",
    "memory", "extra", "labels",
)  # fmt: skip
DETECTED_KEYS = ("detect", "name", "rack")
GPU_TYPE_KEYS = ("memory", "products")


class NodeReader:
    """Reads the keys `gpu_types` and `nodes`."""

    def __init__(self, reader: YamlReader) -> None:
        self.reader = reader
        self.gpu_types: tuple[GpuTypeSettings, ...] = ()

    def read_gpu_types(self, value: Value) -> None:
        """`gpu_types`: {TYPE: {memory, products}}; must be read before `read_nodes`."""
        found = []
        for name, entry in self.reader.open_mapping(value).items():
            if not re.fullmatch(TYPE_PATTERN, name):
                self.reader.problem(entry, f"{name!r} is not {TYPE_WHAT}")
                continue
            parts = self.reader.mapping(entry, GPU_TYPE_KEYS)
            memory = self.reader.size(parts["memory"], 0) if "memory" in parts else None
            products = (
                self.reader.texts(parts["products"], what="a product name") if "products" in parts else ()
            )
            found.append(GpuTypeSettings(name=name, memory_bytes=memory, products=products))
        self.gpu_types = tuple(found)

    def read_nodes(self, value: Value) -> NodeSettings:
        """`auto`, `detect`, or a list of declared nodes and at most one `detect`."""
        if value.text is not None:
            choice = self.reader.choice(value, Source.AUTO.value, (Source.AUTO.value, Source.DETECT.value))
            return NodeSettings(source=Source(choice), gpu_types=self.gpu_types)
        settings = NodeSettings(source=Source.DECLARED, detect=False, gpu_types=self.gpu_types)
        items = self.reader.sequence(value)
        if not items and not self.reader.problems:
            self.reader.problem(value, "there is no node here", "Write `nodes: auto` for this machine.")
        for item in items:
            settings = self._add(settings, item)
        self._check_names(settings, value)
        return settings

    def _add(self, settings: NodeSettings, item: Value) -> NodeSettings:
        if item.text == Source.DETECT.value or "detect" in self._keys(item):
            return self._detected(settings, item)
        entries = self.reader.mapping(item, DECLARED_KEYS)
        declared = settings.declared + tuple(self._declared(item, entries))
        return dataclasses.replace(settings, declared=declared)

    def _keys(self, item: Value) -> list[str]:
        if item.kind != "a mapping":
            return []
        return [str(key.value) for key, _ in item.node.value]

    def _detected(self, settings: NodeSettings, item: Value) -> NodeSettings:
        if settings.detect:
            self.reader.problem(item, "this machine stands here twice")
        if item.text is not None:
            return dataclasses.replace(settings, detect=True)
        entries = self.reader.mapping(item, DETECTED_KEYS)
        self.reader.choice(entries["detect"], "true", ("true",))
        return dataclasses.replace(
            settings,
            detect=True,
            detected_name=self._name(entries["name"]) if "name" in entries else None,
            detected_rack=self._name(entries["rack"]) if "rack" in entries else settings.detected_rack,
        )

    def _name(self, value: Value) -> str:
        return self.reader.text(value, "unnamed", NODE_NAME_PATTERN, NODE_NAME_WHAT)

    # ---- one declared entry

    def _declared(self, item: Value, entries: dict[str, Value]) -> list[NodeDeclaration]:
        names = self._names(item, entries)
        gpus = self._integer(entries, "gpus", 8, 0, 1024)
        gpu_type, type_memory = self._gpu_type(entries)
        template = NodeDeclaration(
            name="",
            gpus=gpus,
            gpu_type=gpu_type,
            gpu_memory_bytes=self._size(entries, "gpu_memory", type_memory or 80 * GIB),
            sockets=self._integer(entries, "sockets", 2, 1, 64),
            switches_per_socket=self._integer(entries, "switches_per_socket", 2, 1, 64),
            nvlink=self._nvlink(entries["nvlink"], gpus) if "nvlink" in entries else None,
            rack=self._name(entries["rack"]) if "rack" in entries else "rack-0",
            cpus=self._integer(entries, "cpus", 64, 1, 100_000),
            memory_bytes=self._size(entries, "memory", 512 * GIB),
            extra=self._extra(entries["extra"]) if "extra" in entries else {},
            labels=self._labels(entries["labels"]) if "labels" in entries else {},
        )
        return [dataclasses.replace(template, name=name) for name in names]

    def _integer(self, entries: dict[str, Value], key: str, default: int, least: int, most: int) -> int:
        return self.reader.integer(entries[key], default, least, most) if key in entries else default

    def _size(self, entries: dict[str, Value], key: str, default: int) -> int:
        return self.reader.size(entries[key], default) if key in entries else default

    def _names(self, item: Value, entries: dict[str, Value]) -> list[str]:
        if ("name" in entries) == ("names" in entries):
            self.reader.problem(
                item, "a node needs either name or names", 'names: "node-[0-3]" makes four.', key="name"
            )
            return []
        if "name" in entries:
            return [self._name(entries["name"])]
        value = entries["names"]
        names = [name for text in self.reader.texts(value) for name in self._expand(value, text)]
        if any(not re.fullmatch(NODE_NAME_PATTERN, name) for name in names):
            self.reader.problem(value, f"this is not {NODE_NAME_WHAT}, with a range such as [0-3]")
            return []
        return names

    def _expand(self, value: Value, text: str) -> list[str]:
        """The names of "node-[0-3]"; numbers are padded as the first one is ([00-11])."""
        match = RANGE.search(text)
        if not match:
            return [text]
        first, last = int(match[1]), int(match[2])
        if last < first or last - first >= MAX_NODES_PER_ENTRY:
            self.reader.problem(value, f"{match[0]} is not a range of 1 to {MAX_NODES_PER_ENTRY} numbers")
            return []
        width = len(match[1])
        return [
            f"{text[: match.start()]}{number:0{width}d}{text[match.end() :]}"
            for number in range(first, last + 1)
        ]

    def _gpu_type(self, entries: dict[str, Value]) -> tuple[str, int | None]:
        """The type and its memory; with `gpu_types` given, only those exist."""
        memory = {gpu_type.name: gpu_type.memory_bytes for gpu_type in self.gpu_types}
        if "gpu_type" not in entries:
            only = next(iter(memory)) if len(memory) == 1 else SIMULATED_TYPE
            return only, memory.get(only)
        name = self.reader.text(entries["gpu_type"], SIMULATED_TYPE, TYPE_PATTERN, TYPE_WHAT)
        if memory and name not in memory:
            self.reader.problem(
                entries["gpu_type"], f"there is no GPU type {name} in gpu_types", suggestion(name, memory)
            )
        return name, memory.get(name)

    def _nvlink(self, value: Value, gpus: int) -> tuple[tuple[int, ...], ...] | None:
        """`all` (one island), `none`, or lists of GPU numbers."""
        if value.text is not None:
            return None if self.reader.choice(value, "all", ("all", "none")) == "all" else ()
        islands: list[tuple[int, ...]] = []
        seen: set[int] = set()
        for island in self.reader.sequence(value):
            members = tuple(
                self.reader.integer(member, -1, 0, max(gpus - 1, 0))
                for member in self.reader.sequence(island)
            )
            if seen & set(members) or len(set(members)) != len(members):
                self.reader.problem(island, "a GPU can be in one island only")
            seen.update(members)
            islands.append(members)
        return tuple(islands)

    def _extra(self, value: Value) -> dict[str, int]:
        found = {}
        for name, entry in self.reader.open_mapping(value).items():
            if name in BUILT_IN_RESOURCES or not re.fullmatch(RESOURCE_PATTERN, name):
                self.reader.problem(
                    entry, f"{name!r} cannot name a resource", "Use lower case, and not gpus, cpus, memory."
                )
                continue
            found[name] = self.reader.integer(entry, 0, 0, 10**15)
        return found

    def _labels(self, value: Value) -> dict[str, str]:
        return {name: self.reader.text(entry) for name, entry in self.reader.open_mapping(value).items()}

    def _check_names(self, settings: NodeSettings, value: Value) -> None:
        names = [declaration.name for declaration in settings.declared]
        if settings.detected_name:
            names.append(settings.detected_name)
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.reader.problem(value, f"there are two nodes named {name}")
