"""Nodes without edges and sets without rows: every model trains and predicts on them, or says why it cannot."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import aggregate, holdout_links, infer, partition, score, score_links, shard
from superworkflow.tasks.infer.on_workers import infer as infer_together
from superworkflow.tasks.train import STAGE
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

MODELS: dict[str, dict[str, Any]] = {
    "sage": {"model": "sage"},
    "pool": {"model": "sage", "aggregator": "pool"},
    "gcn": {"model": "gcn"},
    "gat": {"model": "gat", "heads": 2},
    "rgcn": {"model": "rgcn", "bases": 2},
    # A low rate: gradients of rows normalized in twos are round-off, which Adam makes steps of.
    "gatv2": {"model": "gatv2", "heads": 2},
    "gin": {"model": "gin"},
    "rgat": {"model": "rgat", "heads": 2},
    "norm": {
        "model": "rgcn", "norm": "batch", "residual": True, "jumping_knowledge": "cat", "batch": 4,
        "learning_rate": 1e-4,
    },
}  # fmt: skip
TYPED, LEARNED = ("sage", "pool", "rgcn", "rgat", "norm"), ("sage", "pool", "gcn", "gat", "rgcn")
"""Models that take typed graphs, and those that are tried on learned embeddings too."""
FOR_LINKS = ("sage", "rgcn")
"""Models that are tried on links too: what is behind the vectors is the same for all."""
SMALL = {"hidden": 8, "epochs": 2, "batch": 1, "fanouts": "2,all", "lookahead": 0, "dropout": 0.5}
NAMES = [f"n{i:02}" for i in range(18)]
RING = [(NAMES[i], NAMES[(i + by) % 9]) for i in range(9) for by in (1, 2, 7, 8)]
"""Edges both ways among the first nine; the others have none."""


def _nodes(features: bool) -> Nodes:
    splits = ("train", "validation", "test")
    given: dict[str, Any] = {
        "label": ["ab"[i % 2] for i in range(18)],
        "split": [splits[i // 3 % 3] for i in range(18)],
    }
    if features:
        given["x"] = np.random.default_rng(1).normal(size=(18, 4)).astype(np.float32)
    return Nodes(NAMES, given)


def _graph(folder: Path, kind: str, features: bool) -> Dataset:
    nodes, edges = {"node": _nodes(features)}, {"edge": Edges("node", "node", RING)}
    if kind == "no edges":
        edges = {"edge": Edges("node", "node", [])}
    elif kind == "isolated alone are trained on":
        given = _nodes(features)
        split = ["validation" if i < 9 else "train" if i < 15 else "test" for i in range(18)]
        nodes = {"node": Nodes(given.ids, given.features | {"split": split})}
    elif kind == "an edge set without rows":
        nodes["place"] = Nodes(["p1", "p2"], {"y": np.ones((2, 3), np.float32)} if features else {})
        edges |= {"in": Edges("node", "place", []), "holds": Edges("place", "node", reversed_of="in")}
    elif kind == "a node set without rows":
        nodes["place"] = Nodes([], {"y": np.ones((0, 3), np.float32)} if features else {})
        edges |= {"in": Edges("node", "place", []), "holds": Edges("place", "node", reversed_of="in")}
    return write_heterograph(folder, nodes, edges)


TOGETHER = ("isolated", "a node set without rows")
"""Kinds that two workers are given as well."""
KINDS = (*TOGETHER, "isolated alone are trained on", "no edges", "an edge set without rows")
CASES = [
    pytest.param(kind, features, model, links,
                 id=f"{kind}, {'features' if features else 'embeddings'}, {model}, {'links' if links else 'classes'}")
    for kind in KINDS for features in (True, False) for model in MODELS for links in (False, True)
    if (model in TYPED or " set without rows" not in kind)
    and (features or (model in LEARNED and kind in ("isolated", "a node set without rows")))
    and not (links and (kind == "no edges" or model not in FOR_LINKS))
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Inputs of stage train by kind, features and task, made once."""
    root, made = tmp_path_factory.mktemp("empty"), dict[Any, dict[str, str]]()
    numbers = itertools.count()

    def of_case(kind: str, features: bool, links: bool) -> dict[str, str]:
        key = (kind, features, links)
        if key not in made:
            folder = root / str(next(numbers))
            graph = _graph(folder / "whole", kind, features)
            if links:
                params = {"edges": "edge", "validation_share": 0.2, "test_share": 0.2}
                graph = run_stage(holdout_links.STAGE, params, {"graph": graph.uri}, folder / "graph")
            given = {"graph": graph.uri}
            sums = run_stage(aggregate.STAGE, {}, given, folder / "sums")
            parts = run_stage(partition.STAGE, {"parts": 2}, given, folder / "parts")
            shards = run_stage(shard.STAGE, {}, given | {"partition": parts.uri}, folder / "shards")
            made[key] = given | {"sums": sums.uri, "shards": shards.uri}
        return made[key]

    return of_case


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    progress = Progress("train", stream=io.StringIO())
    with local_group([Role("worker", 2)], Checkpoint(folder / "checkpoint"), progress, folder) as two:
        yield two


def _alone(given: dict[str, str], params: dict[str, Any], folder: Path, links: bool) -> tuple[Dataset, Dataset]:
    """Network and predictions of one process, checked."""
    graph = {"graph": given["graph"]}
    sums = {"sums": given["sums"]} if TrainParams(**params).sums_features else {}
    network = run_stage(STAGE, params, graph | sums, folder / "train", cpu=1)
    found = run_stage(infer.STAGE, {"batch": 1}, graph | {"network": network.uri}, folder / "infer", cpu=1)
    vectors = found.table("embeddings.parquet", ["vector"])["vector"].combine_chunks().flatten().to_numpy()
    assert len(vectors) >= 18
    assert np.isfinite(vectors).all()
    if links:
        scored = run_stage(score_links.STAGE, {}, graph | {"predictions": found.uri}, folder / "score")
        assert 0 <= scored.json("metrics.json")["auc@test"] <= 1
    else:
        scored = run_stage(score.STAGE, {}, {"predictions": found.uri}, folder / "score")
        assert 0 <= scored.json("metrics.json")["accuracy@test"] <= 1
    return network, found


def _params(model: str, links: bool) -> dict[str, Any]:
    return {**SMALL, **MODELS[model], "label": "" if links else "node.label"}


@pytest.mark.parametrize(("kind", "features", "model", "links"), CASES)
def test_alone_and_with_two_workers(inputs, group, tmp_path, kind, features, model, links):
    """Both give the same losses and vectors."""
    given, params = inputs(kind, features, links), _params(model, links)
    network, found = _alone(given, params, tmp_path, links)
    if kind not in TOGETHER:
        return
    checked = TrainParams(**params)
    sums, output = given["sums"] if checked.sums_features else "", tmp_path / "together"
    group.run(train, checked.model_dump(mode="json"), given["graph"], given["shards"], sums, str(output))
    losses = [
        pq.read_table(each)["loss"].to_pylist() for each in (network.local("losses.parquet"), output / "losses.parquet")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    predicted = tmp_path / "predicted"
    group.run(infer_together, {"batch": 1}, given["graph"], network.uri, given["shards"], network.uri, str(predicted))
    vectors = [
        pq.read_table(each)["vector"].combine_chunks().flatten().to_numpy()
        for each in (found.local("embeddings.parquet"), predicted / "embeddings.parquet")
    ]
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_class_without_training_nodes_is_refused(tmp_path, model):
    given = _nodes(True)
    nodes = Nodes(given.ids, given.features | {"split": ["train" if i % 2 else "test" for i in range(18)]})
    graph = write_heterograph(tmp_path / "graph", {"node": nodes}, {"edge": Edges("node", "node", RING)})
    with pytest.raises(UserError, match=r"a class has no node to train on.*\(got 'a'\)"):
        run_stage(STAGE, _params(model, False), {"graph": graph.uri}, tmp_path / "train")


def test_links_of_a_graph_without_edges_are_refused(inputs):
    with pytest.raises(UserError, match="too few links to hide some"):
        inputs("no edges", True, True)
