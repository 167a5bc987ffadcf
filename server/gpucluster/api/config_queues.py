"""The queue tree of cluster.yaml: read, checked against itself and against the cluster, turned into QueueSpecs.

Amounts are kept as they were asked for (a percentage stays one) until the nodes are known; `resolve_queues` then turns
them into resource vectors. The rules are those of "Queues" in docs/administrator/configuration.md.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from ..model.queues import ROOT, Ordering, QueueSpec
from ..model.resources import CPU, GPU, MEMORY, WHOLE_CPU, WHOLE_GPU, Resources, gpu_of_type
from .options import parse_count, parse_size
from .yaml_reader import Problem, Value, YamlReader, suggestion

NAME_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
NAME_WHAT = "a name (letters, digits, dots, dashes, underscores; at most 63)"
#: Deeper trees than this are taken for a mistake (an alias that contains itself).
MAX_DEPTH = 16

QUEUE_KEYS = (
    "name", "parent", "children", "guaranteed", "max", "weight", "ordering", "submit", "admins", "description",
)  # fmt: skip
LATER_QUEUE_KEYS = {
    "user_limit_factor": "limits per user come with a later version",
    "topology_cells": "virtual clusters come with a later version",
    "preemption": "preemption comes with a later version",
    "min_run_time": "minimum run times come with a later version",
}
LATER_ORDERINGS = {
    ordering.value: f"ordering {ordering.value} comes with a later version"
    for ordering in Ordering
    if ordering is not Ordering.FIFO
}

#: An amount in the units of model/resources.py, or a Fraction of what the cluster has.
Amount = int | Fraction


@dataclasses.dataclass(frozen=True)
class Amounts:
    """What `guaranteed` or `max` asks for. `share` of everything the cluster has, or amounts by resource name."""

    share: Fraction | None = None
    by_name: Mapping[str, Amount] = dataclasses.field(default_factory=dict)

    def resolve(self, capacity: Resources) -> dict[str, int]:
        """Amounts in the units of model/resources.py; shares of GPUs are cut down to whole GPUs."""
        if self.share is not None:
            others = [name for name in capacity if not name.startswith(GPU)]
            return {name: _part(capacity, name, self.share) for name in (GPU, *others)}
        return {
            name: _part(capacity, name, amount) if isinstance(amount, Fraction) else amount
            for name, amount in self.by_name.items()
        }


def _part(capacity: Resources, name: str, share: Fraction) -> int:
    amount = int(capacity[name] * share)
    return amount // WHOLE_GPU * WHOLE_GPU if name == GPU or name.startswith(f"{GPU}/") else amount


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """One queue as cluster.yaml states it. `line` and `field` say where; None and "" for the built-in ones."""

    name: str
    parent: str = ROOT
    guaranteed: Amounts | None = None
    max: Amounts | None = None
    weight: int = 1
    ordering: Ordering = Ordering.FIFO
    submit: tuple[str, ...] | None = None  # None = as its parent
    admins: tuple[str, ...] = ()
    description: str = ""
    line: int | None = None
    field: str = ""
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of its keys

    def problem(self, reason: str, key: str = "", hint: str | None = None) -> Problem:
        field = f"{self.field}.{key}" if key in self.lines else self.field
        return Problem(self.lines.get(key, self.line), field, reason, hint)


#: With nothing configured, on the 16 simulated GPUs: research 10 guaranteed and up to 16, batch 6.
DEFAULT_QUEUES = (
    QueueConfig(
        name="research",
        guaranteed=Amounts(share=Fraction(625, 1000)),
        max=Amounts(by_name={GPU: Fraction(1)}),
        description="Interactive work: most of the cluster is promised to it",
    ),
    QueueConfig(
        name="batch",
        guaranteed=Amounts(share=Fraction(375, 1000)),
        description="Longer trainings: may borrow what research leaves idle",
    ),
)


# ---- reading


def read_queues(
    reader: YamlReader, value: Value, gpu_types: Iterable[str] | None, extras: Iterable[str]
) -> tuple[QueueConfig, ...]:
    """The tree under `queues`, parents before children. `gpu_types` None = not known before the nodes are found."""
    queues: list[QueueConfig] = []
    known_types = None if gpu_types is None else frozenset(gpu_types)
    _Reading(reader, known_types, frozenset(extras), queues).level(value, None, 0)
    if not queues and not reader.problems:
        reader.problem(value, "there is no queue here", "Leave the key out to get the built-in queues.")
    _check_tree(reader, queues)
    return tuple(queues)


@dataclasses.dataclass
class _Reading:
    reader: YamlReader
    gpu_types: frozenset[str] | None
    extras: frozenset[str]
    queues: list[QueueConfig]

    def level(self, value: Value, parent: str | None, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self.reader.problem(
                value, f"queues are nested more than {MAX_DEPTH} deep; does an alias contain itself?"
            )
            return
        for item in self.reader.sequence(value):
            self._queue(item, parent, depth)

    def _queue(self, item: Value, parent: str | None, depth: int) -> None:
        reader = self.reader
        entries = reader.mapping(item, QUEUE_KEYS, LATER_QUEUE_KEYS)
        if "name" not in entries:
            reader.problem(item, "a queue needs a name", key="name")
            return
        name = reader.text(entries["name"], "", NAME_PATTERN, NAME_WHAT)
        if not name:
            return
        stated = self._parent(entries, parent, name)
        self.queues.append(self._build(item, entries, name, stated))
        if "children" in entries:
            self.level(entries["children"], name, depth + 1)

    def _parent(self, entries: dict[str, Value], outer: str | None, name: str) -> str:
        if "parent" not in entries:
            return outer or ROOT
        stated = self.reader.text(entries["parent"], ROOT, NAME_PATTERN, NAME_WHAT)
        if outer and stated != outer:
            self.reader.problem(
                entries["parent"], f"queue {name} stands among the children of {outer}", "Leave parent out."
            )
        return stated

    def _build(self, item: Value, entries: dict[str, Value], name: str, parent: str) -> QueueConfig:
        reader = self.reader
        amounts = {key: self._amounts(entries[key]) for key in ("guaranteed", "max") if key in entries}
        ordering = Ordering.FIFO.value
        if "ordering" in entries:
            ordering = reader.choice(entries["ordering"], ordering, (Ordering.FIFO.value,), LATER_ORDERINGS)
        return QueueConfig(
            name=name,
            parent=parent,
            guaranteed=amounts.get("guaranteed"),
            max=amounts.get("max"),
            weight=reader.integer(entries["weight"], 1, 1, 1_000_000) if "weight" in entries else 1,
            ordering=Ordering(ordering),
            submit=self._people(entries["submit"]) if "submit" in entries else None,
            admins=self._people(entries["admins"]) if "admins" in entries else (),
            description=reader.text(entries["description"]) if "description" in entries else "",
            line=item.line,
            field=item.field,
            lines={key: entry.line for key, entry in entries.items()},
        )

    def _people(self, value: Value) -> tuple[str, ...]:
        """Users by name, groups as @name: a list of users, or {users: […], groups: […]}."""
        pattern, what = r"\*|[^\s,@*]+", "the name of a user or group"
        if not value.is_null and value.text is None and value.kind == "a mapping":
            parts = self.reader.mapping(value, ("users", "groups"))
            users = self.reader.texts(parts["users"], pattern, what) if "users" in parts else ()
            groups = self.reader.texts(parts["groups"], r"[^\s,@*]+", what) if "groups" in parts else ()
            return (*users, *(f"@{group}" for group in groups))
        return self.reader.texts(value, pattern, what)

    # ---- amounts

    def _amounts(self, value: Value) -> Amounts | None:
        """`10` (GPUs), `25%` (of everything), or {gpus, gpus/TYPE, cpus, memory, …}; nothing = unset."""
        if value.is_null:
            return None
        if value.text is not None:
            amount = self._amount(value, GPU)
            return Amounts(share=amount) if isinstance(amount, Fraction) else Amounts(by_name={GPU: amount})
        by_name: dict[str, Amount] = {}
        for key, entry in self.reader.open_mapping(value).items():
            resource = self._resource(entry, key)
            if resource:
                by_name[resource] = self._amount(entry, resource)
        return Amounts(by_name=by_name)

    def _resource(self, entry: Value, key: str) -> str | None:
        plain = {"gpus": GPU, "cpus": CPU, "memory": MEMORY}
        if key in plain:
            return plain[key]
        if key.startswith("gpus/"):
            gpu_type = key.removeprefix("gpus/")
            if self.gpu_types is None or gpu_type in self.gpu_types:
                return gpu_of_type(gpu_type)
            self.reader.problem(
                entry, f"there is no GPU type {gpu_type}", suggestion(gpu_type, self.gpu_types or {"none"})
            )
            return None
        if key in self.extras:
            return key
        known = [*plain, *(f"gpus/{gpu_type}" for gpu_type in self.gpu_types or ()), *self.extras]
        self.reader.problem(entry, "there is no such resource", suggestion(key, known))
        return None

    def _amount(self, entry: Value, resource: str) -> Amount:
        text = (entry.text or "").strip()
        if text.endswith("%"):
            return self._percent(entry, text)
        if resource == MEMORY:
            return int(self.reader.parsed(entry, 0, parse_size))
        count = float(self.reader.parsed(entry, 0.0, parse_count))
        whole = resource == GPU or resource.startswith(f"{GPU}/") or resource not in (CPU, MEMORY)
        if whole and count != int(count):
            self.reader.problem(entry, f"{text} is not a whole number")
            return 0
        unit = WHOLE_CPU if resource == CPU else WHOLE_GPU if resource.startswith(GPU) else 1
        return round(count * unit)

    def _percent(self, entry: Value, text: str) -> Fraction:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?\s*%", text):
            self.reader.problem(entry, f"{text!r} is not a percentage", 'Write for example "25%".')
            return Fraction(0)
        share = Fraction(text.rstrip("% ")) / 100
        if share > 1:
            self.reader.problem(entry, f"{text} is more than 100%")
            return Fraction(0)
        return share


def _check_tree(reader: YamlReader, queues: list[QueueConfig]) -> None:
    """Names once, parents that exist, no cycle. Leaves `queues` in the order parents before children."""
    by_name: dict[str, QueueConfig] = {}
    for queue in queues:
        if queue.name == ROOT:
            reader.problems.append(queue.problem(f"the name {ROOT} is that of the whole cluster", "name"))
        elif queue.name in by_name:
            first = by_name[queue.name].line
            reader.problems.append(
                queue.problem(f"there is another queue {queue.name} (line {first})", "name")
            )
        else:
            by_name[queue.name] = queue
    for queue in by_name.values():
        if queue.parent not in by_name and queue.parent != ROOT:
            hint = suggestion(queue.parent, [*by_name, ROOT])
            reader.problems.append(queue.problem(f"there is no queue {queue.parent}", "parent", hint))
    queues[:] = _parents_first(reader, by_name)


def _parents_first(reader: YamlReader, by_name: dict[str, QueueConfig]) -> list[QueueConfig]:
    ordered: list[QueueConfig] = []
    placed = {ROOT}
    rest = [queue for queue in by_name.values()]
    while rest:
        ready = [queue for queue in rest if queue.parent in placed or queue.parent not in by_name]
        if not ready:
            names = ", ".join(queue.name for queue in rest)
            reader.problems.append(
                rest[0].problem(f"these queues are each other's parents: {names}", "parent")
            )
            return ordered + rest
        ordered += ready
        placed.update(queue.name for queue in ready)
        rest = [queue for queue in rest if queue.name not in placed]
    return ordered


# ---- against the cluster


@dataclasses.dataclass(frozen=True)
class ResolvedQueues:
    """`over` tells of guarantees that the cluster cannot keep: an error for declared nodes, a note for found ones."""

    specs: tuple[QueueSpec, ...]
    problems: tuple[Problem, ...]
    over: tuple[Problem, ...]


def resolve_queues(queues: Iterable[QueueConfig], capacity: Resources) -> ResolvedQueues:
    """Turns amounts into resource vectors and checks them. `capacity`: of all nodes, healthy or not.

    A guarantee that names GPUs and neither CPU nor memory guarantees the same part of those as well.
    """
    queues = tuple(queues)
    guaranteed = {queue.name: _guarantee(queue, capacity) for queue in queues}
    maxima = {queue.name: queue.max.resolve(capacity) if queue.max else None for queue in queues}
    problems: list[Problem] = []
    for queue in queues:
        problems += _own_problems(queue, guaranteed[queue.name], maxima)
        problems += _child_problems(queue, queues, guaranteed)
    top = _total(queues, ROOT, guaranteed)
    over = [
        _over_problem(queues, name, amount, capacity)
        for name, amount in sorted(top.items())
        if amount > capacity[name]
    ]
    submit: dict[str, tuple[str, ...]] = {ROOT: ("*",)}
    specs = []
    for queue in queues:
        submit[queue.name] = queue.submit if queue.submit is not None else submit.get(queue.parent, ("*",))
        specs.append(_spec(queue, guaranteed[queue.name], maxima[queue.name], submit[queue.name], capacity))
    return ResolvedQueues(tuple(specs), tuple(problems), tuple(over))


def _guarantee(queue: QueueConfig, capacity: Resources) -> dict[str, int] | None:
    """Where only typed GPUs are named, their sum is the guarantee of GPUs of any type."""
    if queue.guaranteed is None:
        return None
    amounts = queue.guaranteed.resolve(capacity)
    typed = sum(amount for name, amount in amounts.items() if name.startswith(f"{GPU}/"))
    return amounts if GPU in amounts or not typed else {**amounts, GPU: typed}


def _spec(
    queue: QueueConfig,
    guaranteed: dict[str, int] | None,
    maximum: dict[str, int] | None,
    submit: tuple[str, ...],
    capacity: Resources,
) -> QueueSpec:
    if guaranteed is not None and GPU in guaranteed and capacity[GPU]:
        for name in (CPU, MEMORY):
            guaranteed.setdefault(name, capacity[name] * min(guaranteed[GPU], capacity[GPU]) // capacity[GPU])
    return QueueSpec(
        name=queue.name,
        parent=queue.parent,
        guaranteed=guaranteed,
        max=maximum,
        weight=queue.weight,
        ordering=queue.ordering,
        submit_users=submit,
        admin_users=queue.admins,
        description=queue.description,
    )


def _own_problems(
    queue: QueueConfig, guaranteed: dict[str, int] | None, maxima: Mapping[str, dict[str, int] | None]
) -> list[Problem]:
    if guaranteed is None:
        return []
    found = []
    typed = sum(amount for name, amount in guaranteed.items() if name.startswith(f"{GPU}/"))
    if typed > guaranteed.get(GPU, 0):
        reason = (
            f"{amount_text(GPU, typed)} by type are more than the {amount_text(GPU, guaranteed[GPU])} in all"
        )
        found.append(queue.problem(reason, "guaranteed"))
    limits = (
        (queue.name, "max", "its own maximum"),
        (queue.parent, "guaranteed", f"the maximum of {queue.parent}"),
    )
    for limit_of, key, whose in limits:
        maximum = maxima.get(limit_of) or {}
        for name, amount in guaranteed.items():
            if name in maximum and amount > maximum[name]:
                reason = f"{amount_text(name, amount)} guaranteed are more than {whose}, {amount_text(name, maximum[name])}"
                found.append(queue.problem(reason, key))
    return found


def _child_problems(
    queue: QueueConfig, queues: tuple[QueueConfig, ...], guaranteed: Mapping[str, dict[str, int] | None]
) -> list[Problem]:
    own = guaranteed[queue.name]
    if own is None:
        return []
    total = _total(queues, queue.name, guaranteed)
    return [
        queue.problem(
            f"its children are guaranteed {amount_text(name, amount)}, more than its own {amount_text(name, own[name])}",
            "guaranteed",
        )
        for name, amount in sorted(total.items())
        if name in own and amount > own[name]
    ]


def _total(
    queues: tuple[QueueConfig, ...], parent: str, guaranteed: Mapping[str, dict[str, int] | None]
) -> dict[str, int]:
    """What the children of `parent` are guaranteed in sum; an unset inner queue stands for the sum of its children's."""
    total: dict[str, int] = {}
    for queue in queues:
        if queue.parent != parent:
            continue
        own = guaranteed[queue.name]
        for name, amount in (_total(queues, queue.name, guaranteed) if own is None else own).items():
            total[name] = total.get(name, 0) + amount
    return total


def _over_problem(queues: tuple[QueueConfig, ...], name: str, amount: int, capacity: Resources) -> Problem:
    reason = f"queues are guaranteed {amount_text(name, amount)} in all, the cluster has {amount_text(name, capacity[name])}"
    return Problem(queues[0].line, "queues" if queues[0].line else "", reason)


def amount_text(name: str, amount: int) -> str:
    """An amount for people, e.g. "10 GPUs", "4 A100 GPUs", "16 CPU cores", "512 GiB memory"."""
    if name == MEMORY:
        return f"{amount / (1 << 30):g} GiB memory"
    if name == CPU:
        return f"{amount / WHOLE_CPU:g} CPU cores"
    if name == GPU or name.startswith(f"{GPU}/"):
        unit = "GPU" if amount == WHOLE_GPU else "GPUs"
        gpu_type = name.removeprefix(GPU).removeprefix("/")
        return " ".join(filter(None, [f"{amount / WHOLE_GPU:g}", gpu_type, unit]))
    return f"{amount} {name}"
