"""Stage node_labels: labels apart from the graph train the network that labels in the graph train."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.index_helpers import run_stage

NODES = 60
TRAIN = {"epochs": 2, "hidden": 4, "fanouts": "5,5"}


def write(folder: Path, nodes: int = NODES) -> dict[str, str]:
    folder.mkdir()
    rng, names = np.random.default_rng(4), ("edges", "features", "labels")
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i * 7 + 3) % nodes}\n" for i in range(nodes)))
    rows = "".join(f"{i},{rng.normal():.4f},{i % 3 * 1.5}\n" for i in range(nodes))
    (folder / "features.csv").write_text(f"node,x,code\n{rows}")
    splits = ["train", "val", "test", "train", ""]
    (folder / "labels.csv").write_text(
        "node,label,split\n" + "".join(f"{i},c{i % 3},{splits[i % 5]}\n" for i in range(50))
    )
    return {name: str(folder / f"{name}.csv") for name in names}


def test_the_same_network_and_predictions(tmp_path):
    given = write(tmp_path / "files")
    labels = given.pop("labels")
    run_stage(load_stage("heterograph"), {}, {**given, "labels": labels}, tmp_path / "whole")
    bare = run_stage(load_stage("heterograph"), {}, given, tmp_path / "bare")
    apart = run_stage(
        load_stage("node_labels"), {}, {"graph": str(tmp_path / "bare"), "labels": labels}, tmp_path / "l"
    )
    assert apart.stats["labelled"] == 50
    assert "gives away the label" in apart.stats["input_warning.1"]
    assert "(got code)" in apart.stats["input_warning.1"]
    found = []
    for name, inputs in (("whole", {}), ("bare", {"labels": str(tmp_path / "l")})):
        graph = {"graph": str(tmp_path / name), **inputs}
        network = run_stage(load_stage("train"), TRAIN, graph, tmp_path / f"{name}-network", cpu=1)
        given = {**graph, "network": network.uri}
        predictions = run_stage(load_stage("infer"), {}, given, tmp_path / f"{name}-predictions", cpu=1)
        judged = run_stage(load_stage("baselines"), {"seed": 3}, graph, tmp_path / f"{name}-baselines")
        sums = {each.path: each.sha256 for each in (*network.manifest.files, *predictions.manifest.files)}
        found.append((sums, judged.metrics))
    assert found[0] == found[1]
    table = pq.read_table(tmp_path / "bare-predictions" / "predictions.parquet").to_pylist()
    assert {row["label"] for row in table} == {"c0", "c1", "c2", None}
    assert "label" not in [each.name for each in HeteroGraph.open(bare).node_sets["node"].features]


def test_labels_of_another_graph_are_refused(tmp_path):
    for name, nodes in (("one", NODES), ("other", NODES + 5)):
        given = write(tmp_path / name, nodes)
        edges = {"edges": given["edges"]}
        run_stage(load_stage("heterograph"), {}, edges, tmp_path / f"{name}-graph")
        inputs = {"graph": str(tmp_path / f"{name}-graph"), "labels": given["labels"]}
        run_stage(load_stage("node_labels"), {}, inputs, tmp_path / f"{name}-labels")
    inputs = {"graph": str(tmp_path / "one-graph"), "labels": str(tmp_path / "other-labels")}
    with pytest.raises(UserError, match="labels are those of another graph"):
        run_stage(load_stage("baselines"), {}, inputs, tmp_path / "refused")
    (tmp_path / "strange.csv").write_text("node,label\n0,a\nstrange,b\n")
    inputs = {"graph": str(tmp_path / "one-graph"), "labels": str(tmp_path / "strange.csv")}
    with pytest.raises(UserError, match=r"strange\.csv:3.*\n?.*'strange'|'strange' on line 3"):
        run_stage(load_stage("node_labels"), {}, inputs, tmp_path / "labels")


def test_splits_of_a_file_of_their_own(tmp_path):
    given = write(tmp_path / "files")
    graph = run_stage(load_stage("heterograph"), {}, {"edges": given["edges"]}, tmp_path / "graph")
    splits, labels = tmp_path / "splits.csv", tmp_path / "labels.csv"
    labels.write_text("node,label\n" + "".join(f"{i},c{i % 3}\n" for i in range(50)))
    names = ["train", "val", "test"]
    splits.write_text("node,split\n" + "".join(f"{i},{names[i % 3]}\n" for i in range(45)))
    inputs = {"graph": str(tmp_path / "graph"), "labels": str(labels), "split": str(splits)}
    found = HeteroGraph.open(run_stage(load_stage("node_labels"), {}, inputs, tmp_path / "apart"))
    names_of = HeteroGraph.open(graph).ids("node").to_pylist()
    numbers = dict(zip(names_of, found.node_feature("node", "split").to_pylist(), strict=True))
    assert {name: numbers[str(i)] for i, name in ((0, "train"), (1, "validation"), (2, "test"), (49, ""))} == {
        "train": b"train", "validation": b"validation", "test": b"test", "": b""
    }  # fmt: skip
    for text, message in (
        ("0,train\n0,test\n", "second split"), ("0,training\n", "no such split"), ("strange,train\n", "splits of nodes")
    ):  # fmt: skip
        splits.write_text(f"node,split\n{text}")
        with pytest.raises(UserError, match=message):
            run_stage(load_stage("node_labels"), {}, inputs, tmp_path / message)
    with pytest.raises(UserError, match="given twice"):
        run_stage(load_stage("node_labels"), {}, inputs | {"labels": given["labels"]}, tmp_path / "twice")
