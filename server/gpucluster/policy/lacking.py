"""What a gang that has no place lacks: GPUs, CPU, memory, or only a free piece large enough (fragmentation)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from ..model.jobs import TaskRole
from ..model.resources import CPU, GPU, MEMORY, WHOLE_GPU, gpu_of_type
from .placement import NO_LIMITS, TypeLimits, place_gang
from .space import ClusterSpace


class Shortage(str, enum.Enum):
    """The kinds of lack, as reason codes."""

    NO_NODES = "no_nodes"
    GPU_TYPE_MAX = "queue_max"
    GPUS = "no_gpus_free"
    CPU = "no_cpu_free"
    MEMORY = "no_memory_free"
    FRAGMENTATION = "fragmentation"


class Lack(NamedTuple):
    """`resources`: what followers must not take away (the names of model/resources.py)."""

    shortage: Shortage
    resources: frozenset[str]


def lacking_for(
    space: ClusterSpace,
    roles: Sequence[TaskRole],
    limits: TypeLimits = NO_LIMITS,
    barred_types: Collection[str] = (),
) -> Lack:
    """Why `place_gang` with the same arguments gave no place."""
    wanted = _wanted(space, roles)
    if not space.open_nodes():
        return Lack(Shortage.NO_NODES, wanted)
    typed = frozenset(name for name in wanted if name.startswith(f"{GPU}/"))
    without_cpu = [msgspec.structs.replace(role, cpus=0) for role in roles]
    without_memory = [msgspec.structs.replace(role, memory=0) for role in roles]
    gpus_only = [msgspec.structs.replace(role, cpus=0, memory=0) for role in roles]

    def fits(changed: Sequence[TaskRole]) -> bool:
        return place_gang(space, changed, limits=limits, barred_types=barred_types) is not None

    if not fits(gpus_only):
        return Lack(_gpu_shortage(space, roles, limits, barred_types), typed or wanted)
    if fits(without_cpu):
        return Lack(Shortage.CPU, frozenset({CPU}))
    if fits(without_memory):
        return Lack(Shortage.MEMORY, frozenset({MEMORY}))
    return Lack(Shortage.CPU, frozenset({CPU, MEMORY}))


def _wanted(space: ClusterSpace, roles: Sequence[TaskRole]) -> frozenset[str]:
    names: set[str] = set()
    for role in roles:
        if role.gpus:
            names.update(gpu_of_type(gpu_type) for gpu_type in role.gpu_types or space.gpu_types)
            if not role.gpu_types and not space.gpu_types:
                names.add(GPU)
        if role.cpus:
            names.add(CPU)
        if role.memory:
            names.add(MEMORY)
    return frozenset(names)


def _gpu_shortage(
    space: ClusterSpace, roles: Sequence[TaskRole], limits: TypeLimits, barred_types: Collection[str]
) -> Shortage:
    """Too few free in sum, enough but not together, or enough but above a queue's maximum of a type."""
    one_gpu_each = [
        msgspec.structs.replace(
            role, count=role.count * (role.gpus // WHOLE_GPU), gpus=WHOLE_GPU, cpus=0, memory=0
        )
        for role in roles
        if role.gpus
    ]
    if place_gang(space, one_gpu_each, limits=limits, barred_types=barred_types) is not None:
        return Shortage.FRAGMENTATION
    if limits and place_gang(space, one_gpu_each, barred_types=barred_types) is not None:
        return Shortage.GPU_TYPE_MAX
    return Shortage.GPUS
