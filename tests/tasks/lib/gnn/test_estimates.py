"""Estimates of the stages of gnn from the stats of a graph."""

from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.gnn.estimates import (
    edge_values,
    feature_values,
    mapped_graph,
    mean_values,
    stored_features,
    workers_of,
)

TYPED = {
    "nodes": 30, "edges": 100, "edge_sets": 2, "bytes": 4 * 100 + 20 * 30 + 1000,
    "nodes.paper": 20, "nodes.author": 10, "values.nodes.paper": 8, "values.nodes.author": 0,
    "edges.writes": 60, "edges.writes.source": "author", "edges.writes.target": "paper",
    "edges.written": 40, "edges.written.source": "paper", "edges.written.target": "author",
}  # fmt: skip


def test_counts_values_by_set():
    assert feature_values(TYPED) == 20 * 8
    assert mean_values(TYPED) == 10 * 8  # of papers, for their authors; authors have no features
    assert stored_features(TYPED) == 1000
    assert mapped_graph(TYPED) == 1000 + 4 * 100 + 8 * 30


def test_counts_numbers_of_edges_that_can_be_weights():
    """A graph in parts has them once more."""
    facts = {**TYPED, "values.edges.writes": 2, "values.edges.written": 0}
    assert (edge_values(facts), edge_values(TYPED), feature_values(facts)) == (120, 0, 160)
    stage = load_stage("shard")
    sizes = [stage.estimate(stage.params(), {"graph": each}, Resources()).output_bytes for each in (facts, TYPED)]
    assert sizes[0] - sizes[1] == 4 * 120


def test_without_facts_of_sets_every_stored_byte_is_one_of_features():
    plain = {name: TYPED[name] for name in ("nodes", "edges", "edge_sets", "bytes")}
    assert feature_values(plain) == 250
    assert mean_values(plain) == 500
    assert mean_values({}) == feature_values({}) == mapped_graph({}) == 0


def test_sets_that_are_known_by_number_count_as_well():
    """Names that are no plain words stand at the ends of edges alone."""
    names = {"nodes.paper": "nodes.0", "values.nodes.paper": "values.nodes.0"}
    facts = {names.get(name, name): "a paper" if value == "paper" else value for name, value in TYPED.items()}
    assert feature_values(facts) == 20 * 8
    assert mean_values(facts) == 2 * 20 * 8
    assert mean_values({"edges": 7, "edges.source": 7}) == 0  # an edge set of that name


def test_workers_hold_what_the_stage_in_process_maps():
    group = Resources.model_validate({"cpu": 0.5, "workers": {"count": 2, "cpu": 1, "memory": "2Gi"}})
    assert workers_of(group) == 2
    assert workers_of(Resources()) == 1
    facts = {
        "nodes": 10**6, "edges": 3 * 10**7, "edge_sets": 1, "bytes": 376 * 10**6, "nodes.node": 10**6,
        "values.nodes.node": 128, "edges.edge.source": "node", "edges.edge.target": "node",
    }  # fmt: skip
    for name in ("aggregate", "train", "infer"):
        stage = load_stage(name)
        alone = stage.estimate(stage.params(), {"graph": facts}, Resources())
        each = stage.estimates["workers"](stage.params(), {"graph": facts}, group)
        assert each.memory_bytes > alone.memory_bytes, name
        assert each.output_bytes == alone.output_bytes
    for name, params, network in (
        ("train", {"weight": "weight", "weighted": "draws"}, {}),
        ("infer", {}, {"weighted": 1}),
    ):
        stage = load_stage(name)
        plain = stage.estimates["workers"](stage.params(), {"graph": facts, "network": {}}, group)
        heavy = stage.estimates["workers"](stage.params(**params), {"graph": facts, "network": network}, group)
        assert heavy.memory_bytes - plain.memory_bytes == 4 * 3 * 10**7 // 2


def test_steps_are_those_of_the_nodes_that_have_labels():
    """If their number is unknown, all nodes count."""
    stage, graph = load_stage("train"), {"nodes": 10_000_000, "edges": 300_000_000, "bytes": 1 << 30}
    params = stage.params(train_share=0.1, epochs=5)
    times = [stage.estimate(params, {"graph": graph | more}, Resources()).cpu_s for more in ({"labelled": 10**6}, {})]
    assert 9 < times[1] / times[0] < 10
