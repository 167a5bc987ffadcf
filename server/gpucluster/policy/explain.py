"""Why a job waits: one typed reason and one sentence with numbers. Worked out on demand from the live books."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from ..model.errors import GpuclusterError
from ..model.jobs import Job, JobSpec, TaskRole
from ..model.resources import CPU, GPU, MEMORY, WHOLE_CPU, WHOLE_GPU
from ..model.topology import GpuHealth
from .admission import check_possible
from .cycle import type_limits
from .decisions import Snapshot
from .lacking import Shortage, lacking_for
from .pending import Shape, is_barred, shape_of
from .placement import place_gang
from .space import ClusterSpace, NodeSpace
from .tree import Excess
from .words import amount_text, counted, gpus_text, joined, memory_text, number, role_text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """`verdict`: starts_when | never | starting | running | stopping. `code` is the typed reason; `facts` its numbers."""

    job_id: str
    verdict: str
    code: str
    sentence: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    position: int | None = None


class Reason(NamedTuple):
    """`resources`: what the job holds back from those behind it (nothing when it could start)."""

    verdict: str
    code: str
    sentence: str
    facts: dict[str, Any]
    resources: frozenset[str] = frozenset()


#: Reasons by queue and shape: the same for all jobs of one shape as long as the books stay as they are.
Known = dict[tuple[str, Shape], Reason]


def explain_waiting(snapshot: Snapshot, job: Job, known: Known) -> Why:
    """For a job that waits for nothing but its turn and the resources.

    `known` keeps what was worked out, for the next job of the list; empty it whenever the books change.
    """
    position = snapshot.pending[job.spec.queue].position(job.number)
    reason = _behind(snapshot, job, position, known) or own_reason(snapshot, job, known)
    return Why(
        job_id=job.id,
        verdict=reason.verdict,
        code=reason.code,
        sentence=reason.sentence,
        facts=reason.facts,
        position=position,
    )


def _behind(snapshot: Snapshot, job: Job, position: int | None, known: Known) -> Reason | None:
    """The first job in front that holds this one up, and why that one waits itself."""
    in_front = _first_that_bars(snapshot, job, known)
    if in_front is None:
        return None
    theirs = own_reason(snapshot, in_front, known)
    sentence = (
        f"Number {position} in queue {job.spec.queue}, behind job {in_front.number}, which waits: "
        f"{theirs.sentence[0].lower()}{theirs.sentence[1:]}"
    )
    facts = {
        "position": position,
        "behind": in_front.number,
        "its_code": theirs.code,
        "its_facts": theirs.facts,
    }
    return Reason("starts_when", "behind", sentence, facts, theirs.resources)


def _first_that_bars(snapshot: Snapshot, job: Job, known: Known) -> Job | None:
    """Of jobs that ask for the same, one is looked at: they wait for the same."""
    seen: set[Shape] = set()
    for other in snapshot.pending[job.spec.queue]:
        if other.number == job.number:
            return None
        shape = shape_of(other.spec)
        if shape == shape_of(job.spec):
            return other
        if shape not in seen:
            seen.add(shape)
            barred = own_reason(snapshot, other, known).resources
            if is_barred(job.spec, barred, snapshot.space.gpu_types):
                return other
    return None


def own_reason(snapshot: Snapshot, job: Job, known: Known) -> Reason:
    """Why the job would wait if it were first in its queue."""
    key = (job.spec.queue, shape_of(job.spec))
    if key not in known:
        known[key] = _work_out(snapshot, job.spec)
    return known[key]


def _work_out(snapshot: Snapshot, spec: JobSpec) -> Reason:
    tree, space = snapshot.tree, snapshot.space
    try:
        check_possible(tree, space, spec)
    except GpuclusterError as error:
        hint = f" {error.hint}" if error.hint else ""
        return Reason("never", "never", f"Never as asked: {error.reason}.{hint}", {"field": error.field})
    excesses = sorted(tree.over_max(spec.queue, spec.request()), key=lambda excess: not _is_of_gpus(excess))
    barred = frozenset(excess.resource for excess in excesses)
    if excesses and _is_of_gpus(excesses[0]):
        return _over_max(spec, excesses[0], barred)
    limits = type_limits(tree, spec.queue, space.gpu_types)
    fits = place_gang(space, spec.roles, limits=limits) is not None
    if fits and not excesses:
        return Reason("starts_when", "next", "It is its turn: it starts with the next cycle.", {})
    lack = None if fits else lacking_for(space, spec.roles, limits)
    if excesses and (lack is None or lack.shortage not in _OF_GPUS):
        return _over_max(spec, excesses[0], barred)
    assert lack is not None  # else it would fit
    sentence, facts = _DESCRIBE[lack.shortage](snapshot, spec)
    return Reason("starts_when", lack.shortage.value, sentence, facts, barred or lack.resources)


#: Of several things in the way, what is short of GPUs is told: it is what people ask for, and what frees up last.
_OF_GPUS = frozenset({Shortage.GPUS, Shortage.GPU_TYPE_MAX, Shortage.FRAGMENTATION})


def _is_of_gpus(excess: Excess) -> bool:
    return excess.resource.split("/")[0] == GPU


def _over_max(spec: JobSpec, excess: Excess, resources: frozenset[str]) -> Reason:
    needed = spec.request()[excess.resource]
    sentence = (
        f"Queue {excess.queue} uses {amount_text(excess.resource, excess.used)} of its maximum of "
        f"{amount_text(excess.resource, excess.limit)}; this job needs {amount_text(excess.resource, needed)}."
    )
    facts = {**excess._asdict(), "needed": needed}
    return Reason("starts_when", "queue_max", sentence, facts, resources)


def _no_nodes(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    nodes = snapshot.space.nodes
    if not nodes:
        return "No node has reported yet.", {"nodes": 0}
    return f"No node takes new tasks: {_closed(snapshot.space)}.", {"nodes": len(nodes)}


def _closed(space: ClusterSpace) -> str:
    """The nodes that take no new tasks, e.g. "node-1 is lost"; empty when all do."""
    closed = [
        f"{name} is {node.health.value}" for name, node in space.nodes.items() if not space[name].is_open
    ]
    more = [f"{len(closed) - 3} more are closed"] if len(closed) > 4 else []
    return joined([*closed[: 3 if more else 4], *more])


class GpuCount(NamedTuple):
    """GPUs of some types: all there are, free on open nodes, held by jobs, and the rest (not healthy or not open)."""

    total: int
    free: int
    held: int
    holders: int
    out: int


def count_gpus(space: ClusterSpace, gpu_types: Collection[str]) -> GpuCount:
    total = free = held = 0
    holders: set[str] = set()
    for node in space:
        gpus = [gpu for gpu in node.node.gpus if gpu.type in gpu_types] if node.node else []
        total += len(gpus)
        for gpu in gpus:
            if gpu.uuid in node.held:
                held += 1
                holders.add(node.held[gpu.uuid])
            elif node.is_open and gpu.health is GpuHealth.OK:
                free += 1
    return GpuCount(total, free, held, len(holders), total - free - held)


def _gpu_roles(roles: Sequence[TaskRole]) -> list[TaskRole]:
    return [role for role in roles if role.gpus]


def _wanted_types(space: ClusterSpace, roles: Sequence[TaskRole]) -> tuple[str, ...]:
    """The types named by the roles; empty when any will do."""
    if any(not role.gpu_types for role in roles):
        return ()
    return tuple(dict.fromkeys(gpu_type for role in roles for gpu_type in role.gpu_types))


def _no_gpus(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    roles = _gpu_roles(spec.roles)
    named = _wanted_types(snapshot.space, roles)
    counts = count_gpus(snapshot.space, named or snapshot.space.gpu_types)
    needed = sum(role.count * role.gpus for role in roles) // WHOLE_GPU
    parts = [f"{counts.free} of {counts.total} {'is' if counts.free == 1 else 'are'} free"]
    if counts.held:
        parts.append(f"{counts.held} in use by {counted(counts.holders, 'job')}")
    if counts.out:
        closed = _closed(snapshot.space)
        parts.append(f"{counts.out} out of service" + (f" ({closed})" if closed else ""))
    of_types = gpus_text(needed, named)
    one_type = "" if named or len(snapshot.space.gpu_types) < 2 else " of one type"
    facts = {"needed": needed, "gpu_types": list(named), **counts._asdict()}
    return f"Needs {of_types}{one_type}: {', '.join(parts)}.", facts


def _type_max(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    limits = type_limits(snapshot.tree, spec.queue, snapshot.space.gpu_types)
    left = joined([f"{gpus_text(count, (gpu_type,))}" for gpu_type, count in limits.items()])
    needed = spec.request()[GPU] // WHOLE_GPU
    sentence = f"Needs {gpus_text(needed)}; the maximum of queue {spec.queue} leaves {left}."
    return sentence, {"needed": needed, "left": limits}


def _fragmentation(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    space, roles = snapshot.space, _gpu_roles(spec.roles)
    types = _wanted_types(space, roles) or space.gpu_types
    free = sum(space.free_gpus(gpu_type) for gpu_type in types)
    largest = max((len(node.free_gpus(t)) for node in space.open_nodes() for t in types), default=0)
    each = max(role.gpus for role in roles) // WHOLE_GPU
    facts: dict[str, Any] = {"free": free, "largest_free_on_a_node": largest, "gpus_per_task": each}
    if spec.task_count == 1:
        return (
            f"Needs {gpus_text(each)} on one node: {free} are free, but at most {largest} on one node.",
            facts,
        )
    fitting = sum(len(node.free_gpus(t)) // each for node in space.open_nodes() for t in types)
    facts["tasks_that_fit"] = fitting
    tasks = (
        f"{counted(sum(role.count for role in roles), 'task')} with up to {gpus_text(each)} on one node each"
    )
    return f"Needs {tasks}: {free} are free, but only {fitting} such tasks find a place at once.", facts


def _no_cpu(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    role = max(spec.roles, key=lambda role: role.cpus)
    free = max((node.cpu_free for node in _nodes_for(snapshot.space, role)), default=0)
    sentence = (
        f"Needs {counted(spec.task_count, 'task')} of {role_text(role)}: "
        f"at most {number(free / WHOLE_CPU)} CPU cores are free on a node{_beside(role)}."
    )
    return sentence, {"needed": role.cpus, "resource": CPU, "largest_free_on_a_node": free}


def _no_memory(snapshot: Snapshot, spec: JobSpec) -> tuple[str, dict[str, Any]]:
    role = max(spec.roles, key=lambda role: role.memory)
    free = max((node.memory_free for node in _nodes_for(snapshot.space, role)), default=0)
    sentence = (
        f"Needs {counted(spec.task_count, 'task')} of {role_text(role)}: "
        f"at most {memory_text(free)} of memory is free on a node{_beside(role)}."
    )
    return sentence, {"needed": role.memory, "resource": MEMORY, "largest_free_on_a_node": free}


def _nodes_for(space: ClusterSpace, role: TaskRole) -> Iterator[NodeSpace]:
    """Open nodes that have the GPUs for one task."""
    types = role.gpu_types or space.gpu_types
    for node in space.open_nodes():
        if not role.gpus or any(len(node.free_gpus(t)) * WHOLE_GPU >= role.gpus for t in types):
            yield node


def _beside(role: TaskRole) -> str:
    return " with these GPUs free" if role.gpus else ""


_DESCRIBE: dict[Shortage, Callable[[Snapshot, JobSpec], tuple[str, dict[str, Any]]]] = {
    Shortage.NO_NODES: _no_nodes,
    Shortage.GPUS: _no_gpus,
    Shortage.GPU_TYPE_MAX: _type_max,
    Shortage.FRAGMENTATION: _fragmentation,
    Shortage.CPU: _no_cpu,
    Shortage.MEMORY: _no_memory,
}
