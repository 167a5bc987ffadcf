"""From a submission to a job: every input is checked here, at the edge, and a bad one is named by its field.

`normalise` turns what was sent into a JobSpec (for the policy) and a Program (for the worker). `Submissions` brings a
job in: once per idempotency key, with its blobs there and its secrets written before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..engine.events import JobSubmitted
from ..engine.protocols import Clock
from ..model.errors import (
    Conflict,
    GpuclusterError,
    InvalidRequest,
    NotFound,
    NotSupported,
    TooLarge,
    Unavailable,
    VersionMismatch,
)
from ..model.ids import make_id
from ..model.jobs import ENDED_STATES, Job, JobSpec, Program, ProgramKind, Requeue, Share, TaskRole
from ..model.plain import has_controls
from ..model.principals import Principal
from ..model.resources import WHOLE_CPU, WHOLE_GPU
from ..model.topology import Node
from ..policy.defaults import fill_defaults
from .config import ClusterConfig
from .directory import JobDirectory
from .environment import refuse_reserved
from .naming import default_name
from .schemas import PROTOCOL_MAX, PROTOCOL_MIN, DryRun, JobSubmission, RoleSubmission
from .views import Views
from .visibility import Visibility

if TYPE_CHECKING:
    from ..engine.driver import EngineDriver
    from ..store import Store

MAX_ROLES = 64
MAX_GPUS_PER_TASK = 100_000
MAX_CPUS_PER_TASK = 100_000
MAX_MEMORY_BYTES = 1 << 60
MAX_AFTER = 100
MAX_NAME = 200
MAX_NAMES = 10_000
MAX_GPU_TYPES = 64
#: Characters of what stands in views of a job; paths as long as the system takes them.
MAX_CHARACTERS = {"interpreter": 4096, "cwd": 4096, "notebook_path": 4096, "cell_id": 200, "git_commit": 200}
MAX_SOURCE_BYTES = 4 << 20
MAX_EXECUTION_COUNT = 1_000_000_000
#: The kernel's limit for one string of an environment or a command line (MAX_ARG_STRLEN), and a sane sum of them all.
MAX_STRING_BYTES = 128 << 10
MAX_STRINGS_BYTES = 1 << 20
#: How long a refused submission waits for the engine to be rebuilt, to learn whether it was stored all the same.
REBUILD_PATIENCE_S = 1.0

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ROLE_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")

log = logging.getLogger("gpucluster.api")


class Submissions:
    """`submit` may be called any number of times with one idempotency key, also at once: it gives the one job."""

    def __init__(
        self,
        *,
        config: ClusterConfig,
        driver: EngineDriver,
        store: Store,
        directory: JobDirectory,
        visibility: Visibility,
        views: Views,
        clock: Clock,
    ) -> None:
        self._config = config
        self._driver = driver
        self._store = store
        self._directory = directory
        self._visibility = visibility
        self._views = views
        self._clock = clock
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    async def submit(self, submission: JobSubmission, owner: Principal) -> tuple[Job, bool]:
        """The job, and whether it is new. It is in the store when this returns. Raises what is wrong with the submission,
        Conflict when the key stands for another one, and Unavailable; then nothing was submitted.
        """
        _check_envelope(submission)
        async with self._one_at_a_time(owner.id, submission.idempotency_key):
            known = await self._known(submission, owner)
            if known is not None:
                return known, False
            return await self._submit_new(submission, owner), True

    async def dry_run(self, submission: JobSubmission, owner: Principal) -> DryRun:
        """What the submission would lead to now. Its blobs need not be there; they are counted."""
        _check_envelope(submission)
        spec, _ = self._normalise(submission)
        after, _ = await self._dependencies(submission.after, owner)
        spec = msgspec.structs.replace(spec, after=after)
        missing = 0
        if submission.inputs is not None:
            missing = submission.inputs.total_bytes
            self._check_budget(missing)
        await self._driver.settled()
        plan = self._driver.engine.dry_run(spec, owner, self._clock.now_us())
        return DryRun(
            queue=spec.queue,
            roles=[msgspec.to_builtins(role) for role in spec.roles],
            starts_now=plan.starts_now,
            sentence=plan.sentence,
            placement=self._views.planned(plan.placement),
            uploads_bytes=missing,
        )

    # ---- steps of a submission

    async def _known(self, submission: JobSubmission, owner: Principal) -> Job | None:
        """The job of this idempotency key. Raises Conflict when something else was submitted with it."""
        key = submission.idempotency_key
        await self._driver.settled()
        job_id = self._driver.engine.state.by_key.get((owner.id, key))
        if job_id is None:
            stored = await asyncio.to_thread(self._store.find_idempotent, owner.id, key)
            if stored is None:
                return None
            job_id = stored.id
        before = await asyncio.to_thread(self._store.submission, job_id)
        if not _is_same(before, verbatim(submission)):
            raise Conflict(
                "another job was submitted with this key",
                field="idempotency_key",
                hint="Take a new key for each new job.",
            )
        return await self._directory.find(job_id)

    async def _submit_new(self, submission: JobSubmission, owner: Principal) -> Job:
        spec, program = self._normalise(submission)
        after, ended = await self._dependencies(submission.after, owner)
        spec = msgspec.structs.replace(spec, after=after)
        self._driver.engine.check_admission(spec, owner)
        await self._bring_in_blobs(submission, owner)
        now_us = self._clock.now_us()
        job = Job(
            id=make_id(now_us, os.urandom(10)),
            number=0,  # counted by the engine
            owner=owner,
            spec=spec,
            program=program,
            submitted_us=now_us,
            queued_us=now_us,
            idempotency_key=submission.idempotency_key,
        )
        event = JobSubmitted(
            job=job,
            verbatim=verbatim(submission),
            ended_dependencies={other.id: other.state for other in ended},
            dependency_numbers={other.id: other.number for other in ended},
        )
        async with self._secrets(job, submission.secret_env):
            await self._driver.submit(event)
        return job

    def _normalise(self, submission: JobSubmission) -> tuple[JobSpec, Program]:
        nodes = list(self._driver.engine.state.nodes.values())
        return normalise_spec(submission, self._config, nodes), normalise_program(submission)

    async def _dependencies(
        self, references: Iterable[str], caller: Principal
    ) -> tuple[tuple[str, ...], list[Job]]:
        """Long ids of the jobs to wait for, and of these the jobs that have ended. Raises InvalidRequest."""
        ids: dict[str, None] = {}
        ended: list[Job] = []
        for reference in references:
            try:
                job = await self._directory.find(reference)
                self._visibility.require_seen(caller, job)
            except NotFound:
                raise InvalidRequest("after", f"there is no job {reference!r}") from None
            ids[job.id] = None
            if job.state in ENDED_STATES:
                ended.append(job)
        return tuple(ids), ended

    async def _bring_in_blobs(self, submission: JobSubmission, owner: Principal) -> None:
        """Take in what came along, then see that all inputs are there and are the owner's."""
        blobs = self._store.blobs
        if submission.inline_blobs:
            await asyncio.to_thread(blobs.put_many, submission.inline_blobs, owner.id)
        if submission.inputs is None:
            return
        wanted = list(dict.fromkeys([submission.inputs.pickle, *submission.inputs.buffers]))
        missing = await asyncio.to_thread(blobs.missing, wanted, owner.id)
        if missing:
            raise InvalidRequest(
                "inputs",
                f"{len(missing)} of {len(wanted)} blobs were not uploaded, the first is {missing[0]}",
                "Upload them (PUT /v1/blobs/…), then submit again.",
            )
        sizes = await asyncio.to_thread(blobs.sizes, wanted)
        self._check_budget(sum(sizes.values()))

    def _check_budget(self, total_bytes: int) -> None:
        limit = self._config.limits.input_bytes
        if total_bytes > limit:
            raise TooLarge(
                f"the inputs have {total_bytes / (1 << 30):.2f} GiB, the limit is {limit / (1 << 30):.2f} GiB",
                field="inputs",
                hint="Send less, or have the job read large data from a file.",
            )

    @contextlib.asynccontextmanager
    async def _secrets(self, job: Job, values: dict[str, str]) -> AsyncIterator[None]:
        """Write them before the job is committed; take them back when it surely is not. Where that cannot be known now
        (a commit may be durable although it reported a failure), they stay for the job, or for the sweep at start.
        """
        if not values:
            yield
            return
        await asyncio.to_thread(self._store.secrets.write, job.id, values)
        try:
            yield
        except GpuclusterError as error:
            if not isinstance(error, Unavailable) or await self._is_surely_unknown(job):
                with contextlib.suppress(Unavailable):
                    await asyncio.to_thread(self._store.secrets.remove, job.id)
            raise

    async def _is_surely_unknown(self, job: Job) -> bool:
        """Whether the store, asked after the engine was rebuilt from it, has no such job."""
        try:
            await self._driver.settled(REBUILD_PATIENCE_S)
            await asyncio.to_thread(self._store.get_job, job.id)
        except NotFound:
            return True
        except GpuclusterError:
            return False
        return False

    @contextlib.asynccontextmanager
    async def _one_at_a_time(self, owner_id: str, key: str) -> AsyncIterator[None]:
        """Requests with the same key go one after the other, so that the second finds the job of the first."""
        name = (owner_id, key)
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)


def verbatim(submission: JobSubmission) -> bytes:
    """What is kept of a submission as it came: all but the content of blobs and the values of secrets."""
    hidden = dict.fromkeys(sorted(submission.secret_env), "")
    return msgspec.json.encode(msgspec.structs.replace(submission, inline_blobs={}, secret_env=hidden))


def _is_same(before: bytes, now: bytes) -> bool:
    """Compared field by field: what an older version stored lacks the fields of today, at their defaults."""
    if before == now:
        return True
    try:
        return msgspec.json.decode(before, type=JobSubmission) == msgspec.json.decode(now, type=JobSubmission)
    except msgspec.MsgspecError:
        return False


# ---- checks


def _check_envelope(submission: JobSubmission) -> None:
    if not PROTOCOL_MIN <= submission.protocol <= PROTOCOL_MAX:
        raise VersionMismatch(
            f"the submission is of protocol {submission.protocol}, this scheduler takes {PROTOCOL_MIN} to {PROTOCOL_MAX}",
            field="protocol",
            hint="Install the same version of jupyter-gpucluster on both sides.",
        )
    if not _KEY.fullmatch(submission.idempotency_key):
        raise InvalidRequest("idempotency_key", "1 to 200 visible ASCII characters are needed")


def normalise_spec(submission: JobSubmission, config: ClusterConfig, nodes: Sequence[Node]) -> JobSpec:
    """The job for the policy, with every default filled in. Raises InvalidRequest for what cannot be turned into one;
    whether its values may be is for policy/admission.py to say.

    Fields are named as people know them, by the option: `tasks` for a role's count.
    """
    if len(submission.after) > MAX_AFTER:
        raise InvalidRequest("after", f"a job waits for at most {MAX_AFTER} others")
    spec = JobSpec(
        name=job_name(submission),
        queue=submission.queue or config.default_queue,
        roles=_roles(submission.roles, config.limits.tasks_per_job, nodes),
        tier=submission.tier,
        priority=submission.priority,
        time_limit_s=submission.time_limit_s,
        retries=submission.retries,
        requeue=Requeue(submission.requeue),
        share=Share(submission.share),
    )
    return spec if submission.grace_s is None else msgspec.structs.replace(spec, grace_s=submission.grace_s)


def _roles(roles: list[RoleSubmission], limit: int, nodes: Sequence[Node]) -> tuple[TaskRole, ...]:
    if not 1 <= len(roles) <= MAX_ROLES:
        raise InvalidRequest("roles", f"a job has 1 to {MAX_ROLES} task roles, not {len(roles)}")
    for index, role in enumerate(roles):
        _check_range(_field(index, "tasks", roles), role.count, 1, limit)
    if sum(role.count for role in roles) > limit:
        raise InvalidRequest("roles", f"a job has at most {limit} tasks in all")
    return tuple(_role(index, role, roles, nodes) for index, role in enumerate(roles))


def _field(index: int, name: str, roles: list[RoleSubmission]) -> str:
    """`gpus` for the usual one role, `roles[1].gpus` where there are several."""
    return name if len(roles) == 1 else f"roles[{index}].{name}"


def _role(index: int, role: RoleSubmission, roles: list[RoleSubmission], nodes: Sequence[Node]) -> TaskRole:
    if not _ROLE_NAME.fullmatch(role.name):
        raise InvalidRequest(
            _field(index, "name", roles), f"{role.name!r}: letters, digits, _ and -, at most 40"
        )
    field = _field(index, "gpus", roles)
    _check_range(field, role.gpus, 0, MAX_GPUS_PER_TASK)
    if role.gpus != int(role.gpus):
        raise NotSupported(field, "GPU shares come with a later version", "Ask for whole GPUs, or for 0.")
    if role.cpus is not None:
        _check_range(_field(index, "cpus", roles), role.cpus, 0, MAX_CPUS_PER_TASK)
    if role.memory_bytes is not None:
        _check_range(_field(index, "memory", roles), role.memory_bytes, 0, MAX_MEMORY_BYTES)
    gpus = int(role.gpus) * WHOLE_GPU
    gpu_types = tuple(dict.fromkeys(role.gpu_types))
    if len(gpu_types) > MAX_GPU_TYPES:
        raise TooLarge(f"more than {MAX_GPU_TYPES} types", field=_field(index, "gpu-type", roles))
    for gpu_type in gpu_types:
        _check_shown(_field(index, "gpu-type", roles), gpu_type, MAX_NAME)
    defaults = fill_defaults(nodes, gpus, gpu_types)
    return TaskRole(
        name=role.name,
        count=role.count,
        gpus=gpus,
        cpus=defaults.cpus if role.cpus is None else round(role.cpus * WHOLE_CPU),
        memory=defaults.memory if role.memory_bytes is None else role.memory_bytes,
        gpu_types=gpu_types,
    )


def normalise_program(submission: JobSubmission) -> Program:
    """What the worker runs. Raises InvalidRequest or TooLarge."""
    if len(submission.source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise TooLarge(f"the source is over {MAX_SOURCE_BYTES >> 20} MiB", field="source")
    if submission.kind == "command":
        _check_command(submission.command)
    elif submission.command:
        raise InvalidRequest("command", f"a {submission.kind} has none")
    elif not submission.source.strip():
        raise InvalidRequest("source", "there is nothing to run")
    for field in ("interpreter", "cwd"):
        path = getattr(submission, field)
        if path is not None and not os.path.isabs(path):
            raise InvalidRequest(field, f"{path[:MAX_NAME]!r} is not an absolute path")
    _check_strings("sys_path", submission.sys_path)
    for field, most in MAX_CHARACTERS.items():
        _check_shown(field, getattr(submission, field), most)
    _check_environment(submission)
    _check_names(submission)
    _check_range("digest_budget_bytes", submission.digest_budget_bytes, 0, MAX_MEMORY_BYTES)
    if submission.execution_count is not None:
        _check_range("execution_count", submission.execution_count, 0, MAX_EXECUTION_COUNT)
    return Program(
        kind=ProgramKind(submission.kind),
        source=submission.source,
        command=tuple(submission.command),
        interpreter=submission.interpreter,
        cwd=submission.cwd,
        sys_path=tuple(submission.sys_path),
        env=submission.env,
        secret_env=tuple(sorted(submission.secret_env)),
        inputs=submission.inputs,
        outputs=tuple(submission.outputs),
        mutable_inputs=tuple(submission.mutable_inputs),
        digest_budget_bytes=submission.digest_budget_bytes,
        notebook_path=submission.notebook_path,
        cell_id=submission.cell_id,
        execution_count=submission.execution_count,
        fills_cell=submission.fills_cell,
        git_commit=submission.git_commit,
    )


def _check_command(command: list[str]) -> None:
    if not command or not command[0]:
        raise InvalidRequest("command", "there is nothing to run")
    _check_strings("command", command)


def _check_shown(field: str, text: str | None, most: int) -> None:
    """What stands in views and messages."""
    if text is None:
        return
    if len(text) > most:
        raise TooLarge(f"it has {len(text)} characters; {most} are kept", field=field)
    if has_controls(text):
        raise InvalidRequest(field, f"{text[:MAX_NAME]!r} has control characters in it")


def _check_strings(field: str, strings: Iterable[str]) -> None:
    """What the kernel cannot pass on to a process is refused before anything starts."""
    total = 0
    for text in strings:
        size = len(text.encode("utf-8", "surrogateescape")) + 1
        if "\0" in text:
            raise InvalidRequest(field, f"{text[:40]!r} has a NUL character in it")
        if size > MAX_STRING_BYTES:
            raise TooLarge(f"{text[:40]!r}… is over {MAX_STRING_BYTES >> 10} KiB", field=field)
        total += size
    if total > MAX_STRINGS_BYTES:
        raise TooLarge(f"all together is over {MAX_STRINGS_BYTES >> 10} KiB", field=field)


def _check_environment(submission: JobSubmission) -> None:
    for field in ("env", "secret_env"):
        variables: dict[str, str] = getattr(submission, field)
        refuse_reserved(field, variables)
        for name in variables:
            if not _ENV_NAME.fullmatch(name):
                raise InvalidRequest(field, f"{name!r} is not a name for an environment variable")
        try:
            _check_strings(field, (f"{name}={value}" for name, value in variables.items()))
        except GpuclusterError as error:
            if field == "secret_env":  # the text would show the value
                raise TooLarge("a secret is too long or has a NUL character in it", field=field) from None
            raise error
    both = sorted(set(submission.env) & set(submission.secret_env))
    if both:
        raise InvalidRequest("secret_env", f"{both[0]} stands in env as well")


def _check_names(submission: JobSubmission) -> None:
    known = set(submission.inputs.names) if submission.inputs else set()
    for field, names in (
        ("outputs", submission.outputs),
        ("mutable_inputs", submission.mutable_inputs),
        ("inputs.names", sorted(known)),
    ):
        if len(names) > MAX_NAMES:
            raise TooLarge(f"more than {MAX_NAMES} names", field=field)
        for name in names:
            if not name.isidentifier():
                raise InvalidRequest(field, f"{name!r} is not a Python name")
    unknown = [name for name in submission.mutable_inputs if name not in known]
    if unknown:
        raise InvalidRequest("mutable_inputs", f"{unknown[0]} is not among the inputs")
    if submission.inputs is not None and submission.kind == "command":
        raise InvalidRequest("inputs", "a command takes none")


def _check_range(field: str, value: float, low: float, high: float) -> None:
    """`low` ≤ value ≤ `high`. NaN is in no range."""
    if not low <= value <= high:
        raise InvalidRequest(field, f"{value:g} is not possible: {low:g} or more, at most {high:g}")


def job_name(submission: JobSubmission) -> str:
    """As asked, else what naming.py makes of the code or command. Raises InvalidRequest."""
    if submission.name is None:
        return default_name(submission.kind, submission.source, submission.command)
    name = submission.name.strip()
    if not name or len(name) > MAX_NAME or has_controls(name):
        raise InvalidRequest(
            "name", f"1 to {MAX_NAME} characters are needed, none of them a control character"
        )
    return name
