from __future__ import annotations

import msgspec
import pytest

from gpucluster.api.config import ClusterConfig
from gpucluster.api.environment import RESERVED_VARIABLES, refuse_reserved
from gpucluster.api.schemas import JobSubmission, RoleSubmission
from gpucluster.api.submission import (
    job_name,
    normalise_program,
    normalise_spec,
    verbatim,
)
from gpucluster.model.errors import GpuclusterError, InvalidRequest, TooLarge
from gpucluster.model.jobs import Program
from gpucluster.nodes.declared import declared_nodes
from gpucluster.nodes.settings import DEFAULT_DECLARATIONS
from gpucluster.runtimes.environment import OURS

CONFIG = ClusterConfig()
NODES = declared_nodes(DEFAULT_DECLARATIONS)


def cell(source: str = "x = 1", **fields: object) -> JobSubmission:
    return JobSubmission(kind="cell", source=source, idempotency_key="k", **fields)  # type: ignore[arg-type]


def test_name_is_as_asked_or_what_the_code_says() -> None:
    assert job_name(cell(name="  mine ")) == "mine"
    assert job_name(cell("import time\nfit(x)")) == "fit(x)"
    with pytest.raises(InvalidRequest, match="name"):
        job_name(cell(name="a\nb"))


def test_defaults_are_the_node_share_of_the_gpus() -> None:
    spec = normalise_spec(cell(roles=[RoleSubmission(gpus=2)]), CONFIG, NODES)
    role = spec.roles[0]
    assert (role.gpus, role.cpus, role.memory) == (2000, NODES[0].cpu // 4, NODES[0].memory // 4)
    assert spec.queue == CONFIG.default_queue
    assert spec.grace_s == 10.0
    asked = normalise_spec(
        cell(roles=[RoleSubmission(gpus=0, cpus=0.5, memory_bytes=5)], grace_s=0), CONFIG, NODES
    )
    assert (asked.roles[0].gpus, asked.roles[0].cpus, asked.roles[0].memory) == (0, 500, 5)
    assert asked.grace_s == 0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("field", ["gpus", "cpus"])
def test_numbers_that_are_none_are_refused(field: str, number: float) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normalise_spec(cell(roles=[RoleSubmission(**{field: number})]), CONFIG, NODES)
    assert refused.value.field == field


def test_several_roles_are_named_in_errors() -> None:
    roles = [RoleSubmission(name="ps"), RoleSubmission(name="worker", cpus=-1)]
    with pytest.raises(InvalidRequest) as refused:
        normalise_spec(cell(roles=roles), CONFIG, NODES)
    assert refused.value.field == "roles[1].cpus"


def test_verbatim_keeps_everything_but_secrets_and_content() -> None:
    submission = cell(secret_env={"TOKEN": "hidden"}, inline_blobs={"a" * 64: b"content"}, cell_id="c1")
    kept = msgspec.json.decode(verbatim(submission), type=JobSubmission)
    assert kept.secret_env == {"TOKEN": ""}
    assert kept.inline_blobs == {}
    assert (kept.source, kept.cell_id) == (submission.source, "c1")


def test_error_about_a_secret_does_not_show_it() -> None:
    with pytest.raises(TooLarge) as refused:
        normalise_program(cell(secret_env={"TOKEN": "hidden" * 100_000}))
    assert "hidden" not in str(refused.value)
    with pytest.raises(GpuclusterError) as refused:
        normalise_program(cell(secret_env={"TOKEN": "hid\0den"}))
    assert "hid" not in str(refused.value).replace("hidden", "")


def test_program_keeps_which_run_of_which_cell_it_is() -> None:
    program = normalise_program(cell(cell_id="c1", execution_count=7, fills_cell=True))
    assert (program.cell_id, program.execution_count, program.fills_cell) == ("c1", 7, True)
    plain = normalise_program(cell())
    assert (plain.execution_count, plain.fills_cell) == (None, False)


def test_program_of_an_earlier_version_is_read() -> None:
    stored = msgspec.to_builtins(normalise_program(cell(cell_id="c1")))
    del stored["execution_count"], stored["fills_cell"]
    program = msgspec.convert(stored, Program)
    assert (program.cell_id, program.execution_count, program.fills_cell) == ("c1", None, False)


def test_program_carries_names_of_secrets_only() -> None:
    program = normalise_program(cell(secret_env={"B": "1", "A": "2"}, env={"C": "3"}))
    assert program.secret_env == ("A", "B")
    assert program.env == {"C": "3"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"source": "  \n"}, "source"),
        ({"command": ["x"]}, "command"),
        ({"cwd": "a\0b"}, "cwd"),
        ({"outputs": ["1x"]}, "outputs"),
        ({"digest_budget_bytes": -1}, "digest_budget_bytes"),
        ({"sys_path": ["a\0b"]}, "sys_path"),
        ({"interpreter": "/a\x1b[2J"}, "interpreter"),
        ({"notebook_path": "a\x1b]0;owned\x07.ipynb"}, "notebook_path"),
        ({"cell_id": "a\u202eb"}, "cell_id"),
        ({"git_commit": "a\nb"}, "git_commit"),
        ({"execution_count": -1}, "execution_count"),
        ({"execution_count": 10**10}, "execution_count"),
    ],
)
def test_bad_program_is_refused_by_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normalise_program(cell(**fields))  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("field", ["env", "secret_env"])
@pytest.mark.parametrize(
    "name", ["GPUCLUSTER_TASK_ID", "GPUCLUSTER_X", "LOCAL_RANK", "NVIDIA_VISIBLE_DEVICES"]
)
def test_what_the_scheduler_sets_for_each_task_is_refused(field: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normalise_program(cell(**{field: {name: "0,1,2"}}))
    assert refused.value.field == field
    assert name in refused.value.reason
    assert "--gpus" in (refused.value.hint or "")


def test_all_that_a_task_gets_from_us_is_reserved() -> None:
    for name in OURS:
        with pytest.raises(InvalidRequest):
            refuse_reserved("env", [name])
    assert OURS >= RESERVED_VARIABLES
    refuse_reserved("env", ["TMPDIR", "CUDA_DEVICE_ORDER"])  # defaults, which a job may set otherwise


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\x07b", "a\nb", "a\u202eb", "a\x9bb", "", "x" * 201])
def test_name_with_control_characters_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job_name(cell(name=name))
    assert refused.value.field == "name"
    assert "\x1b" not in str(refused.value)


def test_name_in_any_script_is_taken() -> None:
    for name in ("学習\u3000一", "नमूना", "👩\u200d🔬 run", "é"):
        assert job_name(cell(name=name)) == name


@pytest.mark.parametrize("field", ["interpreter", "cwd", "notebook_path", "cell_id", "git_commit"])
def test_what_stands_in_views_is_bounded(field: str) -> None:
    with pytest.raises(TooLarge) as refused:
        normalise_program(cell(**{field: "/" + "x" * 5000}))
    assert refused.value.field == field
    assert len(str(refused.value)) < 200


def test_empty_command_is_refused() -> None:
    submission = JobSubmission(kind="command", source="", idempotency_key="k", command=[""])
    with pytest.raises(InvalidRequest, match="nothing to run"):
        normalise_program(submission)
