"""Accuracy on a citation graph with Planetoid's split; published figures are means of many seeds, here is one."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from superworkflow.tasks import load_stage
from tests.tasks.index_helpers import run_stage
from tests.tasks.planetoid import write_planetoid

GCN = {"model": "gcn", "hidden": 16, "fanouts": "all,all", "batch": "all", "epochs": 100, "weight_decay": 5e-4}


def write_edges(source: Path, name: str, folder: Path) -> dict[str, str]:
    """An edge list, features and labels with splits of one of Planetoid's graphs."""
    made = write_planetoid(source, name, folder)
    papers, edges = pq.read_table(made / "paper.parquet"), pq.read_table(made / "cites.parquet")
    pq.write_table(edges, folder / "edges.parquet")
    pq.write_table(papers.select(["id", "feat"]), folder / "features.parquet")
    labels = dict(zip(papers["id"].to_pylist(), papers["label"].to_pylist(), strict=True))
    rows = [line.split(",") for line in (made / "seeds.csv").read_text().splitlines()[1:]]
    lines = [f"{paper},{labels[int(paper)]},{split}" for paper, split in rows if labels[int(paper)] >= 0]
    (folder / "labels.csv").write_text("node,label,split\n" + "\n".join(lines))
    files = {"edges": "edges.parquet", "features": "features.parquet", "labels": "labels.csv"}
    return {name: str(folder / file) for name, file in files.items()}


def accuracy(graph: Path, params: dict, folder: Path) -> float:
    """On the nodes to test."""
    network = run_stage(load_stage("train"), params, {"graph": str(graph)}, folder / "train", cpu=1)
    given = {"graph": str(graph), "network": network.uri}
    found = run_stage(load_stage("infer"), {}, given, folder / "infer", cpu=1)
    judged = run_stage(load_stage("score"), {}, {"predictions": found.uri}, folder / "score")
    return float(judged.stats["metrics.accuracy@test"] or 0)


@pytest.mark.parametrize(("name", "least"), [("cora", 0.79)])
def test_citation_graphs(shared_data, tmp_path, name, least):
    given = write_edges(shared_data / "planetoid", name, tmp_path / name)
    graph = run_stage(load_stage("heterograph"), {}, given, tmp_path / "graph")
    assert accuracy(graph.location.local_path, GCN, tmp_path) >= least
