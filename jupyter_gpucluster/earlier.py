"""Names that a cell expects from the jobs it comes after (`--after first`). Names of a job come to the notebook when it is
bound, never from job to job; who expects otherwise is told so instead of meeting a NameError an hour later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpucluster.api.errors import GpuclusterError

from .job import Job

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient


def given_back(client: ApiClient, jobs: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """Which of `names` the cells of `jobs` assign: name -> number of the job. A job that may not be read is left out."""
    wanted = set(names)
    found: dict[str, int] = {}
    for job in jobs:
        for name in wanted.intersection(_assigned(client, job)):
            found.setdefault(name, client.job(job).number)
    return found


def _assigned(client: ApiClient, job: str) -> tuple[str, ...]:
    from .capture.cellnames import analyse

    try:
        return analyse(client.source(job)).assigns
    except (GpuclusterError, SyntaxError):  # refused when it is submitted, or no cell
        return ()


def sentence(name: str, number: int, user_ns: Mapping[str, Any]) -> str:
    """What to do about a name that an earlier job gives back."""
    handles = (
        key
        for key, value in user_ns.items()
        if isinstance(value, Job) and value.number == number and not key.startswith("_")
    )
    handle = next(handles, f"Job({number})")
    return (
        f"{name} is not defined in this notebook; job {number} gives it back, but only to the notebook: run "
        f"{handle}.bind() before you submit this cell, or let the two jobs share a file"
    )
