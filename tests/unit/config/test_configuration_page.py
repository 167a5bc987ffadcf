"""docs/administrator/configuration.md and the shipped examples keep up with the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpucluster.api import config, config_nodes, config_queues
from gpucluster.api.config import load_config
from gpucluster.nodes.declared import declared_nodes

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "administrator" / "configuration.md").read_text()

#: Section of the page -> the keys that its tables must explain, and no others.
SECTIONS = {
    "The cluster": config.TOP_KEYS,
    "Nodes": {*config_nodes.DECLARED_KEYS, *config_nodes.DETECTED_KEYS},
    "GPU types": config_nodes.GPU_TYPE_KEYS,
    "Queues": config_queues.QUEUE_KEYS,
    "Policies": config.POLICY_KEYS,
    "Limits": config.LIMIT_KEYS,
    "Retention": config.RETENTION_KEYS,
}


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("title", SECTIONS)
def test_page_explains_every_key_and_names_none_that_does_not_exist(title):
    explained = set(re.findall(r"^\| `(\w+)` \|", section(title), flags=re.MULTILINE))
    assert explained == set(SECTIONS[title])


def test_defaults_on_the_page_are_those_of_the_code():
    limits, retention = config.Limits(), config.Retention()
    assert limits.input_bytes == 4 << 30
    assert limits.tasks_per_job == 1024
    assert limits.log_bytes_per_task == 1 << 30
    assert [retention.steps_age_s / 86400, retention.logs_age_s / 86400, retention.events_age_s / 86400] == [
        365,
        30,
        7,
    ]
    assert (retention.logs_bytes, retention.events_bytes) == (20 << 30, 256 << 20)
    for shown in ("`4G`", "1024", "`1G`", "`365d`", "`30d`", "`20G`", "`7d`", "`256M`"):
        assert f"| {shown} |" in section("Limits") + section("Retention")


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.yaml")))
def test_shipped_example_is_valid(example):
    loaded = load_config(ROOT / "examples" / example)
    nodes = declared_nodes(loaded.nodes.declared)
    specs, notes = loaded.queue_specs(nodes)
    assert specs
    assert notes == []
