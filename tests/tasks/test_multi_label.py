"""Several labels a node: from rows of a file to a model that answers with lists."""

import numpy as np
import pandas as pd
import pytest
import torch

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks import heterograph, infer, publish_predictions, score
from superworkflow.tasks.lib.gnn.objective.label_lists import many_targets_of
from superworkflow.tasks.lib.gnn.objective.node_prediction import MultiLabel
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.figures import f1_scores, top_k
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.train import STAGE
from tests.tasks.index_helpers import run_stage

NODES, LABELS = 90, 4


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Nodes have one or two of four labels, by which their features and neighbours go; every ninth has none."""
    folder, rng = tmp_path_factory.mktemp("labels"), np.random.default_rng(5)
    has = np.zeros((NODES, LABELS), bool)
    has[np.arange(NODES), np.arange(NODES) % LABELS] = True
    has[np.arange(NODES), rng.integers(0, LABELS, NODES)] = True
    has[::9] = False
    pairs = rng.integers(0, NODES, (1500, 2))
    kept = [(u, v) for u, v in pairs.tolist() if u < v and (has[u] & has[v]).any()] + [(0, 1)]
    (folder / "edges.csv").write_text("".join(f"n{u:02},n{v:02}\n" for u, v in kept))
    values = has + 0.5 * rng.normal(size=has.shape)
    rows = [",".join([f"n{i:02}", *(f"{x:.5f}" for x in row)]) for i, row in enumerate(values)]
    (folder / "features.csv").write_text("node,a,b,c,d\n" + "\n".join(rows))
    lines = [f"n{i:02},l{kind}\n" for i, kind in zip(*np.nonzero(has), strict=True)]
    (folder / "labels.csv").write_text("".join(lines))
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features", "labels")}, has


def test_from_rows_to_a_model_that_answers(sources, tmp_path):
    files, has = sources
    graph = run_stage(heterograph.STAGE, {}, files, tmp_path / "graph")
    opened, folders = HeteroGraph.open(graph), {"graph": graph.uri}
    targets = many_targets_of(opened, "node.label", (0.6, 0.2), 42)
    assert targets.names == ("l0", "l1", "l2", "l3")
    assert [(targets.splits == split).sum() for split in (-1, 0, 1, 2)] == [10, 48, 16, 16]
    made = run_stage(STAGE, {"hidden": 16, "batch": 16, "epochs": 30, "dropout": 0.1}, folders, tmp_path / "train")
    assert made.stats["labels"] == has.sum()
    found = run_stage(infer.STAGE, {}, {**folders, "network": made.uri}, tmp_path / "infer")
    rows = found.table("predictions.parquet").to_pylist()
    assert [row["label"] for row in rows] == [[f"l{kind}" for kind in np.flatnonzero(each)] for each in has]
    assert all(len(row["ranked"]) == len(row["label"]) for row in rows)
    given = {"predictions": found.uri}
    scored = run_stage(score.STAGE, {}, given, tmp_path / "score")
    tested = [row for row in rows if row["split"] == "test"]
    truth, ranked = (
        np.array([[n in row[key] for n in targets.names] for row in tested]) for key in ("label", "ranked")
    )
    micro, macro = f1_scores(truth, ranked)
    assert scored.stats["metrics.micro_f1@test"] == pytest.approx(micro)
    assert scored.stats["metrics.macro_f1@test"] == pytest.approx(macro)
    assert scored.stats["metrics.accuracy@test"] == pytest.approx((truth == ranked).all(axis=1).mean())
    assert micro > 0.75
    bundle = run_stage(publish_predictions.STAGE, {}, given, tmp_path / "bundle")
    answer = load(bundle.location.local_path).predict(pd.DataFrame({"node": ["n05", "n00"]}), {})
    assert answer["predicted"].tolist() == [rows[5]["predicted"], rows[0]["predicted"]]
    assert answer["probability"][0] == pytest.approx(rows[5]["probability"])


def test_a_network_of_one_label_and_a_graph_of_several_and_the_reverse(sources, tmp_path):
    files, has = sources
    lines = [f"n{i:02},l{np.flatnonzero(row)[0]}\n" for i, row in enumerate(has) if row.any()]
    (tmp_path / "one.csv").write_text("".join(lines))
    graphs = {
        name: run_stage(heterograph.STAGE, {}, {**files, "labels": labels}, tmp_path / name).uri
        for name, labels in (("several", files["labels"]), ("one", str(tmp_path / "one.csv")))
    }
    for learned, found, said in (("one", "several", "one label"), ("several", "one", "several labels")):
        given = {"graph": graphs[learned]}
        network = run_stage(STAGE, {"hidden": 4, "epochs": 1}, given, tmp_path / f"train-{learned}").uri
        with pytest.raises(UserError, match=f"has learned {said} a node, and nodes of this graph have {found}"):
            run_stage(infer.STAGE, {}, {"graph": graphs[found], "network": network}, tmp_path / f"infer-{learned}")


def test_loss_and_figure_of_a_step(sources, tmp_path):
    files, has = sources
    graph = HeteroGraph.open(run_stage(heterograph.STAGE, {}, files, tmp_path / "graph"))
    task = MultiLabel(many_targets_of(graph, "", (0.6, 0.2), 42))
    example = task.example(task.items("test"), (0, 0, 0))
    nodes = example.nodes["node"]
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(len(nodes), LABELS)).astype(np.float32))
    likely, truth = torch.sigmoid(scores).numpy(), has[nodes]
    wanted = -(truth * np.log(likely) + ~truth * np.log(1 - likely)).mean()
    assert float(task.loss(None, {"node": scores}, example)) == pytest.approx(wanted, abs=1e-6)
    judged = task.judge(None, {"node": scores}, example)
    assert judged.loss / len(nodes) == pytest.approx(wanted, abs=1e-6)
    ranked = top_k(scores.numpy().astype(np.float64), truth.sum(1))
    assert judged.figure / len(nodes) == pytest.approx(((ranked & truth).sum(1) / truth.sum(1)).mean(), abs=1e-6)
