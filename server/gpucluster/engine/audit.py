"""The books recounted: what must hold after every step, whatever happened (DESIGN section 7).

`audit` compares each book and index with a recount from the jobs themselves and returns what is wrong, nothing when all
is well. Property tests call it after every step; the live service walks the same rules
every few minutes (api/self_check.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..model.jobs import HOLDING_STATES, TASK_ENDED, Attempt, Job, JobState
from ..model.resources import CPU, MEMORY, WHOLE_GPU
from ..model.topology import GpuHealth, under
from .state import ClusterState, held_by


class Finding(NamedTuple):
    """`rule`: which invariant is broken; `text`: where, with numbers."""

    rule: str
    text: str


def audit(state: ClusterState) -> list[Finding]:
    """Everything that is wrong with the books. Cost: one walk over jobs, queues and nodes for each rule."""
    return [finding for check in CHECKS for finding in check(state)]


def _active(state: ClusterState) -> Iterator[tuple[Job, Attempt]]:
    for job in state.jobs.values():
        if job.state in HOLDING_STATES and job.attempt is not None:
            yield job, job.attempt


def _jobs(state: ClusterState) -> Iterator[Finding]:
    for job_id, job in state.jobs.items():
        name = f"job #{job.number}"
        if job.id != job_id or state.by_number.get(job.number) != job_id:
            yield Finding("job_index", f"{name} is not found under its id and number")
        if job.is_ended:
            yield Finding("ended_in_memory", f"{name} has ended ({job.state.value}) and is still in memory")
        is_active = job.attempt is not None and job.attempt.ended_us is None
        if (job.state in HOLDING_STATES) != is_active:
            yield Finding("attempt_state", f"{name} is {job.state.value}; active attempt: {is_active}")
        if is_active and job.attempt is not None and state.by_attempt.get(job.attempt.id) != job_id:
            yield Finding("attempt_index", f"the attempt of {name} is not found under its id")
        if (job.stop_cause is not None) != (job.state is JobState.STOPPING):
            yield Finding("stop_cause", f"{name} is {job.state.value} with stop cause {job.stop_cause}")
    if len(state.by_number) != len(state.jobs):
        yield Finding("job_index", f"{len(state.by_number)} numbers for {len(state.jobs)} jobs")
    for attempt_id, job_id in state.by_attempt.items():
        job_of = state.jobs.get(job_id)
        if job_of is None or job_of.attempt is None or job_of.attempt.id != attempt_id:
            yield Finding("attempt_index", f"attempt {attempt_id} is held for no job")


def _gangs(state: ClusterState) -> Iterator[Finding]:
    for job, attempt in _active(state):
        ranks = [task.rank for task in attempt.tasks]
        roles = Counter(task.placement.role for task in attempt.tasks)
        if ranks != list(range(job.spec.task_count)):
            yield Finding(
                "whole_gang", f"job #{job.number} has ranks {ranks}, wants {job.spec.task_count} tasks"
            )
        if roles != Counter({role.name: role.count for role in job.spec.roles}):
            yield Finding("whole_gang", f"job #{job.number} has tasks {dict(roles)}")
        if all(task.state in TASK_ENDED for task in attempt.tasks):
            yield Finding(
                "held_after_end", f"every task of job #{job.number} has ended and its attempt has not"
            )


def _gpu_holders(state: ClusterState) -> Iterator[Finding]:
    wanted: dict[tuple[str, str], str] = {}
    for job, attempt in _active(state):
        for placement in attempt.placements:
            for uuid in placement.gpus:
                if (placement.node, uuid) in wanted:
                    yield Finding("one_holder", f"GPU {uuid} is held by job #{job.number} and another")
                wanted[placement.node, uuid] = attempt.id
    booked = {(node.name, uuid): holder for node in state.space for uuid, holder in node.held.items()}
    for where in wanted.keys() | booked.keys():
        if wanted.get(where) != booked.get(where):
            yield Finding("gpu_books", f"{where}: placed {wanted.get(where)}, booked {booked.get(where)}")


def _node_books(state: ClusterState) -> Iterator[Finding]:
    cpu: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for _, attempt in _active(state):
        for placement in attempt.placements:
            cpu[placement.node] += placement.resources[CPU]
            memory[placement.node] += placement.resources[MEMORY]
    free_on_open: Counter[str] = Counter()
    for node in state.space:
        if (node.cpu_held, node.memory_held) != (cpu[node.name], memory[node.name]):
            booked = f"{node.cpu_held} CPU, {node.memory_held} memory"
            yield Finding(
                "node_books", f"{node.name}: booked {booked}; held {cpu[node.name]}, {memory[node.name]}"
            )
        if node.node is not None and (node.cpu_free < 0 or node.memory_free < 0):
            yield Finding(
                "node_overcommitted", f"{node.name}: {node.cpu_free} CPU, {node.memory_free} memory free"
            )
        gpus = node.node.gpus if node.node else ()
        free = [gpu for gpu in gpus if gpu.health is GpuHealth.OK and gpu.uuid not in node.held]
        if sorted(gpu.uuid for gpu in free) != sorted(gpu.uuid for gpu in node.all_free_gpus()):
            yield Finding(
                "free_gpus", f"{node.name}: {len(free)} GPUs are free, booked {node.free_gpu_count}"
            )
        if node.is_open:
            free_on_open.update(gpu.type for gpu in free)
    for gpu_type in state.space.gpu_types:
        if state.space.free_gpus(gpu_type) != free_on_open[gpu_type]:
            booked = str(state.space.free_gpus(gpu_type))
            yield Finding("free_gpus", f"{free_on_open[gpu_type]} {gpu_type} are free, booked {booked}")


def _queue_books(state: ClusterState) -> Iterator[Finding]:
    recount: dict[str, Counter[str]] = {name: Counter() for name in state.tree.queues}
    for job, attempt in _active(state):
        for queue in state.tree[job.spec.queue].path():
            recount[queue.name].update(held_by(attempt).to_dict())
    for name, queue in state.tree.queues.items():
        if queue.used != dict(recount[name]):
            yield Finding("queue_books", f"{name}: booked {queue.used}, held {dict(recount[name])}")
        if any(amount <= 0 for amount in queue.used.values()):
            yield Finding("negative_use", f"{name}: {queue.used}")
    for _, attempt in _active(state):
        for placement in attempt.placements:
            if placement.resources["gpu"] != len(placement.gpus) * WHOLE_GPU:
                yield Finding(
                    "gpu_amount", f"attempt {attempt.id} rank {placement.rank}: {placement.resources}"
                )


def _within_max(state: ClusterState) -> Iterator[Finding]:
    for queue in state.tree.queues.values():
        for resource, limit in queue.maximum.items():
            if queue.used.get(resource, 0) > limit:
                yield Finding(
                    "over_max", f"{queue.name}: {queue.used[resource]} of at most {limit} {resource}"
                )


def _counts(state: ClusterState) -> Iterator[Finding]:
    waiting: Counter[str] = Counter()
    holding: Counter[str] = Counter()
    for job in state.jobs.values():
        counts = waiting if job.state is JobState.PENDING else holding
        counts.update(queue.name for queue in state.tree[job.spec.queue].path())
    for name in state.tree.queues:
        booked = (state.waiting.get(name, 0), state.holding.get(name, 0))
        if booked != (waiting[name], holding[name]):
            yield Finding("job_counts", f"{name}: booked {booked}, counted {waiting[name]}, {holding[name]}")


def _owners(state: ClusterState) -> Iterator[Finding]:
    jobs: dict[str, list[str]] = {}
    waiting: Counter[str] = Counter()
    holding: Counter[str] = Counter()
    used: dict[str, dict[str, Counter[str]]] = {}
    for job in state.jobs.values():
        jobs.setdefault(job.owner.id, []).append(job.id)
        (waiting if job.state is JobState.PENDING else holding)[job.owner.id] += 1
    for job, attempt in _active(state):
        of_owner = used.setdefault(job.owner.id, {})
        for queue in state.tree[job.spec.queue].path():
            of_owner.setdefault(queue.name, Counter()).update(held_by(attempt).to_dict())
    if state.owners.keys() != jobs.keys():
        yield Finding("owners", f"booked {sorted(state.owners)}, have jobs {sorted(jobs)}")
    for owner, books in state.owners.items():
        booked = (list(books.jobs), books.waiting, books.holding)
        counted = (jobs.get(owner, []), waiting[owner], holding[owner])
        if sorted(booked[0]) != sorted(counted[0]) or booked[1:] != counted[1:]:
            yield Finding("owners", f"{owner}: booked {booked}, counted {counted}")
        held = {name: dict(amounts) for name, amounts in used.get(owner, {}).items() if amounts}
        if {name: amounts.to_dict() for name, amounts in books.used.items()} != held:
            yield Finding("owners", f"{owner}: booked {books.used}, held {held}")


def _pending_index(state: ClusterState) -> Iterator[Finding]:
    for name, pending in state.pending.items():
        for job in pending:
            if (
                state.jobs.get(job.id) is not job
                or job.state is not JobState.PENDING
                or job.spec.queue != name
            ):
                yield Finding("pending_index", f"job #{job.number} stands in queue {name} and should not")
            if job.id in state.unmet:
                yield Finding("pending_index", f"job #{job.number} is ready and waits for others")
    for job in state.jobs.values():
        is_held_up = job.id in state.unmet or job.not_before_us > 0
        if job.state is JobState.PENDING and not state.is_ready(job) and not is_held_up:
            yield Finding("forgotten", f"job #{job.number} is pending, held up by nothing, and in no queue")


def _dependencies(state: ClusterState) -> Iterator[Finding]:
    forward = {(job_id, other) for job_id, others in state.unmet.items() for other in others}
    backward = {(job_id, other) for other, job_ids in state.dependents.items() for job_id in job_ids}
    if forward != backward:
        yield Finding("dependencies", f"{sorted(forward ^ backward)}")
    for job_id, other in forward:
        if other not in state.jobs or job_id not in state.jobs:
            yield Finding("dependencies", f"{job_id} waits for {other}; one of them is not there")


def _nodes(state: ClusterState) -> Iterator[Finding]:
    for name in state.reported.keys() | state.nodes.keys():
        reported, counted = state.reported.get(name), state.nodes.get(name)
        wanted = under(reported, state.settings.get(name)) if reported is not None else None
        if counted != wanted:
            yield Finding(
                "node_health", f"{name} counts otherwise than as reported and set by an administrator"
            )


#: The rules, each a walk of its own over books that must stand still for it.
CHECKS: tuple[Callable[[ClusterState], Iterator[Finding]], ...] = (
    _jobs,
    _gangs,
    _gpu_holders,
    _node_books,
    _queue_books,
    _within_max,
    _counts,
    _owners,
    _pending_index,
    _dependencies,
    _nodes,
)
