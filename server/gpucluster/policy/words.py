"""Amounts and requests in words, for explanations and refusals."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.jobs import JobState, TaskRole
from ..model.resources import CPU, GPU, MEMORY, WHOLE_CPU, WHOLE_GPU

_GIB = 1 << 30
#: What a job that has ended has done: "has …".
ENDED_WORDS = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "been cancelled",
}


def number(amount: float) -> str:
    """Without needless decimals: 4, 2.5."""
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def counted(count: float, thing: str) -> str:
    """E.g. "1 GPU", "3 GPUs"."""
    return f"{number(count)} {thing if count == 1 else thing + 's'}"


def memory_text(amount: int) -> str:
    """Bytes as people write them: "8 GiB", "512 MiB"."""
    for unit, size in (("TiB", 1 << 40), ("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(amount) >= size:
            return f"{round(amount / size, 1):g} {unit}"
    return f"{amount} B"


def amount_text(resource: str, amount: int) -> str:
    """An amount of a named resource: "2 GPUs", "4 A100 GPUs", "1.5 CPU cores", "8 GiB of memory"."""
    if resource == GPU:
        return counted(amount / WHOLE_GPU, "GPU")
    if resource.startswith(f"{GPU}/"):
        return counted(amount / WHOLE_GPU, f"{resource.removeprefix(f'{GPU}/')} GPU")
    if resource == CPU:
        return counted(amount / WHOLE_CPU, "CPU core")
    if resource == MEMORY:
        return f"{memory_text(amount)} of memory"
    return f"{amount} {resource}"


def types_text(gpu_types: Sequence[str]) -> str:
    """E.g. "A100", "A100 or V100"; empty for any type."""
    return " or ".join(gpu_types)


def gpus_text(count: int, gpu_types: Sequence[str] = ()) -> str:
    """E.g. "4 GPUs", "4 A100 or V100 GPUs"."""
    return counted(count, f"{types_text(gpu_types)} GPU".strip())


def role_text(role: TaskRole) -> str:
    """What one task of the role asks for: "2 A100 GPUs, 8 CPU cores and 16 GiB of memory"."""
    parts = []
    if role.gpus:
        parts.append(gpus_text(role.gpus // WHOLE_GPU, role.gpu_types))
    if role.cpus:
        parts.append(amount_text(CPU, role.cpus))
    if role.memory:
        parts.append(amount_text(MEMORY, role.memory))
    return joined(parts) or "nothing"


def joined(parts: Sequence[str]) -> str:
    """E.g. "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def duration_text(seconds: float) -> str:
    """E.g. "4 s", "2 min", "1.5 h"."""
    if seconds < 100:
        return f"{max(0, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 6000 else f"{number(round(seconds / 3600, 1))} h"
