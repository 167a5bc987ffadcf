"""What can be submitted at all: is the request well formed, may this principal, and could it ever run?

*Ever* means: on the nodes that have registered, empty and all well, within the maxima of the queue. Each refusal names
the field and says what to ask for instead.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model.errors import Forbidden, InvalidRequest, NeverAsAsked, NotSupported
from ..model.jobs import JobSpec, TaskRole
from ..model.principals import Principal
from ..model.queues import QueueSpec
from ..model.resources import CPU, GPU, MEMORY, WHOLE_GPU, gpu_of_type
from .placement import place_gang
from .space import ClusterSpace, NodeSpace
from .tree import QueueTree
from .words import amount_text, counted, gpus_text, joined, memory_text, role_text

#: More than this of anything is a slip of the keyboard, and would only make for odd arithmetic.
ABSURD = 1 << 60
MOST_TASKS = 100_000
MOST_SECONDS = 10 * 365 * 86400.0
MOST_GRACE_S = 3600.0
MOST_RETRIES = 1000


def check_admission(tree: QueueTree, space: ClusterSpace, spec: JobSpec, owner: Principal) -> None:
    """Raises InvalidRequest, NotSupported, NeverAsAsked or Forbidden. With no node registered yet, sizes are not judged."""
    _check_form(spec)
    check_queue(tree, spec.queue, owner)
    check_possible(tree, space, spec)


# ---- form


def _check_form(spec: JobSpec) -> None:
    if not spec.roles:
        raise InvalidRequest("tasks", "a job has at least one task")
    for role in spec.roles:
        _check_role_form(role)
    if spec.task_count > MOST_TASKS:
        reason = f"{spec.task_count} tasks are more than a job may have"
        raise InvalidRequest("tasks", reason, f"Ask for at most {MOST_TASKS}.")
    if len({role.name for role in spec.roles}) < len(spec.roles):
        raise InvalidRequest(
            "roles", "two task roles have the same name", "Give each role a name of its own."
        )
    if spec.tier not in (0, 1, 2):
        raise InvalidRequest("tier", f"{spec.tier} is not a tier", "Tiers are 0, 1 and 2; ask for 1.")
    if spec.tier != 1:
        raise NotSupported(
            "tier", f"tier {spec.tier} comes with a later version", "All jobs run in tier 1 so far."
        )
    if spec.priority != 0:
        raise NotSupported("priority", "queues are first in, first out so far", "Leave the priority at 0.")
    if spec.time_limit_s is not None and not 0 < spec.time_limit_s <= MOST_SECONDS:
        reason = f"{spec.time_limit_s:g} s is not a time limit"
        raise InvalidRequest("time", reason, "Ask for more than 0 s and at most ten years.")
    if not 0 <= spec.grace_s <= MOST_GRACE_S:
        raise InvalidRequest("grace", f"{spec.grace_s:g} s is not a grace period", "Ask for 0 s to one hour.")
    if not 0 <= spec.retries <= MOST_RETRIES:
        reason = f"{spec.retries} is not a number of retries"
        raise InvalidRequest("retries", reason, f"Ask for 0 to {MOST_RETRIES}.")


def _check_role_form(role: TaskRole) -> None:
    if role.count < 1:
        raise InvalidRequest("tasks", f"{role.count} is not a number of tasks", "Ask for 1 or more.")
    for field, amount in (("gpus", role.gpus), ("cpus", role.cpus), ("memory", role.memory)):
        if not 0 <= amount < ABSURD:
            raise InvalidRequest(
                field, f"{amount} is not an amount that can be asked for", "Ask for 0 or more."
            )
    if role.gpus % WHOLE_GPU:
        reason = f"{role.gpus / WHOLE_GPU:g}: shares of a GPU come with a later version"
        raise NotSupported("gpus", reason, "Ask for whole GPUs.")
    if role.gpu_types and not role.gpus:
        raise InvalidRequest(
            "gpu-type", "a job without GPUs has no GPU type", "Ask for GPUs, or for no type."
        )


# ---- queue


def check_queue(tree: QueueTree, name: str, owner: Principal) -> None:
    """Raises InvalidRequest for a queue that is not there or takes no jobs, Forbidden for one that is closed to `owner`."""
    open_to_owner = [leaf.name for leaf in tree.leaves() if may_submit(leaf.spec, owner)]
    choices = (
        f"Queues open to you: {', '.join(open_to_owner)}." if open_to_owner else "No queue is open to you."
    )
    if name not in tree:
        raise InvalidRequest("queue", f"there is no queue {name!r}", choices)
    if name not in {leaf.name for leaf in tree.leaves()}:
        inner = ", ".join(leaf.name for leaf in tree.leaves() if tree[name] in leaf.path())
        hint = f"Submit to one of the queues below it: {inner}." if inner else choices
        raise InvalidRequest("queue", f"queue {name!r} takes no jobs itself", hint)
    if not may_submit(tree[name].spec, owner):
        raise Forbidden(f"{owner.name} may not submit to queue {name!r}", field="queue", hint=choices)


def may_submit(queue: QueueSpec, principal: Principal) -> bool:
    """Administrators, and whom the queue's `submit_users` or `admin_users` name."""
    return principal.is_admin or principal.is_named((*queue.submit_users, *queue.admin_users))


# ---- size


def check_possible(tree: QueueTree, space: ClusterSpace, spec: JobSpec) -> None:
    """Raises NeverAsAsked when the gang could not start even on an empty cluster in perfect health."""
    if not space.nodes:
        return
    perfect = space.perfect()
    for role in spec.roles:
        _check_one_task(perfect, role)
    _check_maxima(tree, spec)
    _check_gang(tree, perfect, spec)


def _gpus_on(node: NodeSpace, gpu_types: Iterable[str]) -> int:
    """GPUs that one task could have here: all of one type."""
    return max((len(node.free_gpus(gpu_type)) for gpu_type in gpu_types), default=0)


def _check_one_task(perfect: ClusterSpace, role: TaskRole) -> None:
    nodes, known = perfect.open_nodes(), perfect.gpu_types
    for gpu_type in role.gpu_types:
        if gpu_type not in known:
            choices = f"GPU types here: {', '.join(known)}." if known else "This cluster has no GPUs."
            raise InvalidRequest("gpu-type", f"no node has GPUs of type {gpu_type!r}", choices)
    gpus = role.gpus // WHOLE_GPU
    types = role.gpu_types or known
    most = max(_gpus_on(node, types) for node in nodes)
    if gpus > most:
        reason = f"no node has {gpus_text(gpus, role.gpu_types)}"
        raise NeverAsAsked(
            "gpus", reason, f"The most you can ask is {gpus_text(most, role.gpu_types)} per task."
        )
    fitting = [node for node in nodes if _gpus_on(node, types) >= gpus]
    beside = f" beside {gpus_text(gpus, role.gpu_types)}" if gpus else ""
    most_cpu = max(node.cpu_free for node in fitting)
    if role.cpus > most_cpu:
        reason = f"no node has {amount_text(CPU, role.cpus)}{beside}"
        raise NeverAsAsked("cpus", reason, f"The most you can ask is {amount_text(CPU, most_cpu)} per task.")
    most_memory = max(node.memory_free for node in fitting if node.cpu_free >= role.cpus)
    if role.memory > most_memory:
        reason = f"no node has {amount_text(MEMORY, role.memory)}{beside}"
        hint = f"The most you can ask is {memory_text(most_memory)} per task."
        raise NeverAsAsked("memory", reason, hint)


def _check_maxima(tree: QueueTree, spec: JobSpec) -> None:
    request = spec.request()
    for queue in tree[spec.queue].path():
        for resource, limit in sorted(queue.maximum.items(), key=lambda item: item[0] != GPU):
            if request[resource] > limit:
                _refuse_over_max(queue.name, resource, request[resource], limit, spec)


def _refuse_over_max(queue: str, resource: str, amount: int, limit: int, spec: JobSpec) -> None:
    fields = {GPU: "gpus", CPU: "cpus", MEMORY: "memory"}
    field = "tasks" if spec.task_count > 1 else fields.get(resource, resource)
    reason = f"queue {queue!r} may use at most {amount_text(resource, limit)}, the job needs {amount_text(resource, amount)}"
    per_job = " in all" if spec.task_count > 1 else ""
    raise NeverAsAsked(field, reason, f"The most you can ask is {amount_text(resource, limit)}{per_job}.")


def _check_gang(tree: QueueTree, space: ClusterSpace, spec: JobSpec) -> None:
    maxima = tree.tightest_max(spec.queue)
    limits = {t: maxima[gpu_of_type(t)] // WHOLE_GPU for t in space.gpu_types if gpu_of_type(t) in maxima}
    if place_gang(space, spec.roles, limits=limits) is not None:
        return
    each = joined([f"{counted(role.count, 'task')} of {role_text(role)}" for role in spec.roles])
    if len(spec.roles) > 1:
        hint = "Ask for fewer or smaller tasks."
        raise NeverAsAsked("tasks", f"the cluster cannot hold {each} at once", hint)
    most = _most_tasks(space, spec.roles[0], limits)
    if not most:
        types = ", ".join(f"{t} at most {gpus_text(count)}" for t, count in limits.items())
        raise NeverAsAsked(
            "gpu-type", f"queue {spec.queue!r} may not use so many GPUs of one type", f"{types}."
        )
    where = "within the queue's maximum" if limits else "on this cluster"
    reason = (
        f"{each} each do not fit {where} at once"
        if spec.roles[0].count > 1
        else f"{each} does not fit {where}"
    )
    raise NeverAsAsked("tasks", reason, f"The most you can ask is {counted(most, 'task')} of this size.")


def _most_tasks(space: ClusterSpace, role: TaskRole, limits: dict[str, int]) -> int:
    """The largest count of equal tasks that fits, found by bisection."""
    low, high = 0, role.count
    while high - low > 1:
        middle = (low + high) // 2
        fits = place_gang(space, [msgspec.structs.replace(role, count=middle)], limits=limits) is not None
        low, high = (middle, high) if fits else (low, middle)
    return low
