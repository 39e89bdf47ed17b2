"""Accuracy of `gnn` with nothing set but the model, against PyG's examples on the same graphs, features and splits.

python -m tests.oracles.gnn_defaults RESULTS [--graphs G,…] [--models M,…] [--seeds 3]

RESULTS gets a line of JSON for each graph and model, small graphs first, as soon as both sides have been trained.
Graphs and models that it has are not trained again, so a run that was ended continues where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
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
from tests.oracles.gnn_cases import cases, write_case
from tests.tasks.index_helpers import run_stage

MODELS, SEEDS, POINT = ("gcn", "gat", "sage"), 3, 0.01


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


def compare(graph: Dataset, folder: Path, model: str, seeds: int) -> dict[str, list[float]]:
    """Test accuracies of both sides by seed, and the CPU seconds of each training."""
    found: dict[str, list[float]] = {"ours": [], "cpu": []}
    for seed in range(seeds):
        start = time.process_time()
        found["ours"].append(accuracy(graph, folder / f"{model}-{seed}", {"model": model, "seed": seed}))
        found["cpu"].append(round(time.process_time() - start, 1))
    out = folder / "theirs.json"
    run_in("graphs", "in_pyg_defaults", folder / "graph.npz", model, out)
    return found | json.loads(out.read_text())


def check_defaults(
    folder: Path, results: Path, names: Sequence[str] = (), models: Sequence[str] = MODELS, seeds: int = SEEDS
) -> None:
    """Print both accuracies on each graph; ours must not be more than a point below PyG's.

    Args:
        folder: for graphs and networks.
        results: file to append to; what it has is printed only.
        names: of graphs; by default all that are there, small ones first.
        models, seeds: trained on each.
    """
    data, lists = os.environ.get("SUPERWORKFLOW_TEST_DATA"), Path("/var/lib/apt/lists")
    results.parent.mkdir(parents=True, exist_ok=True)
    results.touch()
    read = [json.loads(line) for line in results.read_text().splitlines()]
    there = {(row["graph"], row["model"]): row for row in read if len(row["ours"]) >= seeds}
    worse = []
    for name in names or cases(data and Path(data), lists):
        graph: Dataset | None = None
        for model in models:
            row = there.get((name, model))
            if row is None:
                if graph is None:
                    inputs = write_case(name, Path(data or ""), folder / name / "tables", lists)
                    graph = run_stage(load_stage("heterograph"), {}, inputs, folder / name / "graph", 1)
                    export(HeteroGraph.open(graph), seeds, folder / name / "graph.npz")
                row = {"graph": name, "model": model} | compare(graph, folder / name, model, seeds)
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            ours, theirs = row["ours"][:seeds], row["theirs"][:seeds]
            print(f"| {name} | {model} | {shown(ours)} | {shown(theirs)} |", flush=True)
            if np.mean(ours) < np.mean(theirs) - POINT:
                worse.append(f"{name} by {model}")
    assert not worse, worse


def shown(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=())
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        check_defaults(Path(made), given.results, given.graphs, given.models, given.seeds)
