"""Means along sampled edges, against a recursive reading of them; what the classifier finds, and what is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.feature_matrix.columns import features_among_columns
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.logistic_regression import decision_function, fit_one_vs_rest
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock, SubgraphLayout, shard_schema, shard_writer
from superworkflow.tasks.lib.subgraphs.shard_layout import shard_name
from superworkflow.tasks.lib.subgraphs.spec_paths import paths_of
from superworkflow.tasks.probe import STAGE
from superworkflow.tasks.probe.carry import carried, chosen, features_of
from superworkflow.tasks.probe.scale import in_row_space, scaled, scales_of
from tests.datasets import commit
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

OPS = [("cited", ["seed"], "cites"), ("by", ["seed", "cited"], "written"), ("also", ["by"], "writes")]
PAPERS, AUTHORS = 120, 30
OTHERS = "paper.named,paper.sometimes,paper.venue"
"""Columns that say the venue."""
SPEC = {
    "seed_op": {"op_name": "seed", "node_set_name": "paper"},
    "sampling_ops": [
        {"op_name": name, "input_op_names": given, "edge_set_name": edges, "sample_size": 9, "strategy": "TOP_K"}
        for name, given, edges in OPS
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Dataset:
    """Papers of two venues; a paper's own numbers say nothing of its venue, and those of its authors' papers do."""
    rng = np.random.default_rng(5)
    venue = np.arange(PAPERS) % 2
    names = [f"p{paper:03}" for paper in range(PAPERS)]
    cites = sorted({(names[u], names[v]) for u, v in rng.integers(0, PAPERS, (900, 2)) if venue[u] == venue[v]})
    writes = sorted({
        (f"a{2 * (author // 2) + venue[paper]}", names[paper])
        for paper in range(PAPERS) for author in rng.integers(0, AUTHORS, 2)
    })  # fmt: skip
    numbers = rng.normal(size=(PAPERS, 3)).astype(np.float32)
    numbers[:, 1] += 8 * venue * (rng.random(PAPERS) < 0.5)
    features = {
        "numbers": numbers, "venue": venue, "double": rng.normal(size=PAPERS), "named": [f"v{v}" for v in venue],
        "sometimes": np.where(np.arange(PAPERS) % 4 < 2, venue, -1),
    }  # fmt: skip
    nodes = {"paper": Nodes(names, features), "author": Nodes([f"a{i}" for i in range(AUTHORS)])}
    edges = {
        "cites": Edges("paper", "paper", cites), "writes": Edges("author", "paper", writes),
        "written": Edges("paper", "author", reversed_of="writes"),
    }  # fmt: skip
    return write_heterograph(tmp_path_factory.mktemp("probe") / "graph", nodes, edges)


def sampled(graph: HeteroGraph, seeds: list[int], rng: np.random.Generator) -> SubgraphBlock:
    """Half of the edges of every node that the ops reach, in the form of a block."""
    parts = []
    for seed in seeds:
        kept: dict[str, set[tuple[int, int, int]]] = {name: set() for name in graph.edge_sets}
        reached: dict[str, set[int]] = {"seed": {seed}}
        for name, inputs, edge_set in OPS:
            indptr, indices = graph.rows(edge_set)
            for node in sorted(set().union(*(reached[each] for each in inputs))):
                for place in range(indptr[node], indptr[node + 1]):
                    if rng.random() < 0.5:
                        kept[edge_set].add((node, int(indices[place]), place))
            reached[name] = {target for _, target, _ in kept[edge_set]}
        nodes = {"paper": {seed}, "author": set[int]()}
        for edge_set, edges in graph.edge_sets.items():
            nodes[edges.source] |= {source for source, _, _ in kept[edge_set]}
            nodes[edges.target] |= {target for _, target, _ in kept[edge_set]}
        order = {name: sorted(nodes[name], key=lambda n: (n != seed, n)) for name in ("author", "paper")}
        order["author"] = sorted(nodes["author"])
        ends = {
            name: sorted((order[edges.source].index(s), order[edges.target].index(t), place)
                         for s, t, place in kept[name])
            for name, edges in graph.edge_sets.items()
        }  # fmt: skip
        parts.append((list(order.values()), [np.array(each, np.int64).reshape(-1, 3).T for each in ends.values()]))

    def starts(lengths: list[int]) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def joined(values: list) -> np.ndarray:
        return np.concatenate(values).astype(np.int32)

    ids = graph.ids("paper")
    return SubgraphBlock(
        pa.array([ids[seed].as_py() for seed in seeds]), np.array(seeds, np.int32),
        [starts([len(nodes[i]) for nodes, _ in parts]) for i in range(2)],
        [joined([nodes[i] for nodes, _ in parts]) for i in range(2)],
        [starts([edges[j].shape[1] for _, edges in parts]) for j in range(3)],
        *[[joined([edges[j][row] for _, edges in parts]) for j in range(3)] for row in range(3)],
    )  # fmt: skip


def test_paths_are_every_way_from_the_seed_once():
    written = ("written",)
    wanted = [(), ("cites",), written, ("cites", "written"), ("written", "writes"), ("cites", "written", "writes")]
    assert paths_of(OPS, "seed", 64) == wanted
    assert paths_of(OPS, "seed", 3) == wanted[:3]
    twice = [(f"op{i}", [f"op{i - 1}"] * 2 if i else ["seed", "seed"], "e") for i in range(40)]
    assert paths_of(twice, "seed", 64) == [("e",) * i for i in range(41)]


def test_means_are_those_of_a_recursive_reading(graph):
    opened = HeteroGraph.open(graph)
    block = sampled(opened, [7, 0, 55, 119, 7], np.random.default_rng(1))
    paths = paths_of(OPS, "seed", 64)
    columns = features_among_columns(opened, "paper.venue", "", OTHERS).columns
    features = {name: features_of(opened, name, columns[name])[0] for name in ("paper", "author")}
    assert [values.shape for values in features["paper"]] == [(PAPERS, 1), (PAPERS, 3)]
    found = carried(opened, block, paths, "paper", features)
    numbers = opened.node_feature("paper", "numbers")
    expected = []
    for s in range(5):
        local = [block.nodes[i][block.node_starts[i][s] : block.node_starts[i][s + 1]] for i in range(2)]

        def shares(path, s=s):
            """Share of each node (of the path's end, by its place) in what reaches the seed."""
            if not path:
                return {0: 1.0}
            j = opened.edge_number(path[-1])
            low, high = block.edge_starts[j][s], block.edge_starts[j][s + 1]
            edges = list(zip(block.sources[j][low:high].tolist(), block.targets[j][low:high].tolist(), strict=True))
            after: dict[int, float] = {}
            for node, share in shares(path[:-1]).items():
                to = [target for source, target in edges if source == node]
                for target in to:
                    after[target] = after.get(target, 0.0) + share / len(to)
            return after

        row = []
        for path in paths:
            if path[-1:] != ("written",):
                given = shares(path)
                total = sum(given.values())
                terms = [share / total * numbers[local[1][place]] for place, share in given.items()]
                row.append(np.sum(terms, axis=0) if terms else np.zeros(3))
        expected.append(row)
    for place in range(4):
        assert found[2 * place + 1] == pytest.approx(np.array([row[place] for row in expected]), abs=1e-6)
    again = carried(opened, chosen(block, np.array([1, 4])), paths, "paper", features)
    assert all((one == other[[1, 4]]).all() for one, other in zip(again, found, strict=True))


@pytest.fixture(scope="module")
def subgraphs(graph, tmp_path_factory) -> Dataset:
    opened, rng = HeteroGraph.open(graph), np.random.default_rng(3)
    writer = DatasetWriter(tmp_path_factory.mktemp("probe") / "sampled")
    layout = SubgraphLayout(2, 3, (0, 1), (0, 1, 2))
    for split, seeds in (("train", range(80)), ("validation", range(80, 100)), ("test", range(100, 120))):
        parts = [sampled(opened, list(seeds)[i : i + 30], rng) for i in range(0, len(seeds), 30)]
        with writer.file(shard_name(split, 0)) as path, shard_writer(path, shard_schema(parts[0], layout)) as write:
            for block in parts:
                write(block)
    used = {"used_node_sets": [0, 1], "used_edge_sets": [0, 1, 2]}
    writer.json("sampled.json", {"spec": SPEC, "node_sets": 2, "edge_sets": 3} | used)
    return commit(writer, "sample", {"name": "sampled"}, {"subgraphs": 120}, 120)


def probe(graph: Dataset, subgraphs: Dataset, folder: Path, cpu: int = 2, **params) -> Dataset:
    inputs = {"graph": graph.uri, "subgraphs": subgraphs.uri}
    params = {"leave_out": OTHERS, **params}
    return run_stage(STAGE, params, inputs, folder, cpu)


def test_neighbours_tell_the_label(graph, subgraphs, tmp_path):
    made = probe(graph, subgraphs, tmp_path / "whole", label="paper.venue")
    stats = made.stats
    assert (stats["train_subgraphs"], stats["validation_subgraphs"], stats["test_subgraphs"]) == (80, 20, 20)
    assert (stats["labels"], stats["features"]) == (2, 16)
    assert float(stats["metrics.accuracy@test"] or 0) > 0.8
    assert float(stats["metrics.macro_f1@validation"] or 0) > 0.8
    table = made.table("predictions.parquet")
    named = {name.partition(".")[2].partition("@")[0] for name in stats if name.startswith("metrics.")}
    assert named == set(STAGE.metrics)
    right = np.array(table["label"]) == np.array(table["predicted"])
    is_test = np.array(table["split"]) == "test"
    assert right[is_test].mean() == stats["metrics.accuracy@test"]
    other = probe(graph, subgraphs, tmp_path / "one", cpu=1, label="paper.venue")
    names = ("metrics.json", "predictions.parquet")
    assert all(made.local(name).read_bytes() == other.local(name).read_bytes() for name in names)


def test_baselines_are_the_majority_and_the_seeds_own_features(graph, subgraphs, tmp_path):
    """Texts and whole numbers are features; a warning says where the sample is no better than they are."""
    stats = probe(graph, subgraphs, tmp_path / "few", label="paper.venue").stats
    assert stats["metrics.majority_accuracy@test"] == 0.5
    own = float(stats["metrics.features_accuracy@test"] or 0)
    assert 0.5 < own < float(stats["metrics.accuracy@test"] or 0)
    assert "input_warning.1" not in stats
    every = probe(graph, subgraphs, tmp_path / "every", label="paper.sometimes", leave_out="").stats
    assert every["metrics.features_accuracy@test"] == 1
    none = probe(graph, subgraphs, tmp_path / "none", label="paper.venue", leave_out=f"{OTHERS},paper.numbers").stats
    assert "the sample classifies no better than the most frequent label" in str(none["input_warning.1"])


def test_labels_are_texts_or_missing_and_splits_are_thinned(graph, subgraphs, tmp_path):
    by_name = probe(graph, subgraphs, tmp_path / "named", label="paper.named")
    by_number = probe(graph, subgraphs, tmp_path / "venue", label="paper.venue")
    assert by_name.json("metrics.json") == by_number.json("metrics.json")
    half = probe(graph, subgraphs, tmp_path / "half", label="paper.sometimes")
    assert (half.stats["train_subgraphs"], half.stats["test_subgraphs"]) == (40, 10)
    few = probe(graph, subgraphs, tmp_path / "few", label="paper.venue", train_subgraphs=31, test_subgraphs=7)
    assert (few.stats["train_subgraphs"], few.stats["test_subgraphs"]) == (31, 7)


def test_fewer_dimensions_change_no_decision():
    rng = np.random.default_rng(8)
    words = (rng.random((40, 300)) < 0.05).astype(np.float32)
    words[7], words[9] = words[3], 0
    narrow = rng.normal(size=(40, 2)).astype(np.float32) * 5
    rows = scaled([words, narrow], scales_of([words[:25], narrow[:25]]))
    lengths = np.linalg.norm(rows[:, :300], axis=1)
    assert lengths[np.arange(40) != 9] == pytest.approx(1)
    assert lengths[9] == 0
    assert np.square(rows[:25, 300:]).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    rows[7, 300:] = rows[3, 300:]  # a row that adds no dimension
    train, test = in_row_space(rows[:25], [rows[25:]])
    assert train.shape == (25, 24)
    assert train @ train.T == pytest.approx(rows[:25] @ rows[:25].T, abs=1e-5)
    assert test @ train.T == pytest.approx(rows[25:] @ rows[:25].T, abs=1e-5)
    targets = rng.random((25, 3)) < 0.4
    whole = decision_function(rows[25:], fit_one_vs_rest(rows[:25], targets, C=50))
    assert decision_function(test, fit_one_vs_rest(train, targets, C=50)) == pytest.approx(whole, abs=1e-3)
    many = rows[:, 290:]
    assert in_row_space(many, [])[0] is many


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", "no label is named"),
        ("paper.vneue", "no such feature.*paper.venue"),
        ("author.venue", "no such feature"),
        ("paper.numbers", "a whole number or text"),
    ],
)
def test_refusals(graph, subgraphs, tmp_path, label, message):
    with pytest.raises(UserError, match=message):
        probe(graph, subgraphs, tmp_path / "out", label=label)
