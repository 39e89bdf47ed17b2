"""Stages `drift` and `set_drift` against plain Python, and on data whose drift is known."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks import drift, set_drift
from superworkflow.tasks.drift import graphs
from superworkflow.tasks.drift.graphs import stability_index
from tests.datasets import commit
from tests.tasks.heterographs import Edges as EdgesOfSet
from tests.tasks.heterographs import Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

Edges = set[tuple[str, str]]


def _edges(rng: np.random.Generator, names: list[str], count: int) -> Edges:
    ends = rng.choice(len(names), (count, 2))
    return {(names[u], names[v]) for u, v in ends if u != v}


def _indexed(folder: Path, name: str, edges: Edges, directed: bool) -> Dataset:
    """An index dataset of a simple graph, numbered as that stage does it."""
    found = edges if directed else {frozenset(edge) for edge in edges}
    degree = Counter(node for edge in found for node in edge)
    nodes = sorted(degree, key=lambda node: (-degree[node], node))
    number = {node: vertex for vertex, node in enumerate(nodes)}
    arcs = [(number[u], number[v]) for u, v in map(tuple, found)]
    arcs = sorted(arcs if directed else arcs + [(v, u) for u, v in arcs])
    writer = DatasetWriter(folder / name)
    lengths = np.bincount([u for u, _ in arcs], minlength=len(nodes))
    writer.array("indptr.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    writer.array("indices.npy", np.array([v for _, v in arcs], np.int32))
    writer.table("vertices.parquet", pa.table({"node": nodes, "degree": [degree[node] for node in nodes]}))
    stats: dict[str, Any] = {"vertices": len(nodes), "directed": directed, "directed_edges": len(arcs)}
    return commit(writer, "index", {"name": name}, stats, len(nodes))


def _figures(dataset: Dataset) -> dict[str, Any]:
    return {key.removeprefix("drift."): value for key, value in dataset.stats.items()}


@pytest.mark.parametrize("directed", [False, True])
def test_vertices_and_edges_are_counted_exactly(
    tmp_path: Path, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many blocks, in which rows begin and end."""
    monkeypatch.setattr(graphs, "ARCS_AT_ONCE", 7)
    rng = np.random.default_rng(directed)
    names = [f"n{number}" for number in range(60)]
    before = _edges(rng, names[:50], 200)
    now = {edge for edge in sorted(before)[30:] if "n3" not in edge} | _edges(rng, names[10:], 60)

    def simple(edges: Edges) -> set[Any]:
        return edges if directed else {frozenset(edge) for edge in edges}

    inputs = {
        "graph": _indexed(tmp_path, "now", now, directed), "earlier_graph": _indexed(tmp_path, "then", before, directed)
    }  # fmt: skip
    found = _figures(run_stage(drift.STAGE, {}, {k: v.uri for k, v in inputs.items()}, tmp_path / "drift", cpu=3))
    vertices = [{name for edge in edges for name in edge} for edges in (now, before)]
    for what, (later, earlier) in {"vertices": vertices, "edges": [simple(now), simple(before)]}.items():
        assert found[f"{what}_added"] == len(later - earlier) > 0
        assert found[f"{what}_gone"] == len(earlier - later) > 0
        assert found[f"{what}_added_share"] == len(later - earlier) / len(earlier)
    assert found.keys() <= set(drift.STAGE.drift)
    same = _figures(run_stage(drift.STAGE, {}, dict.fromkeys(inputs, inputs["graph"].uri), tmp_path / "same"))
    assert set(same.values()) == {0}


def test_a_directed_graph_and_one_that_is_not(tmp_path: Path) -> None:
    edges = {("a", "b"), ("b", "c")}
    now, then = (_indexed(tmp_path, str(directed), edges, directed) for directed in (False, True))
    log = io.StringIO()
    inputs = {"graph": now.uri, "earlier_graph": then.uri}
    found = _figures(run_stage(drift.STAGE, {}, inputs, tmp_path / "drift", log=log))
    assert "edges_added" not in found
    assert found["vertices_added"] == 0
    assert "edges are not compared" in log.getvalue()


def test_stability_index() -> None:
    """Ten bins of which the later sample has moved half of the first into the last."""
    before = np.arange(1000)
    now = np.where(before < 50, 999, before)
    assert stability_index(before, before) == 0
    p, q = 0.5, 1.0
    expected = 0.1 * ((p - q) * np.log(p / q) + (1.5 - q) * np.log(1.5 / q))
    assert stability_index(now, before) == pytest.approx(expected, rel=0.02)
    assert 10 > stability_index(np.full(1000, 5000), before) > 2, "one full bin: large, but finite"
    assert stability_index(np.array([], np.int64), before) == 0


def _embeddings(folder: Path, nodes: list[str], vectors: np.ndarray) -> str:
    flat = pa.array(vectors.astype(np.float32).ravel())
    table = pa.table({"node": nodes, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})
    writer = DatasetWriter(folder)
    writer.table("embeddings.parquet", table)
    return commit(writer, "embed", {"name": folder.name}, {"dimensions": vectors.shape[1]}, len(nodes)).uri


def test_vectors_are_compared_up_to_rotation(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    names = [f"n{number}" for number in range(300)]
    graph = _indexed(tmp_path, "graph", {(names[i], names[i - 1]) for i in range(300)}, directed=False)
    vectors = rng.normal(size=(300, 16))
    turned = (vectors @ np.linalg.qr(rng.normal(size=(16, 16)))[0]) * 3
    order = rng.permutation(300)
    cases = {
        "turned": turned,
        "noisy": turned + 1.5 * rng.normal(size=turned.shape),
        "other": rng.normal(size=turned.shape),
        "shorter": rng.normal(size=(300, 8)),
    }
    before = _embeddings(tmp_path / "before", [names[i] for i in order[:250]], vectors[order[:250]])
    found = {}
    for name, now in cases.items():
        made = _embeddings(tmp_path / name, names, now)
        inputs = {"graph": graph.uri, "earlier_graph": graph.uri, "embeddings": made, "earlier_embeddings": before}
        found[name] = _figures(run_stage(drift.STAGE, {"queries": 200}, inputs, tmp_path / f"drift-{name}"))
    assert found["turned"]["neighbours_changed"] < 0.01
    assert found["turned"]["cosine_distance"] == pytest.approx(0, abs=1e-5)
    for figure in ("neighbours_changed", "cosine_distance"):
        assert found["turned"][figure] < found["noisy"][figure] - 0.05 < found["other"][figure] - 0.1
    assert found["other"]["neighbours_changed"] > 0.9
    assert "cosine_distance" not in found["shorter"]


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    graph = _indexed(tmp_path, "graph", {("a", "b"), ("b", "c")}, directed=False)
    writer = DatasetWriter(tmp_path / "damaged")
    writer.array("indptr.npy", np.array([0, 1, 2]))
    writer.array("indices.npy", np.array([1, 7], np.int32))
    writer.table("vertices.parquet", pa.table({"node": ["a", "b"], "degree": [1, 1]}))
    damaged = commit(writer, "index", {"name": "damaged"}, {"vertices": 2, "directed": False}, 2)
    inputs = {"graph": graph.uri, "earlier_graph": damaged.uri}
    with pytest.raises(DatasetDamaged, match=r"a neighbour is none of 2 vertices \(got 7\)"):
        execute(drift.STAGE, {}, inputs, str(tmp_path / "out"), Resources(cpu=1), Progress("drift"))


def test_sizes_of_sets(tmp_path: Path) -> None:
    def typed(name: str, papers: int, authors: int) -> str:
        people, rows = [f"a{n}" for n in range(authors)], [(f"a{n}", "p0") for n in range(authors)]
        nodes = {"paper": Nodes([f"p{n}" for n in range(papers)]), "author of": Nodes(people)}
        edges = {"writes": EdgesOfSet("author of", "paper", rows)}
        return write_heterograph(tmp_path / name, nodes, edges).uri

    inputs = {"graph": typed("now", 12, 6), "earlier_graph": typed("then", 10, 8)}
    found = _figures(run_stage(set_drift.STAGE, {}, inputs, tmp_path / "drift"))
    assert found == {"nodes_changed@paper": 0.2, "nodes_changed@author_of": 0.25, "edges_changed@writes": 0.25}
