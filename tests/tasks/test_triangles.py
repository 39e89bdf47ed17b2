"""Triangles and clustering coefficients against networkx."""

import io
from pathlib import Path

import networkx as nx
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.tasks.index import STAGE as INDEX
from superworkflow.tasks.publish_fields import STAGE as PUBLISH
from superworkflow.tasks.triangles import STAGE as TRIANGLES
from tests.tasks.index_helpers import run_stage


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize(
    "graph", [nx.powerlaw_cluster_graph(3000, 6, 0.4, seed=1), nx.star_graph(5)], ids=["powerlaw", "star"]
)
def test_triangles(graph: nx.Graph, directed: bool, tmp_path: Path) -> None:
    rows = [f"{u} {v}" if (u + v) % 3 else f"{v} {u}" for u, v in graph.edges]
    rows += [f"{v} {u}" for u, v in list(graph.edges)[::5]]  # both directions of some
    (tmp_path / "e.txt").write_text("\n".join(rows))
    made = run_stage(INDEX, {"directed": directed}, {"edges": str(tmp_path / "e.txt")}, tmp_path / "index")
    values = run_stage(TRIANGLES, {}, {"graph": made.uri}, tmp_path / "triangles", 2, io.StringIO())
    table = run_stage(PUBLISH, {}, {"graph": made.uri, "values": values.uri}, tmp_path / "published")
    found = {int(row["node"]): row for row in table.table("vertices.parquet").to_pylist()}
    assert {node: row["triangles"] for node, row in found.items()} == nx.triangles(graph)
    expected = nx.clustering(graph)
    assert max(abs(row["clustering"] - expected[node]) for node, row in found.items()) < 1e-15
    assert values.stats["global.triangles"] == sum(nx.triangles(graph).values()) // 3
    assert values.stats["global.transitivity"] == pytest.approx(nx.transitivity(graph), abs=1e-12)
    assert values.stats["global.mean_clustering"] == pytest.approx(nx.average_clustering(graph), abs=1e-12)


def test_superworkflow() -> None:
    found = load_superworkflow("triangles")
    assert [stage.name for stage in found.stages] == ["index", "triangles", "publish_fields"]
