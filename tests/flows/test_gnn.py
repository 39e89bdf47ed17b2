"""The superworkflow `gnn` end to end: from an edge list, and from a schema, to a model that answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from superworkflow.__main__ import main
from superworkflow.flows.gnn import SUPERWORKFLOW
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import build_request
from superworkflow.infra.contract.registration import Registration
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.decision import Scored, decide
from superworkflow.sweeps.objective import choose_quality
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.publish_predictions.model import card
from tests.flows.command_line import run_document

STAGES = ["heterograph", "node_labels", "aggregate", "train", "infer", "correct", "baselines", "score"]
STAGES.append("publish_predictions")
FAST = ["--set", "train.epochs=4", "train.hidden=16", "train.batch=32"]
NODES = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two communities: an edge list, features that say little, labels; and the same with a schema."""
    folder = tmp_path_factory.mktemp("gnn")
    rng = np.random.default_rng(4)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, NODES, (2400, 2)) if u < v and (u - v) % 2 == 0})
    numbers = rng.normal(size=(NODES, 4)) + (np.arange(NODES) % 2)[:, None]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"v{u},v{v}\n" for u, v in pairs))
    rows = [",".join([f"v{i}", *(f"{x:.4f}" for x in row)]) for i, row in enumerate(numbers)]
    (folder / "features.csv").write_text("node,a,b,c,d\n" + "\n".join(rows))
    labels = [f"v{i},{('even', 'odd')[i % 2]}\n" for i in range(NODES)]
    (folder / "labels.csv").write_text("node,label\n" + "".join(labels))
    typed = folder / "typed"
    typed.mkdir()
    table = [f"v{i},{numbers[i, 0]:.4f},{i % 2}\n" for i in range(NODES)]
    (typed / "nodes.csv").write_text("id,a,kind\n" + "".join(table))
    (typed / "edges.csv").write_text((folder / "edges.csv").read_text())
    ends = 'source: "n" target: "n" metadata { filename: "edges.csv"'
    (typed / "schema.pbtxt").write_text(
        'node_sets { key: "n" value { metadata { filename: "nodes.csv" }\n'
        'features { key: "a" value { dtype: DT_FLOAT } } features { key: "kind" value { dtype: DT_INT64 } } } }\n'
        f'edge_sets {{ key: "to" value {{ {ends} }} }} }}\n'
        f'edge_sets {{ key: "from" value {{ {ends} extra {{ key: "edge_type" value: "reversed" }} }} }} }}\n'
    )
    return folder


def _edges(files: Path, store: Path, *more: str) -> list[str]:
    given = [word for name in ("edges", "features", "labels") for word in (f"--{name}", str(files / f"{name}.csv"))]
    return ["gnn", *given, "--store", str(store), *more]


def test_from_edges_to_a_model(files: Path, tmp_path: Path, prefect_api: str, capsys: pytest.CaptureFixture[str]):
    given = _edges(files, tmp_path / "store", *FAST)
    assert main(["plan", *given, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [(stage["name"], stage["state"]) for stage in planned] == [(name, "run") for name in STAGES]
    run = run_document([*given, "--register", "parity"], prefect_api)
    assert [stage["name"] for stage in run["stages"]] == STAGES
    assert run["metrics"]["score.accuracy@test"] > 0.9
    assert run["metrics"]["baselines.majority_accuracy@test"] == 0.5
    assert run["metrics"]["baselines.label_propagation_accuracy@test"] > 0.9
    (decision,) = run["promotion"]
    assert decision["metric"] == "score.accuracy@test"  # early stopping has chosen the epoch by the validation nodes
    assert Path(run["embeddings"]).name == "embeddings.parquet"
    bundle = next((tmp_path / "store" / "publish_predictions").glob("*/bundle.json")).parent
    answer = load(bundle).predict(pd.DataFrame({"node": ["v3", "v118"]}), {})
    assert answer["predicted"].tolist() == ["odd", "even"]
    partly = load(bundle).predict(pd.DataFrame({"node": ["w", "v3"]}), {})
    assert partly["predicted"].tolist() == [None, "odd"]
    assert partly["error"].tolist() == ["node 'w' is not among the 120 nodes: give its features and neighbors", ""]
    client = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow' / 'mlflow.db'}")
    for name in ("epoch_loss", "validation_loss", "validation_accuracy", "learning_rate"):
        points = client.get_metric_history(run["run_id"], f"training/train.{name}")
        assert [each.step for each in points] == [1, 2, 3, 4], name
    assert client.get_run(run["run_id"]).data.metrics["quality/baselines.majority_accuracy_at_test"] == 0.5
    assert main(["explain", *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["cached" in line for line in lines if line.split()[:1] and line.split()[0] in STAGES] == [True] * 9
    other = _edges(files, tmp_path / "store", *FAST, "train.dropout=0.2")
    assert main(["plan", *other, "--json"]) == 0
    states = {stage["name"]: stage["state"] for stage in json.loads(capsys.readouterr().out)}
    assert [states[name] for name in STAGES] == ["cached"] * 3 + ["run"] * 3 + ["cached", "run", "run"]


def test_links_from_edges_to_a_model(
    files: Path, tmp_path: Path, prefect_api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without labels; the model answers for pairs."""
    words = [word for word in _edges(files, tmp_path / "store", *FAST) if "labels" not in word]
    run = run_document([*words, "gnn.task=link_prediction", "train.batch=64"], prefect_api)
    names = ["heterograph", "holdout_links", "aggregate", "train", "infer", "baselines_links", "correct_links"]
    names += ["score_links", "predict_links", "publish_predictions"]
    assert [stage["name"] for stage in run["stages"]] == names
    assert run["metrics"]["score_links.auc@test"] > 0.6
    assert 0 < run["metrics"]["baselines_links.common_neighbors_auc@test"] < 1
    folder = next((tmp_path / "store" / "publish_predictions").glob("*/bundle.json")).parent
    links = pd.read_parquet(next((tmp_path / "store" / "predict_links").glob("*/links.parquet")))
    answer = load(folder).predict(links[["source", "target"]], {})
    np.testing.assert_allclose(answer["score"], links["score"], rtol=1e-3, atol=1e-3)
    answer = load(folder).predict(pd.DataFrame({"source": ["v3", "v3"], "target": ["v5", "v6"]}), {})
    assert answer["probability"].between(0, 1).all()
    assert answer["score"][0] > answer["score"][1]
    partly = load(folder).predict(pd.DataFrame({"source": ["v3", "w"], "target": ["v5", None]}), {})
    assert partly["probability"].tolist() == [answer["probability"][0], None]
    assert partly["error"][0] == ""
    assert "'w' is not among" in partly["error"][1]
    assert "no `target` is given" in partly["error"][1]
    chosen = card(Dataset.open(folder))
    assert [column["name"] for column in chosen.columns][:3] == ["source", "target", "source_features"]
    assert main(["plan", *_edges(files, tmp_path / "store"), "--set", "gnn.task=link_prediction"]) == 2
    assert "link prediction uses no labels of nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "figure"),
    [
        ([], "score.accuracy@validation"),
        (["train.task=regression"], "score.rmse@validation"),
        (["gnn.task=link_prediction"], "score_links.auc@validation"),
    ],
    ids=["classes", "numbers", "links"],
)
def test_what_a_sweep_improves(files: Path, tmp_path: Path, settings: list[str], figure: str) -> None:
    """The figure that is reported of the task."""
    names = ["edges"] if figure.startswith("score_links") else ["edges", "labels"]
    sources = {name: str(files / f"{name}.csv") for name in names}
    request = build_request(SUPERWORKFLOW, sources=sources, assignments=settings, store=str(tmp_path))
    quality = choose_quality(SUPERWORKFLOW, names, request.diagram)
    assert quality is not None
    assert quality.full_name == figure


def test_from_a_schema(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["gnn", "--graph", str(files / "typed"), "--label", "n.kind", "--store", str(tmp_path), *FAST]
    assert main(["plan", *given, "train.model=rgcn", "train.fanouts=5,5", "--json"]) == 0
    planned = [stage["name"] for stage in json.loads(capsys.readouterr().out)]
    assert planned == ["heterograph", "feature_matrix", *STAGES[3:]]


def test_parts_do_not_change_what_is_trained(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two more stages, and the same names of the datasets from training on."""
    plans = []
    for partitioned in ("false", "true"):
        given = _edges(files, tmp_path / "store", *FAST, f"gnn.partitioned={partitioned}")
        assert main(["plan", *given, "--json"]) == 0
        plans.append({stage["name"]: stage["output"] for stage in json.loads(capsys.readouterr().out)})
    alone, parted = plans
    assert parted.keys() - alone.keys() == {"partition", "shard"}
    assert {name: parted[name] for name in alone} == alone


def test_baselines_depend_on_the_parameters_of_the_split_alone(files: Path, tmp_path: Path) -> None:
    """Models and trials share them; they have no parameters of their own."""
    sources = {name: str(files / f"{name}.csv") for name in ("edges", "features", "labels")}
    found = {}
    for changed in ("train.epochs=3", "train.model=gat", "train.seed=1", "train.train_share=0.5"):
        request = build_request(SUPERWORKFLOW, sources=sources, assignments=[changed], store=str(tmp_path))
        found[changed] = request.diagram.nodes["baselines"].digest
    assert found["train.epochs=3"] == found["train.model=gat"]
    assert len(set(found.values())) == 3
    with pytest.raises(UserError, match="baselines"):
        build_request(SUPERWORKFLOW, sources=sources, assignments=["baselines.seed=1"], store=str(tmp_path))


def test_other_labels_leave_the_graph_as_it_is(files: Path, tmp_path: Path) -> None:
    """Training and what follows it is made anew; the parts that workers have are the same too."""
    (tmp_path / "labels.csv").write_text("node,label\n" + "".join(f"v{i},{i % 3}\n" for i in range(NODES)))
    sources = {name: str(files / f"{name}.csv") for name in ("edges", "features", "labels")}
    given = [sources, {**sources, "labels": str(tmp_path / "labels.csv")}]
    settings: dict[str, Any] = {"assignments": ["gnn.partitioned=true"], "store": str(tmp_path)}
    plans = [build_request(SUPERWORKFLOW, sources=each, **settings).diagram.nodes for each in given]
    same = {name for name in plans[0] if plans[0][name].digest == plans[1][name].digest}
    assert same == {"heterograph", "partition", "shard", "aggregate"}


WORKERS = "{engine: workers, resources: {cpu: 0.5, workers: {count: 2, cpu: 1, memory: 2Gi}}}"


@pytest.mark.slow
def test_weights_on_workers_from_edges_to_a_model(files: Path, tmp_path: Path, prefect_api: str) -> None:
    """Losses and predictions of a run in process, from a graph in parts; what is trained has the same name."""
    lines = (files / "edges.csv").read_text().splitlines()
    heavy = [f"{line},{1 + 7 * (row % 3)}\n" for row, line in enumerate(lines[1:])]
    (tmp_path / "edges.csv").write_text("source,target,weight\n" + "".join(heavy))
    profile = tmp_path / "workers.yaml"
    profile.write_text("stages:\n" + "".join(f"  {name}: {WORKERS}\n" for name in ("train", "infer")))
    found, outputs = [], []
    for store, more in (("alone", []), ("parts", ["gnn.partitioned=true", "--profile", str(profile)])):
        given = _edges(files, tmp_path / store, *FAST, "train.fanouts=5,5", "train.weight=weight")
        given[given.index("--edges") + 1] = str(tmp_path / "edges.csv")
        run = run_document([*given, *more], prefect_api)
        outputs.append({stage["name"]: Path(stage["output"]).name for stage in run["stages"]})
        losses = pq.read_table(tmp_path / store / "train" / outputs[-1]["train"] / "losses.parquet")["loss"]
        found.append((losses.to_pylist(), run["metrics"]["score.accuracy@test"]))
    assert outputs[1].keys() - outputs[0].keys() == {"partition", "shard"}
    assert outputs[0].items() <= outputs[1].items()
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-4)
    assert found[1][1] == pytest.approx(found[0][1], abs=0.05)


@pytest.mark.parametrize("simple", ["degree_product_auc", "relation_frequency_mrr"])
def test_promoted_by_auc_of_links_and_mrr_of_triples(simple: str) -> None:
    """Both on the test links, of which early stopping has seen none."""
    champion = {"score_links.auc@test": 0.5, "score_links.mrr@test": 0.5}
    own = {"score_links.auc@test": 0.6, "score_links.mrr@test": 0.4, f"baselines_links.{simple}@test": 0.3}
    scored = Scored(1, champion, "recorded")
    found = decide("links", 2, own, SUPERWORKFLOW.metrics, scored, Registration())
    by_rank = simple.endswith("mrr")
    assert found.metric == f"score_links.{'mrr' if by_rank else 'auc'}@test"
    assert found.verdict == ("rejected" if by_rank else "promoted")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["edges"], "node classification needs labels"),
        (["labels"], "gnn needs exactly one graph"),
        (["edges", "labels", "graph"], "gnn needs exactly one graph"),
        (["graph", "labels"], "columns of its tables"),
    ],
)
def test_sources_that_make_no_labelled_graph(
    files: Path, tmp_path: Path, names: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {name: files / f"{name}.csv" for name in names} | ({"graph": files / "typed"} if "graph" in names else {})
    given = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert main(["plan", "gnn", *given, "--store", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
