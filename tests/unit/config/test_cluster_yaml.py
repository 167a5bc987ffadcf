"""cluster.yaml: what a good one means, and that a bad one is refused with file, line and field."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpucluster.api.config import ClusterConfig, InvalidConfig, load_config
from gpucluster.model.errors import InvalidRequest
from gpucluster.model.queues import QueueSpec
from gpucluster.model.topology import Node
from gpucluster.nodes.declared import declared_nodes
from gpucluster.nodes.settings import DEFAULT_DECLARATIONS, ForeignGpus, NodeDeclaration, Source

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_config_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUCLUSTER_CONFIG", raising=False)


@pytest.fixture
def load(tmp_path: Path):
    def write_and_load(text: str) -> ClusterConfig:
        file = tmp_path / "cluster.yaml"
        file.write_text(textwrap.dedent(text).lstrip("\n"))
        return load_config(file)

    return write_and_load


@pytest.fixture
def refused(load):
    """The lines of the error; each begins with cluster.yaml:LINE: FIELD: …"""

    def lines(text: str) -> list[str]:
        with pytest.raises(InvalidConfig) as caught:
            load(text)
        return str(caught.value).splitlines()

    return lines


def specs_of(config: ClusterConfig, nodes: list[Node] | None = None) -> dict[str, QueueSpec]:
    specs, _ = config.queue_specs(nodes or declared_nodes(config.nodes.declared or DEFAULT_DECLARATIONS))
    return {spec.name: spec for spec in specs}


# ---- nothing configured


def test_without_a_file_the_built_in_cluster_has_two_queues_with_guarantees():
    config = load_config()
    specs = specs_of(config)
    assert list(specs) == ["research", "batch"]
    assert specs["research"].guaranteed["gpu"] == 10_000
    assert specs["research"].max["gpu"] == 16_000
    assert specs["batch"].guaranteed["gpu"] == 6_000
    assert specs["batch"].max is None
    assert config.default_queue == "research"
    assert config.nodes.source is Source.AUTO


def test_built_in_queues_fit_a_machine_with_a_single_gpu():
    one = declared_nodes([NodeDeclaration(name="here", gpus=1)])
    specs, notes = load_config().queue_specs(one)
    assert [spec.guaranteed["gpu"] for spec in specs] == [0, 0]
    assert notes == []


def test_empty_file_is_the_built_in_cluster(load):
    assert specs_of(load("# nothing\n")) == specs_of(load_config())


def test_variable_names_the_file_when_no_path_is_given(tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text("cluster: from-env\n")
    monkeypatch.setenv("GPUCLUSTER_CONFIG", str(tmp_path / "c.yaml"))
    assert load_config().name == "from-env"


def test_embedded_scheduler_stops_when_idle_and_a_served_one_does_not():
    config = load_config()
    assert config.idle_after_s(embedded=True) == 3600
    assert config.idle_after_s(embedded=False) is None


def test_idle_stop_of_the_file_holds_for_both(load):
    assert load("idle_stop: 30m").idle_after_s(embedded=False) == 1800
    assert load("idle_stop: never").idle_after_s(embedded=True) is None


# ---- nodes


def test_range_of_names_makes_one_node_each_with_equal_shape(load):
    config = load("""
        nodes:
          - names: "gpu[08-11].lab"
            gpus: 4
            gpu_type: A100
            gpu_memory: 40G
            sockets: 1
            switches_per_socket: 2
            nvlink: [[0, 1], [2, 3]]
            rack: r2
            cpus: 32
            memory: 256G
            extra: {license: 3}
            labels: {room: "12"}
        queues: [{name: all}]
    """)
    assert [node.name for node in config.nodes.declared] == [
        "gpu08.lab",
        "gpu09.lab",
        "gpu10.lab",
        "gpu11.lab",
    ]
    node = config.nodes.declared[0]
    assert (node.gpus, node.gpu_type, node.gpu_memory_bytes) == (4, "A100", 40 * GIB)
    assert (node.sockets, node.switches_per_socket, node.nvlink) == (1, 2, ((0, 1), (2, 3)))
    assert (node.rack, node.cpus, node.memory_bytes) == ("r2", 32, 256 * GIB)
    assert (node.extra, node.labels) == ({"license": 3}, {"room": "12"})
    assert not config.nodes.detect


def test_found_and_declared_nodes_may_be_mixed(load):
    config = load("""
        nodes:
          - detect: true
            name: here
            rack: r0
          - name: pretend
    """)
    assert config.nodes.detect
    assert config.nodes.detected_name == "here"
    assert [node.name for node in config.nodes.declared] == ["pretend"]


@pytest.mark.parametrize("text", ["nodes: detect", "nodes: [detect]"])
def test_detect_alone_means_this_machine_as_it_is(load, text):
    config = load(text)
    assert config.nodes.detect
    assert config.nodes.declared == ()
    assert config.nodes.source is not Source.AUTO


def test_gpu_types_give_declared_gpus_their_memory(load):
    config = load("""
        gpu_types:
          A100: {memory: 40G, products: ["NVIDIA A100-PCIE-40GB"]}
        nodes: [{name: n}]
        queues: [{name: q}]
    """)
    assert config.nodes.declared[0].gpu_type == "A100"
    assert config.nodes.declared[0].gpu_memory_bytes == 40 * GIB
    assert config.nodes.gpu_types[0].products == ("NVIDIA A100-PCIE-40GB",)


def test_foreign_gpus_are_withheld_unless_the_file_says_otherwise(load):
    assert load("").nodes.foreign_gpus is ForeignGpus.WITHHOLD
    assert load("policies: {foreign_gpus: ignore}").nodes.foreign_gpus is ForeignGpus.IGNORE


# ---- queues


def test_percent_is_of_the_cluster_and_cut_down_to_whole_gpus(load):
    specs = specs_of(
        load(
            """
        nodes: [{names: "n-[0-2]", gpus: 3, cpus: 10, memory: 100G}]
        queues:
          - {name: a, guaranteed: 25%, max: "50 %"}
          - {name: b, guaranteed: {gpus: 10%, cpus: 12.5%, memory: 1.5T}}
    """.replace("1.5T", "10G")
        )
    )
    assert specs["a"].guaranteed == {"gpu": 2000, "cpu": 7500, "memory": 75 * GIB}
    assert specs["a"].max == {"gpu": 4000, "cpu": 15_000, "memory": 150 * GIB}
    assert specs["b"].guaranteed == {"gpu": 0, "cpu": 3750, "memory": 10 * GIB}


def test_guaranteed_gpus_bring_their_part_of_cores_and_memory(load):
    specs = specs_of(
        load("""
        nodes: [{name: n, gpus: 8, cpus: 64, memory: 512G}]
        queues: [{name: a, guaranteed: 2}, {name: b, guaranteed: {gpus: 2, cpus: 4}}, {name: c}]
    """)
    )
    assert specs["a"].guaranteed == {"gpu": 2000, "cpu": 16_000, "memory": 128 * GIB}
    assert specs["b"].guaranteed == {"gpu": 2000, "cpu": 4000, "memory": 128 * GIB}
    assert specs["c"].guaranteed is None  # unset, which is not 0


def test_percent_does_not_change_when_a_gpu_is_broken():
    import msgspec

    from gpucluster.model.topology import GpuHealth, NodeHealth

    nodes = declared_nodes(DEFAULT_DECLARATIONS)
    bad = msgspec.structs.replace(nodes[0].gpus[0], health=GpuHealth.BAD)
    nodes[0] = msgspec.structs.replace(nodes[0], gpus=(bad, *nodes[0].gpus[1:]))
    nodes[1] = msgspec.structs.replace(nodes[1], health=NodeHealth.LOST)
    assert specs_of(load_config(), nodes) == specs_of(load_config())


def test_tree_may_be_nested_or_flat(load):
    nested = load("""
        nodes: [{name: n}]
        queues:
          - name: team
            guaranteed: 4
            children: [{name: a, guaranteed: 1}, {name: b}]
    """)
    flat = load("""
        nodes: [{name: n}]
        queues:
          - {name: a, parent: team, guaranteed: 1}
          - {name: b, parent: team}
          - {name: team, guaranteed: 4}
    """)
    assert specs_of(nested) == specs_of(flat)
    assert next(iter(specs_of(flat))) == "team"
    assert specs_of(flat)["a"].parent == "team"
    assert flat.default_queue == "a"


def test_typed_guarantee_also_counts_as_gpus_of_any_type(load):
    specs = specs_of(
        load("""
        nodes: [{name: a, gpu_type: A100}, {name: h, gpu_type: H100}]
        queues: [{name: q, guaranteed: {gpus/A100: 2, gpus/H100: 1}, max: {gpus/A100: 4}}]
    """)
    )
    guaranteed = specs["q"].guaranteed
    assert (guaranteed["gpu/A100"], guaranteed["gpu/H100"], guaranteed["gpu"]) == (2000, 1000, 3000)
    assert specs["q"].max == {"gpu/A100": 4000}


def test_access_is_inherited_and_groups_are_marked(load):
    specs = specs_of(
        load("""
        nodes: [{name: n}]
        queues:
          - name: team
            submit: {users: [ada], groups: [vision]}
            admins: [grace]
            children: [{name: a}, {name: b, submit: "*"}]
          - name: open
    """)
    )
    assert specs["a"].submit_users == ("ada", "@vision")
    assert specs["b"].submit_users == ("*",)
    assert specs["open"].submit_users == ("*",)
    assert specs["team"].admin_users == ("grace",)


def test_guarantees_above_found_hardware_are_a_note_not_an_error(load):
    config = load("""
        nodes: detect
        queues: [{name: q, guaranteed: 8}]
    """)
    specs, notes = config.queue_specs(declared_nodes([NodeDeclaration(name="here", gpus=1)]))
    assert specs[0].guaranteed["gpu"] == 8000
    assert notes == ["queues are guaranteed 8 GPUs in all, the cluster has 1 GPU"]


# ---- the rest


def test_limits_retention_places_and_levels_are_read(load, tmp_path):
    config = load("""
        cluster: vision-lab
        topology: {levels: {rack: row}}
        limits: {input: 8G, tasks_per_job: 64, log_per_task: 256M}
        retention: {steps_age: 90d, logs_age: 2d, logs_size: 1G, events_age: 12h, events_size: 10M}
        data: ./state
        listen: /run/gpucluster/api.sock
    """)
    assert config.name == "vision-lab"
    assert config.levels == ("gpu", "switch", "socket", "node", "row", "cluster")
    assert (config.limits.input_bytes, config.limits.tasks_per_job) == (8 * GIB, 64)
    assert config.limits.log_bytes_per_task == 256 << 20
    assert (config.retention.steps_age_s, config.retention.logs_age_s) == (90 * 86400, 2 * 86400)
    assert (config.retention.logs_bytes, config.retention.events_bytes) == (GIB, 10 << 20)
    assert config.retention.events_age_s == 43_200
    assert config.data_dir == str(tmp_path.resolve() / "state")
    assert config.socket_path == "/run/gpucluster/api.sock"


# ---- refusals, each with its place


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("clustr: x", "cluster.yaml:1: clustr: there is no such key. Did you mean cluster?"),
        ("cluster: a b", "cluster.yaml:1: cluster: 'a b' is not a name (letters"),
        ("cluster: a\ncluster: b", "cluster.yaml:2: cluster: this key stands twice (first in line 1)"),
        ("queues:\n\t- name: x", "cluster.yaml:2: a tab stands where YAML wants spaces"),
        ("queues: [", "cluster.yaml:1: this is not YAML"),
        ("a: 1\n---\nb: 2", "cluster.yaml:2: a second document begins here"),
        ("- x", "cluster.yaml:1: a mapping (key: value) is expected here, not a list"),
        ("nodes: detekt", "cluster.yaml:1: nodes: auto or detect is expected here, not 'detekt'"),
        ("nodes: []", "cluster.yaml:1: nodes: there is no node here"),
        ("nodes: [{gpus: 8}]", "cluster.yaml:1: nodes[0].name: a node needs either name or names"),
        ("nodes:\n- name: a\n  gpus: -1", "cluster.yaml:3: nodes[0].gpus: a whole number from 0 to 1024 is expected"),
        ("nodes:\n- name: a\n  gpus: many", "cluster.yaml:3: nodes[0].gpus: a whole number"),
        ("nodes:\n- name: a\n  memory: lots", "cluster.yaml:3: nodes[0].memory: 'lots' is not a size. Write for"),
        ('nodes:\n- names: "n[3-1]"', "cluster.yaml:2: nodes[0].names: [3-1] is not a range"),
        ('nodes:\n- names: "n[0-99999]"', "cluster.yaml:2: nodes[0].names: [0-99999] is not a range"),
        ("nodes: [{name: a}, {name: a}]", "cluster.yaml:1: nodes: there are two nodes named a"),
        ("nodes: [{name: a, nvlink: [[0, 9]]}]", "cluster.yaml:1: nodes[0].nvlink[0][1]: a whole number from 0 to 7"),
        ("nodes: [{name: a, nvlink: [[0, 1], [1, 2]]}]", "cluster.yaml:1: nodes[0].nvlink[1]: a GPU can be in one"),
        ("nodes: [{name: a, extra: {cpus: 3}}]", "cluster.yaml:1: nodes[0].extra.cpus: 'cpus' cannot name a resource"),
        ("nodes: [detect, detect]", "cluster.yaml:1: nodes[1]: this machine stands here twice"),
        (
            "gpu_types: {A100: {}}\nnodes:\n- {name: a, gpu_type: A10O}",
            "cluster.yaml:3: nodes[0].gpu_type: there is no GPU type A10O in gpu_types. Did you mean A100?",
        ),
        ("queues: []", "cluster.yaml:1: queues: there is no queue here"),
        ("queues:\n- guaranteed: 1", "cluster.yaml:2: queues[0].name: a queue needs a name"),
        ("queues:\n- name: root", "cluster.yaml:2: queues[0].name: the name root is that of the whole cluster"),
        ("queues:\n- name: a\n- name: a", "cluster.yaml:3: queues[1].name: there is another queue a (line 2)"),
        ("queues:\n- name: a\n  max: -3", "cluster.yaml:3: queues[0].max: '-3' is not a number of 0 or more"),
        ("queues:\n- name: a\n  max: 1.5", "cluster.yaml:3: queues[0].max: 1.5 is not a whole number"),
        ("queues:\n- name: a\n  max: 120%", "cluster.yaml:3: queues[0].max: 120% is more than 100%"),
        ("queues:\n- name: a\n  max: x%", "cluster.yaml:3: queues[0].max: 'x%' is not a percentage"),
        ("queues:\n- name: a\n  max: nan", "cluster.yaml:3: queues[0].max: 'nan' is not a number of 0 or more"),
        ("queues:\n- name: a\n  max: {gpu: 3}", "cluster.yaml:3: queues[0].max.gpu: there is no such resource. Did you mean"),
        (
            "nodes: [{name: n, gpu_type: A100}]\nqueues:\n- name: a\n  max: {gpus/A10: 3}",
            "cluster.yaml:4: queues[0].max.gpus/A10: there is no GPU type A10. Did you mean A100?",
        ),
        ("queues:\n- {name: a, parent: b}\n- {name: bb}", "cluster.yaml:2: queues[0].parent: there is no queue b. Did you"),
        ("queues:\n- {name: a, parent: b}\n- {name: b, parent: a}", "cluster.yaml:2: queues[0].parent: these queues"),
        (
            "queues:\n- name: a\n  children:\n  - {name: b, parent: c}\n- name: c",
            "cluster.yaml:4: queues[0].children[0].parent: queue b stands among the children of a",
        ),
        ("queues:\n- {name: a, ordering: shortest}", "cluster.yaml:2: queues[0].ordering: ordering shortest comes with"),
        ("queues:\n- {name: a, user_limit_factor: 2}", "cluster.yaml:2: queues[0].user_limit_factor: limits per user come"),
        ("queues:\n- {name: a}\ndefault_queue: b", "cluster.yaml:3: default_queue: there is no queue b"),
        (
            "queues:\n- {name: a, children: [{name: b}]}\ndefault_queue: a",
            "cluster.yaml:3: default_queue: queue a has children; jobs go to a queue without any",
        ),
        ("policies: {min_run_time: 10m}", "cluster.yaml:1: policies.min_run_time: minimum run times come with a later version"),
        ("listen: tcp://0.0.0.0:8080", "cluster.yaml:1: listen: listening on the network comes with a later version"),
        ("listen: localhost:8080", "cluster.yaml:1: listen: listening on the network comes with a later version"),
        ("listen: /" + "x" * 120, "cluster.yaml:1: listen: /xxx"),
        ("idle_stop: soon", "cluster.yaml:1: idle_stop: 'soon' is not a duration"),
        ("auth: {}", "cluster.yaml:1: auth: authentication comes with a later version"),
        ("topology: {levels: {gpu: chip}}", "cluster.yaml:1: topology.levels.gpu: there is no such key"),
        ("topology: {levels: {rack: node}}", "cluster.yaml:1: topology.levels: two levels have the same name"),
        ("limits: {tasks_per_job: 0}", "cluster.yaml:1: limits.tasks_per_job: a whole number from 1"),
    ],
)  # fmt: skip
def test_mistake_is_refused_with_its_place(refused, text, wanted):
    lines = refused(text)
    assert any(line.startswith(wanted) for line in lines), lines


NODE = "nodes: [{name: n, gpus: 8}]\n"


@pytest.mark.parametrize(
    ("queues", "wanted"),
    [
        ("- {name: a, guaranteed: 9}", "cluster.yaml:3: queues: queues are guaranteed 9 GPUs in all, the cluster has 8 GPUs"),
        ("- {name: a, guaranteed: 5}\n- {name: b, guaranteed: 50%}", "cluster.yaml:3: queues: queues are guaranteed 9 GPUs"),
        ("- name: a\n  guaranteed: 4\n  max: 2", "cluster.yaml:5: queues[0].max: 4 GPUs guaranteed are more than its own max"),
        (
            "- name: a\n  guaranteed: 4\n  children:\n  - {name: b, guaranteed: 3}\n  - {name: c, guaranteed: 2}",
            "cluster.yaml:4: queues[0].guaranteed: its children are guaranteed 5 GPUs, more than its own 4 GPUs",
        ),
        (
            "- name: a\n  max: 2\n  children:\n  - name: b\n    guaranteed: 3",
            "cluster.yaml:7: queues[0].children[0].guaranteed: 3 GPUs guaranteed are more than the maximum of a, 2 GPUs",
        ),
        (
            "- name: a\n  guaranteed: {gpus: 1, gpus/SIM-80G: 2}",
            "cluster.yaml:4: queues[0].guaranteed: 2 GPUs by type are more than the 1 GPU in all",
        ),
        ("- name: a\n  guaranteed: {memory: 1T}", "cluster.yaml:3: queues: queues are guaranteed 1024 GiB memory in all"),
    ],
)  # fmt: skip
def test_amounts_that_contradict_each_other_are_refused(refused, queues, wanted):
    lines = refused(f"{NODE}queues:\n{queues}")
    assert any(line.startswith(wanted) for line in lines), lines


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(refused):
    lines = refused("""
        cluster: "!"
        nodes: [{name: a, gpus: x}]
        queues: [{name: q, max: -1}]
        limits: {input: big}
        nonsense: 1
    """)
    assert [line.split(": ")[1] for line in lines] == [
        "cluster", "nodes[0].gpus", "queues[0].max", "limits.input", "nonsense",
    ]  # fmt: skip


def test_error_is_one_of_the_common_hierarchy_and_names_the_first_place(load):
    with pytest.raises(InvalidRequest) as caught:
        load("clustr: x")
    assert caught.value.code == "invalid_request"
    assert caught.value.field == "cluster.yaml:1: clustr"


def test_file_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InvalidConfig, match=r"nowhere\.yaml: the file cannot be read: No such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"cluster: a\n# \xff\xfe\n")
    with pytest.raises(InvalidConfig, match=r"c\.yaml:2: this is not UTF-8 text"):
        load_config(tmp_path / "c.yaml")


def test_alias_that_contains_itself_is_refused_and_does_not_hang(refused):
    lines = refused("""
        queues: &q
          - {name: a, children: *q}
    """)
    assert any("does an alias contain itself?" in line for line in lines)


def test_aliases_that_multiply_are_refused_and_do_not_hang(refused):
    levels = ["x0: &x0 [{name: a}]"]
    levels += [f"x{i}: &x{i} [{', '.join([f'{{name: b, children: *x{i - 1}}}'] * 30)}]" for i in range(1, 6)]
    lines = refused("\n".join([*levels, "queues: *x5"]))
    assert any("values stand here" in line for line in lines)


def test_enormous_file_is_refused_unread(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"#" * (1 << 20) + b"\ncluster: a")
    with pytest.raises(InvalidConfig, match="too many for a configuration file"):
        load_config(tmp_path / "c.yaml")
