"""`python -m tests.benchmarks.full_graph_value FOLDER [gcn] [gat]`: training to one accuracy, ours and DGL's.

GCN and GAT on Debian's packages (sparse, from apt's lists) and on a graph of the stochastic block model (dense), with
`train_full`'s defaults on both sides, one thread each: ours, DGL on the whole graph, and DGL on batches of sampled
neighbours, at several learning rates. Prints CPU seconds until validation reaches 99% of the best that DGL's whole
graph reaches, the test accuracy of the epoch that validates best, and the value 1 / (seconds x cost) against DGL's
whole graph. All run on one machine, whose price is a factor of both costs, so that the value is the square of the
speed. Ours counts sums of features, start, validation and files; DGL's training alone. Graphs and results stay in the
folder, and what is there is not made again.
"""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.debian_archive import LISTS
from superworkflow.__main__ import main as superworkflow
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.objective.labels import targets_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train_full.params import TrainFullParams
from tests.benchmarks.setting import Setting
from tests.oracles.gnn_cases import DEBIAN, write_case
from tests.tasks.index_helpers import run_stage

EQUAL, SEED = 0.99, 0
DENSE = {"nodes": 24_000, "edges": 1_200_000, "communities": 40, "width": 128, "homophily": 0.2, "signal": 0.05}
OURS, WHOLE = "ours", "DGL, whole graph"
RATES = 0.01, 0.003, 0.001
"""Learning rates: as a sampled epoch is as many steps as it has batches, that of the whole graph is too high."""
BATCHES = {"fanouts": [10, 10], "batch": 1024, "epochs": 20}
Curve = dict[str, list[float]]
"""By epoch: `cpu_s` since the start, accuracies `validation` and `test`."""


def graph_of(name: str, folder: Path) -> str:
    """The typed graph, and what the peer reads of it."""
    graph = folder / "graph"
    if not (folder / "peer.npz").exists():
        if name == "sparse":
            inputs = write_case(DEBIAN, Path(), folder / "files", Path(LISTS))
        else:
            given = [str(word) for each in DENSE.items() for word in (f"--{each[0]}", each[1])]
            assert not superworkflow(["generate", "--model", "csbm", *given, "--out", str(folder / "files")])
            found = {each: next((folder / "files").glob(f"{each}.*")) for each in ("edges", "features", "labels")}
            inputs = {each: str(path) for each, path in found.items()}
        read = HeteroGraph.open(run_stage(load_stage("heterograph"), {}, inputs, graph, 1))
        (indptr, indices), targets = read.rows("edge"), targets_of(read, "", TrainFullParams().shares, SEED)
        edges = np.stack([indices.astype(np.int64), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))])
        features = np.array(features_of(read, "node"), np.float32)
        classes = np.maximum(targets.classes, 0)
        np.savez(folder / "peer.npz", edges=edges, features=features, classes=classes, splits=targets.splits)
    return str(graph)


def ours(model: str, graph: str, folder: Path) -> Curve:
    """Our own course of training; the last epoch's seconds are those of both stages."""
    begun, inputs = time.process_time(), {"graph": graph}
    if model == "gcn":
        inputs["sums"] = run_stage(load_stage("aggregate"), {"form": "gcn"}, inputs, folder / "sums", 1).uri
    before = time.process_time() - begun
    found = run_stage(load_stage("train_full"), {"model": model, "seed": SEED}, inputs, folder / "train", 1)
    spent = time.process_time() - begun
    history = found.table("history.parquet")
    predicted = run_stage(load_stage("infer"), {}, {"graph": graph, "network": found.uri}, folder / "infer", 1)
    scores = run_stage(load_stage("score"), {}, {"predictions": predicted.uri}, folder / "score", 1)
    validation = history["validation_accuracy"].to_pylist()
    return {
        "cpu_s": np.linspace(before, spent, len(validation) + 1)[1:].tolist(), "validation": validation,
        "test": [float(scores.json("metrics.json")["accuracy@test"])] * len(validation),
    }  # fmt: skip


def sides_of(model: str) -> dict[str, Mapping[str, Any]]:
    """Requests to the peer, by side."""
    sides: dict[str, Mapping[str, Any]] = {WHOLE: {"fanouts": None, "batch": 0, "epochs": 300}}
    for name in ("gcn", "sage") if model == "gcn" else (model,):
        for rate in RATES:
            sides[f"DGL, sampled {name}, rate {rate}"] = {**BATCHES, "model": name, "learning_rate": rate}
    return sides


def theirs(setting: Setting, model: str, request: Mapping[str, Any], folder: Path) -> Curve:
    params = TrainFullParams.model_validate({"model": model})
    splits = np.load(folder / "peer.npz")["splits"]
    same = params.concrete(int((splits == 0).sum()))
    given = {name: getattr(same, name) for name in ("dropout", "learning_rate", "weight_decay", "heads")}
    given |= {"model": model, "hidden": params.width, "seed": SEED, **request}
    with setting.peer("dgl_full_graph", folder / "peer.npz", python=setting.set_up_apart("dgl")) as peer:
        return peer.ask(**given)


def main(folder: Path, models: Sequence[str]) -> None:
    setting = Setting(threads=1)
    rows = [["graph", "network", "side", "epochs", "CPU s an epoch", "CPU s to accuracy", "test accuracy", "value"]]
    for name in ("sparse", "dense"):
        for model in models:
            curves: dict[str, Curve] = {}
            for side, request in {OURS: {}, **sides_of(model)}.items():
                own = folder / name / f"{model}-{re.sub('[^a-z0-9.]+', '-', side)}"
                kept = own / "curve.json"
                if not kept.exists():
                    graph = graph_of(name, folder / name)
                    setting.say(f"{name}, {model}: {side}")
                    own.mkdir(parents=True, exist_ok=True)
                    found = ours(model, graph, own) if side == OURS else theirs(setting, model, request, folder / name)
                    kept.write_text(json.dumps(found))
                curves[side] = json.loads(kept.read_text())
            rows += compared(name, model, curves)
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n")


def compared(name: str, model: str, curves: Mapping[str, Curve]) -> list[list[str]]:
    """A row for each side."""
    goal = EQUAL * max(curves[WHOLE]["validation"])
    reached = {side: seconds_to(goal, curve) for side, curve in curves.items()}
    rows = []
    for side, curve in curves.items():
        best, count, seconds = int(np.argmax(curve["validation"])), len(curve["cpu_s"]), reached[side]
        value = "" if seconds is None or reached[WHOLE] is None else f"{(reached[WHOLE] / seconds) ** 2:.1f}"
        rows.append([
            name, model, side, str(count), f"{curve['cpu_s'][-1] / count:.3f}",
            "not reached" if seconds is None else f"{seconds:.1f}", f"{curve['test'][best]:.3f}", value,
        ])  # fmt: skip
    return rows


def seconds_to(goal: float, curve: Curve) -> float | None:
    return next((s for s, figure in zip(curve["cpu_s"], curve["validation"], strict=True) if figure >= goal), None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["gcn", "gat"])
