"""A network of edges on a new edge list, which is read as its own was; every edge has a prediction."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import heterograph, holdout_edges, infer, train
from superworkflow.tasks.heterograph import HeterographParams
from superworkflow.tasks.heterograph.doubts import doubts
from superworkflow.tasks.train import TrainParams
from tests.tasks.index_helpers import run_stage

NODES = 60
TRAINING = {
    "model": "rgat",
    "hidden": 8,
    "epochs": 30,
    "batch": 64,
    "learning_rate": 0.02,
    "patience": 0,
    "dropout": 0.0,
}


def write_graph(folder: Path, first: str) -> dict[str, str]:
    """Payments between nodes, with weeks of a kind; from an even node one is 3 more than from an odd one."""
    folder.mkdir()
    rng = np.random.default_rng(len(first))
    rows = [(u, v) for u in range(NODES) for v in rng.choice(NODES, 8, replace=False) if u != v]
    edges = pd.DataFrame(rows, columns=["source", "target"])
    edges["price"] = 3.0 * (edges.source % 2 == 0) + rng.normal(size=len(rows)) / 10
    edges["weeks"], edges["kind"] = (
        rng.integers(1, 9, len(rows)) / 2,
        ["a" if each % 3 else "b" for each in edges.index],
    )
    for end in ("source", "target"):
        edges[end] = first + edges[end].astype(str)
    edges.to_csv(folder / "edges.csv", index=False)
    nodes = [f"{first}{i},{i % 2},{rng.normal():.3f}" for i in range(NODES)]
    (folder / "features.csv").write_text("\n".join(["node,even,noise", *nodes]) + "\n")
    return {name: str(folder / f"{name}.csv") for name in ("edges", "features")}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("payments")
    files = write_graph(folder / "first", "p")
    reading = {"directed": True, "edge_features": "weeks,kind"}
    graph = run_stage(heterograph.STAGE, reading, files, folder / "graph")
    learned = {"label": "price", "task": "edge_regression"}
    given = {"graph": graph.uri, "edges": files["edges"]}
    held = run_stage(holdout_edges.STAGE, learned, given, folder / "held")
    return run_stage(train.STAGE, TRAINING | learned, {"graph": held.uri}, folder / "network")


def drawn(network: Dataset, files: dict[str, str], **reading: bool) -> Diagram:
    flow = load_superworkflow("gnn_predict")
    params = {name: model() for name, model in flow.models().items()} | {"heterograph": HeterographParams(**reading)}
    sources = {name: Source.of(path) for name, path in files.items()}
    return flow.build(params, {"network": network, **sources})


def test_all_edges_of_a_new_graph_read_as_the_networks(network: Dataset, tmp_path: Path) -> None:
    files = write_graph(tmp_path / "later", "qq")
    diagram, made = drawn(network, files), dict[str, str]()
    assert list(diagram.nodes) == ["heterograph", "infer", "tabulate"]
    for name, node in diagram.nodes.items():
        inputs = {
            key: made.get(getattr(given, "name", ""), getattr(given, "uri", "")) for key, given in node.inputs.items()
        }
        done = run_stage(node.stage, node.params.model_dump(mode="json"), inputs, tmp_path / name)
        assert done.digest == node.digest
        made[name] = done.uri
    found = pd.read_parquet(Path(made["tabulate"]) / "predictions.parquet")
    assert list(found) == ["source", "target", "predicted"]
    both = found.merge(pd.read_csv(files["edges"]), on=["source", "target"], validate="one_to_one")
    assert len(both) == len(found) == len(pd.read_csv(files["edges"]))
    assert np.sqrt(((both.predicted - both.price) ** 2).mean()) < 0.3  # the mean alone has 1.5


def test_parameters_that_are_set_are_kept(network: Dataset, tmp_path: Path) -> None:
    files = write_graph(tmp_path / "later", "qq")
    read = drawn(network, files).nodes["heterograph"].params
    assert isinstance(read, HeterographParams)
    assert (read.directed, read.edge_features, read.time) == (True, "kind,weeks", None)
    undirected = drawn(network, files, directed=False).nodes["heterograph"]
    assert undirected.params.model_dump()["directed"] is False
    given = {name: getattr(each, "uri", "") for name, each in undirected.inputs.items()}
    graph = run_stage(heterograph.STAGE, undirected.params.model_dump(mode="json"), given, tmp_path / "graph")
    with pytest.raises(UserError, match="the network was trained on another graph"):
        run_stage(infer.STAGE, {}, {"graph": graph.uri, "network": network.uri}, tmp_path / "infer")


def test_labels_of_edges_are_not_called_unused(network: Dataset, tmp_path: Path) -> None:
    files = write_graph(tmp_path / "later", "qq")
    unused = "a column of numbers is not used"
    (plain,) = [each for each in doubts(HeterographParams(edge_features="weeks,kind"), _edges(files)) if unused in each]
    assert "column price" in plain
    read = drawn(network, files).nodes["heterograph"].params
    assert not [each for each in doubts(read, _edges(files)) if unused in each]  # type: ignore[arg-type]
    flow = load_superworkflow("gnn")
    params = {name: model() for name, model in flow.models().items()}
    params["train"] = TrainParams(task="edge_regression", label="price", split_by="weeks")
    params["heterograph"] = HeterographParams(edge_features="kind")
    first = flow.build(params, _edges(files)).nodes["heterograph"]
    assert not [each for each in doubts(first.params, _edges(files)) if unused in each]  # type: ignore[arg-type]
    params["train"] = TrainParams(task="edge_regression", label="weeks", split_by="price")
    assert flow.build(params, _edges(files)).nodes["heterograph"].digest == first.digest


def _edges(files: dict[str, str]) -> dict[str, Source]:
    return {"edges": Source.of(files["edges"])}


def test_edges_without_direction_are_predicted_once(tmp_path: Path) -> None:
    """A label that grows with both ends, learned from and predicted for edges without direction."""

    def files_of(folder: Path, first: str) -> dict[str, str]:
        files = write_graph(folder, first)
        edges = pd.read_csv(files["edges"])
        ends = [edges[end].str[len(first) :].astype(int) for end in ("source", "target")]
        edges = edges[ends[0] < ends[1]].assign(price=3.0 * (ends[0] % 2 + ends[1] % 2))
        edges[["source", "target", "price"]].to_csv(files["edges"], index=False)
        return files

    graphs, files = [], [files_of(tmp_path / first, first) for first in ("p", "qq")]
    for given in files:
        graphs.append(run_stage(heterograph.STAGE, {}, given, tmp_path / f"graph-{len(graphs)}"))
    learned = {"label": "price", "task": "edge_regression"}
    held = run_stage(
        holdout_edges.STAGE, learned, {"graph": graphs[0].uri, "edges": files[0]["edges"]}, tmp_path / "held"
    )
    how = TRAINING | learned | {"model": "sage"}
    trained = run_stage(train.STAGE, how, {"graph": held.uri}, tmp_path / "network")
    made = run_stage(infer.STAGE, {}, {"graph": graphs[1].uri, "network": trained.uri}, tmp_path / "infer")
    found, wanted = pd.read_parquet(made.local("predictions.parquet")), pd.read_csv(files[1]["edges"])
    for table in (found, wanted):
        table["ends"] = [frozenset(each) for each in zip(table.source, table.target, strict=True)]
    both = found.merge(wanted, on="ends", validate="one_to_one")
    assert len(both) == len(found) == len(wanted)
    assert np.sqrt(((both.predicted - both.price) ** 2).mean()) < 0.5  # the mean alone has 2.1


def test_edges_without_direction_are_predicted_as_they_are_given(tmp_path: Path) -> None:
    """A label of the first end alone: the decoder has learned each edge in the order of its row."""
    files = [write_graph(tmp_path / first, first) for first in ("p", "qq")]
    for paths in files:
        edges = pd.read_csv(paths["edges"])
        ends = edges[["source", "target"]].apply(frozenset, axis=1)
        edges[["source", "target", "price"]][~ends.duplicated()].to_csv(paths["edges"], index=False)
    graph = run_stage(heterograph.STAGE, {}, files[0], tmp_path / "graph")
    learned = {"label": "price", "task": "edge_regression"}
    given = {"graph": graph.uri, "edges": files[0]["edges"]}
    held = run_stage(holdout_edges.STAGE, learned, given, tmp_path / "held")
    how = TRAINING | learned | {"model": "sage"}
    trained = run_stage(train.STAGE, how, {"graph": held.uri}, tmp_path / "network")
    later = run_stage(heterograph.STAGE, {}, files[1] | {"network": trained.uri}, tmp_path / "later")
    made = run_stage(infer.STAGE, {}, {"graph": later.uri, "network": trained.uri}, tmp_path / "infer")
    found, wanted = pd.read_parquet(made.local("predictions.parquet")), pd.read_csv(files[1]["edges"])
    for end in ("source", "target"):
        assert found[end].tolist() == wanted[end].tolist()
    assert np.sqrt(((found.predicted - wanted.price) ** 2).mean()) < 0.5  # the mean alone has 1.5


def test_categories_of_edges_are_those_of_the_network(network: Dataset, tmp_path: Path) -> None:
    """The later graph has one of the kinds a and b, and a new one."""
    files = write_graph(tmp_path / "later", "qq")
    edges = pd.read_csv(files["edges"])
    edges["kind"] = edges.kind.replace("a", "c")
    edges.to_csv(files["edges"], index=False)
    reading = drawn(network, files).nodes["heterograph"].params.model_dump(mode="json")
    graph = run_stage(heterograph.STAGE, reading, files | {"network": network.uri}, tmp_path / "graph")
    assert any("no such categories" in str(text) and "(got c)" in str(text) for text in graph.stats.values())
    run_stage(infer.STAGE, {}, {"graph": graph.uri, "network": network.uri}, tmp_path / "infer")
