"""Accuracy of `gnn` with nothing set but the model, against PyG's examples on the same graphs, features and splits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.gnn.features import features_of, width_of
from superworkflow.tasks.lib.gnn.objective.labels import targets_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train.params import TrainParams
from tests.oracles.environments import run_in
from tests.oracles.gnn_cases import DRAWN, REAL, write_case
from tests.tasks.index_helpers import run_stage

MODELS, SEEDS, POINT = ("gcn", "gat", "sage"), 10, 0.01


def accuracy(graph: Dataset, folder: Path, given: dict[str, Any]) -> float:
    """Test accuracy of stages aggregate, train, infer and score, which write to `folder`."""
    inputs, shared = {"graph": graph.uri}, folder.parent / "sums"
    if TrainParams.model_validate(given).sums_features and width_of(HeteroGraph.open(graph), "node"):
        if not shared.exists():
            run_stage(load_stage("aggregate"), {}, inputs, shared, 1)
        inputs = inputs | {"sums": str(shared)}
    network = run_stage(load_stage("train"), given, inputs, folder / "train", 1)
    found = {"graph": graph.uri, "network": network.uri}
    predictions = run_stage(load_stage("infer"), {}, found, folder / "infer", 1)
    scores = run_stage(load_stage("score"), {}, {"predictions": predictions.uri}, folder / "score", 1)
    return float(scores.json("metrics.json")["accuracy@test"])


def export(graph: HeteroGraph, seeds: int, path: Path) -> None:
    """Write edges, features, classes and each seed's splits of a graph, as a run has them."""
    params = TrainParams()
    targets = [targets_of(graph, "", params.shares, seed) for seed in range(seeds)]
    indptr, indices = graph.rows("edge")
    ends = np.stack([indices.astype(np.int64), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))])
    features = features_of(graph, "node")
    arrays = {} if features is None else {"features": np.array(features, np.float32)}
    splits = np.stack([each.splits for each in targets])
    np.savez(path, edges=ends, classes=np.maximum(targets[0].classes, 0), splits=splits, **arrays)


def check_defaults(folder: Path, names: Iterable[str] = (), models: Iterable[str] = MODELS, seeds: int = SEEDS) -> None:
    """Print both accuracies on each graph; ours must not be more than a point below PyG's."""
    folder.mkdir(parents=True, exist_ok=True)
    data = os.environ.get("SUPERWORKFLOW_TEST_DATA")
    worse = []
    for name in names or (*(REAL if data else ()), *DRAWN):
        inputs = write_case(name, data and Path(data), folder / name / "tables")
        graph = run_stage(load_stage("heterograph"), {}, inputs, folder / name / "graph", 1)
        export(HeteroGraph.open(graph), seeds, folder / name / "graph.npz")
        for model in models:
            mine = [accuracy(graph, folder / name / f"{model}-{s}", {"model": model, "seed": s}) for s in range(seeds)]
            run_in("graphs", "in_pyg_defaults", folder / name / "graph.npz", model, folder / name / "theirs.json")
            theirs = json.loads((folder / name / "theirs.json").read_text())
            print(f"{name}, {model}: ours {shown(mine)}, PyG's {shown(theirs)}", flush=True)
            if np.mean(mine) < np.mean(theirs) - POINT:
                worse.append(f"{name} by {model}")
    assert not worse, worse


def shown(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"
