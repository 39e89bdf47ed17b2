"""`python -m tests.benchmarks.pipelines FOLDER [PICTURE]`: two epochs of full-graph training, sync and s=0.

GCN of three layers, 128 wide, on a graph of the stochastic block model with 24,000 vertices and 400,000 edges, in eight
intervals: two threads of the graph server and two tensor workers, on this machine. Draws `docs/pipelines.png` by
default; the graph stays in the folder.
"""

import shutil
import sys
from pathlib import Path

from superworkflow.__main__ import main as superworkflow
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.train_full.picture import timelines_picture
from superworkflow.tasks.train_full.timeline import TIMELINE_FILE
from tests.benchmarks.measure import ROOT

VERTICES, EDGES, CLASSES, WIDTH = 24_000, 400_000, 20, 100
PARAMS = {"layers": 3, "hidden": 128, "intervals": 8, "epochs": 8}
SIDES = {"sync": "synchronous: train_full.staleness=sync", "0": "bounded: train_full.staleness=0"}


def staged(name: str, params: dict[str, object], inputs: dict[str, str], output: Path, tensor: int = 0) -> Dataset:
    """The dataset of a stage on two threads, and on tensor workers if it has some; made anew."""
    shutil.rmtree(output, ignore_errors=True)
    workers = {"tensor": {"count": tensor, "most": tensor, "cpu": 0.5, "memory": "192Mi"}} if tensor else None
    given = Resources.model_validate({"cpu": 2, "memory": "4Gi", "workers": workers})
    engine = "workers" if tensor else "in-process"
    return execute(load_stage(name), params, inputs, str(output), given, Progress(name), engine).dataset


def inputs_of(folder: Path) -> dict[str, str]:
    """The graph and its sums; the files that they are made of are kept."""
    files = folder / "files"
    if not files.exists():
        sizes = {"--nodes": VERTICES, "--edges": EDGES, "--communities": CLASSES, "--width": WIDTH, "--out": files}
        given = [str(word) for pair in sizes.items() for word in pair]
        assert not superworkflow(["generate", "--model", "csbm", *given])
    edges, features, labels = (str(next(files.glob(f"{name}.*"))) for name in ("edges", "features", "labels"))
    staged("heterograph", {}, {"edges": edges, "features": features, "labels": labels}, folder / "graph")
    graph = {"graph": str(folder / "graph")}
    staged("aggregate", {"form": "gcn"}, graph, folder / "sums")
    return graph | {"sums": str(folder / "sums")}


def main(folder: Path, picture: Path) -> None:
    inputs, tables = inputs_of(folder), {}
    for staleness, title in SIDES.items():
        found = staged("train_full", PARAMS | {"staleness": staleness}, inputs, folder / f"s-{staleness}", 2)
        tables[title] = found.table(TIMELINE_FILE)
    timelines_picture(tables, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "pipelines.png")
