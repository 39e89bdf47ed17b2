"""The holdout stage: what it hides, what it keeps, and that nothing is in two places."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.holdout import STAGE, HoldoutParams, estimate
from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.tasks.index_helpers import Graph, read, run_index, run_stage

PAIRS = ("positives.npy", "negatives.npy", "train_positives.npy", "train_negatives.npy")


def holdout(graph: Graph, folder: Path, cpu: int = 2, **params) -> Dataset:
    return run_stage(STAGE, params, {"graph": graph.dataset.uri}, folder, cpu)


def arc_set(graph: Graph) -> set[tuple[int, int]]:
    matrix = graph.matrix().tocoo()
    return set(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))


def pair_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in pairs}


@pytest.fixture(scope="module", params=[(False, False), (False, True), (True, False), (True, True)], ids=str)
def whole(request, tmp_path_factory) -> Graph:
    directed, weighted = request.param
    path = tmp_path_factory.mktemp("graph") / "g.csv"
    generate("chung-lu", 900, 4000, path, 5)
    if weighted:
        rng = np.random.default_rng(0)
        lines = path.read_text().splitlines()[1:]
        path.write_text(
            "".join(f"{line},{w:.6f}\n" for line, w in zip(lines, rng.random(len(lines)) + 0.1, strict=True))
        )
    return run_index(path, directed=directed, header="auto" if not weighted else False, weighted=weighted)


def test_split(whole, tmp_path):
    dataset = holdout(whole, tmp_path / "h", max_pairs=700, seed=4)
    stats, directed = dataset.stats, whole.stats["directed"]
    residual = read(dataset)
    positives, negatives, train_positives, train_negatives = (dataset.array(name) for name in PAIRS)
    before, after = arc_set(whole), arc_set(residual)

    def arcs(pairs):
        found = pair_set(pairs)
        assert len(found) == len(pairs)
        assert all(u != v for u, v in found)
        if directed:
            return found
        assert all(u < v for u, v in found)
        return found | {(v, u) for u, v in found}

    edges = whole.stats["edges"]
    assert len(positives) == len(negatives) == round(edges * 0.5) == stats["positives"] == stats["negatives"]
    assert stats["edges"] == edges - len(positives)
    assert len(train_positives) == len(train_negatives) == 700 == stats["train_pairs"]
    assert arcs(positives) | after == before
    assert not arcs(positives) & after
    assert arcs(train_positives) <= after
    assert not (arcs(negatives) | arcs(train_negatives)) & before
    assert not arcs(negatives) & arcs(train_negatives)

    assert residual.labels == whole.labels
    kind = nx.DiGraph if directed else nx.Graph
    graphs = [nx.from_scipy_sparse_array(graph.matrix(), create_using=kind) for graph in (whole, residual)]
    parts = [list((nx.weakly_connected_components if directed else nx.connected_components)(graph)) for graph in graphs]
    assert sorted(map(sorted, parts[0])) == sorted(map(sorted, parts[1]))
    assert stats["components"] == len(parts[0])
    assert stats["removable"] == edges - len(whole.labels) + len(parts[0])
    np.testing.assert_array_equal(residual.degree, [degree for _, degree in sorted(graphs[1].degree())])
    assert stats.keys() >= whole.stats.keys()
    if whole.weights is not None:
        weight = whole.matrix()
        assert all(weight[u, v] == w for u, v, w in zip(*_coo(residual), strict=True))


def _coo(graph: Graph):
    matrix = graph.matrix().tocoo()
    return matrix.row, matrix.col, matrix.data


def test_the_same_for_any_threads_and_another_for_another_seed(whole, tmp_path):
    one, two, other = (
        [(file.path, file.sha256) for file in holdout(whole, tmp_path / name, cpu, seed=seed).manifest.files]
        for name, cpu, seed in (("a", 1, 0), ("b", 2, 0), ("c", 2, 1))
    )
    assert one == two
    assert all(x != y for x, y in zip(one, other, strict=True))


def test_pairs_are_uniform(tmp_path):
    """Chi-square over 400 splits of one small graph: each edge outside no bridge, and each non-edge, alike."""
    path = tmp_path / "ring.txt"
    path.write_text("".join(f"{i} {(i + step) % 10}\n" for i in range(10) for step in (1, 2)))
    graph = run_index(path)
    hidden, unjoined = np.zeros((10, 10)), np.zeros((10, 10))
    for seed in range(400):
        dataset = holdout(graph, tmp_path / f"h{seed}", fraction=0.25, seed=seed, max_pairs=1)
        for counts, name in ((hidden, "positives.npy"), (unjoined, "negatives.npy")):
            np.add.at(counts, tuple(dataset.array(name).T), 1)
    observed = unjoined[np.triu(graph.matrix().toarray() == 0, 1)]
    assert len(observed) == 25
    expected = 400 * 5 / 25
    # 24 degrees of freedom, 99.9% point; without replacement the statistic is smaller.
    assert ((observed - expected) ** 2 / expected).sum() < 51.2
    ring = hidden[graph.matrix().toarray() * np.triu(np.ones((10, 10)), 1) > 0]
    step = np.array(
        [
            (int(graph.labels[v]) - int(graph.labels[u])) % 10 in (1, 9)
            for u, v in zip(*np.nonzero(np.triu(graph.matrix().toarray())), strict=True)
        ]
    )
    # Edges of one kind are alike by the ring's symmetry.
    for kind in (ring[step], ring[~step]):
        assert ((kind - kind.mean()) ** 2 / kind.mean()).sum() < 27.9  # 9 degrees of freedom


def test_fewer_than_asked_where_the_graph_would_fall_apart(tmp_path):
    path = tmp_path / "cycle.txt"
    path.write_text("".join(f"{i} {(i + 1) % 30}\n" for i in range(30)) + "x y\n")
    dataset = holdout(run_index(path), tmp_path / "h")
    assert dataset.stats["positives"] == dataset.stats["removable"] == 1
    assert dataset.stats["fraction_removed"] == pytest.approx(1 / 31)
    assert dataset.stats["components"] == 2


def test_a_tree_and_a_complete_graph_are_refused(tmp_path):
    tree = tmp_path / "tree.txt"
    tree.write_text("a b\nb c\nb d\n")
    with pytest.raises(
        UserError, match=r"no edge can be held out.*4 vertices, 3 edges.*node2vec.link_prediction=false"
    ):
        holdout(run_index(tree), tmp_path / "t")
    complete = tmp_path / "complete.txt"
    complete.write_text("".join(f"{u} {v}\n" for u in range(8) for v in range(u)))
    with pytest.raises(UserError, match=r"too few pairs of vertices without an edge.*got 0"):
        holdout(run_index(complete), tmp_path / "c")


def test_fewer_edges_are_hidden_than_pairs_have_none(tmp_path):
    path = tmp_path / "dense.txt"
    path.write_text("".join(f"{u} {v}\n" for u in range(12) for v in range(u) if u - v != 3))
    graph = run_index(path)
    assert graph.stats["edges"] == 57
    dataset = holdout(graph, tmp_path / "h")
    assert dataset.stats["positives"] == dataset.stats["negatives"] == 4  # half of the nine pairs without an edge
    assert dataset.stats["train_pairs"] == 5


def test_training_pairs_shrink_in_a_dense_graph(tmp_path):
    path = tmp_path / "dense.txt"
    path.write_text("".join(f"{u} {v}\n" for u in range(20) for v in range(u) if (u + v) % 3))
    graph = run_index(path)
    free = 190 - graph.stats["edges"]
    dataset = holdout(graph, tmp_path / "h", fraction=0.4)
    assert dataset.stats["train_pairs"] == free - dataset.stats["negatives"] > 0


def test_estimate(whole, tmp_path):
    guess = estimate(HoldoutParams(), {"graph": whole.stats}, Resources())
    dataset = holdout(whole, tmp_path / "h")
    assert guess.stats.keys() <= dataset.stats.keys()
    assert guess.stats["edges"] == pytest.approx(dataset.stats["edges"], abs=1)
    assert guess.output_bytes == pytest.approx(dataset.stats["bytes"], rel=0.25)


def test_facebook_keeps_one_component(tmp_path, shared_data):
    path = tmp_path / "facebook.txt"
    path.write_bytes((shared_data / "ego-facebook" / "ego-facebook.txt").read_bytes())
    dataset = holdout(run_index(path, header=True), tmp_path / "h")
    assert dataset.stats["positives"] == 44117
    assert nx.is_connected(nx.from_scipy_sparse_array(read(dataset).matrix()))
