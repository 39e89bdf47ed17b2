"""`python -m tests.benchmarks.graph_servers FOLDER`: full-graph training in one process, and on 1 to 3 graph servers.

GCN 100-128-128-20 and GAT on the graph of `pipelines`, each server with one thread, on this machine; prints a row for
each with seconds an epoch, CPU seconds, ghosts and bytes. The graph stays in the folder.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from tests.benchmarks.pipelines import inputs_of

PARAMS = {"layers": 3, "hidden": 128, "intervals": 12, "epochs": 10, "seed": 1}
SAME = ("model.safetensors", "history.parquet")


def trained(params: dict[str, Any], inputs: dict[str, str], output: Path, servers: int) -> tuple[Dataset, float]:
    """Training, and CPU seconds of one process, or of all graph servers."""
    shutil.rmtree(output, ignore_errors=True)
    workers = {"graph": {"count": servers, "cpu": 1, "memory": "4Gi"}} if servers else None
    given = Resources.model_validate({"cpu": 1, "memory": "4Gi", "workers": workers})
    progress, began = Progress("train_full", stream=io.StringIO()), time.process_time()
    engine = "workers" if servers else "in-process"
    found = execute(load_stage("train_full"), params, inputs, str(output), given, progress, engine).dataset
    return found, float(str(found.stats["graph.cpu_s"])) if servers else time.process_time() - began


def main(folder: Path) -> None:
    inputs = inputs_of(folder)
    names = [
        "network",
        "graph servers",
        "s an epoch",
        "CPU s",
        "ghosts",
        "Scatter, MB an epoch",
        "gradients, MB an epoch",
    ]
    show(names)
    show(["---"] * 2 + ["---:"] * 5)
    for model in ("gcn", "gat"):
        given = inputs if model == "gcn" else {"graph": inputs["graph"]}
        alone = None
        for servers in (0, 1, 2, 3):
            found, cpu_s = trained(PARAMS | {"model": model}, given, folder / f"{model}-{servers}", servers)
            alone = alone or found
            assert all(found.local(name).read_bytes() == alone.local(name).read_bytes() for name in SAME)
            sent = [int(str(found.stats.get(f"graph.{kind}_bytes", 0))) for kind in ("scatter", "gradients")]
            each_epoch = [f"{size / 1e6 / float(str(found.stats['epochs'])):.2f}" for size in sent]
            show([model, str(servers or "one process"), f"{found.stats['epoch_s']:.3f}", f"{cpu_s:.1f}",
                  str(found.stats.get("graph.ghosts", 0)), *each_epoch])  # fmt: skip


def show(cells: list[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
