"""The complete environment of a task: what the job carries, what every program expects, and ours.

Nothing of the daemon's own environment reaches a task.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from ..engine.protocols import TaskOrder
from ..model.jobs import Program, ProgramKind
from ..model.topology import Node
from ..worker import protocol

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

#: Variables that a process reads once, at its start or at an import: a fork cannot change them any more.
_FIXED_PREFIXES = (
    "PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_", "MALLOC_",
    "MPL", "IPYTHON", "XDG_", "LC_",
)  # fmt: skip
_FIXED_NAMES = frozenset({"GLIBC_TUNABLES", "LANG", "LANGUAGE", "TZ", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"})


def task_id(attempt_id: str, rank: int) -> str:
    """The mark that every process of a task carries (worker/protocol.py)."""
    return f"{attempt_id}.{rank}"


def task_environment(order: TaskOrder, node: Node, task_dir: str, scripts: str) -> dict[str, str]:
    """All variables of the task but the secret ones. The user's win over defaults, never over ours.

    `scripts`: the folder where a command's scripts find `gpucluster`; it stands last on their path.
    """
    env = {
        "TMPDIR": os.path.join(task_dir, protocol.SCRATCH_FOLDER),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **_without_ours(program_environment(order.program)),
        **_ours(order, node, task_dir),
    }
    if order.program.kind is ProgramKind.COMMAND:
        path = env.get("PYTHONPATH")
        env["PYTHONPATH"] = f"{path}{os.pathsep}{scripts}" if path else scripts
    return env


def secret_environment(order: TaskOrder) -> dict[str, str]:
    """The secret variables of the task. They win over the user's other ones, never over ours."""
    return _without_ours(order.secret_env)


def _ours(order: TaskOrder, node: Node, task_dir: str) -> dict[str, str]:
    return {
        **_devices(order, node),
        **_gang(order),
        protocol.ENV_TASK_ID: task_id(order.attempt_id, order.placement.rank),
        protocol.ENV_TASK_DIR: task_dir,
        "GPUCLUSTER_JOB_ID": order.job_id,
        "GPUCLUSTER_JOB_NUMBER": str(order.job_number),
        "GPUCLUSTER_JOB_NAME": order.job_name,
        "GPUCLUSTER_ATTEMPT": str(order.attempt_number),
        "GPUCLUSTER_QUEUE": order.queue,
        "GPUCLUSTER_NODE": order.placement.node,
        "GPUCLUSTER_ROLE": order.placement.role,
    }


#: Every variable that may be ours, set for this task or not. TMPDIR and the order of devices are defaults only.
OURS = frozenset(
    {
        "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT", protocol.ENV_TASK_ID, protocol.ENV_TASK_DIR, protocol.ENV_MESSAGE_FD,
        "GPUCLUSTER_JOB_ID", "GPUCLUSTER_JOB_NUMBER", "GPUCLUSTER_JOB_NAME", "GPUCLUSTER_ATTEMPT", "GPUCLUSTER_QUEUE",
        "GPUCLUSTER_NODE", "GPUCLUSTER_ROLE", "GPUCLUSTER_GPUS", "GPUCLUSTER_SIMULATED_GPUS",
    }
)  # fmt: skip


def _without_ours(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in OURS}


def program_environment(program: Program) -> dict[str, str]:
    """What is the same for every task of the program, on whatever GPUs."""
    env = {**_account(), "LANG": "C.UTF-8"}
    if program.kind is ProgramKind.COMMAND:
        env["PYTHONUNBUFFERED"] = "1"  # else what a Python script prints would come when its buffer is full
    return {**env, **program.env}


def _account() -> dict[str, str]:
    env = {"PATH": DEFAULT_PATH}
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:  # a container's uid without an entry
        return {**env, "HOME": "/"}
    name = account.pw_name
    return {
        **env,
        "HOME": account.pw_dir,
        "USER": name,
        "LOGNAME": name,
        "SHELL": account.pw_shell or "/bin/sh",
    }


def _devices(order: TaskOrder, node: Node) -> dict[str, str]:
    uuids = order.placement.gpus
    env = {
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "NVIDIA_VISIBLE_DEVICES": ",".join(uuids) or "void",
        "GPUCLUSTER_GPUS": ",".join(uuids),
    }
    simulated = {gpu.uuid for gpu in node.gpus if gpu.simulated or node.simulated}
    if simulated.intersection(uuids):
        env["GPUCLUSTER_SIMULATED_GPUS"] = "1"
    return env


def _gang(order: TaskOrder) -> dict[str, str]:
    return {
        "RANK": str(order.placement.rank),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_RANK": str(order.placement.local_rank),
        "LOCAL_WORLD_SIZE": str(order.local_world_size),
        "MASTER_ADDR": order.master_addr,
        "MASTER_PORT": str(order.master_port),
    }


def fixed_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Those variables that a fork server must be started with, since its forks cannot change them."""
    return {
        name: value for name, value in env.items() if name in _FIXED_NAMES or name.startswith(_FIXED_PREFIXES)
    }
