"""Training on two workers with and without look-ahead, and with time added to each exchange between them.

    python -m tests.benchmarks.own.gnn_look_ahead FOLDER [NODES]

Writes a line of JSON for each setting: seconds, and those in which each stage of the pipeline was busy on the first
worker. An exchange is one `all_to_all` of torch.distributed; `sums` says that the sum of gradients is delayed as well.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.progress import Progress
from superworkflow.tasks import partition, shard
from superworkflow.tasks._gnn.owners import Exchange
from superworkflow.tasks.train import TrainParams
from superworkflow.tasks.train.on_workers import train
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

COMMUNITIES, DEGREE, WIDTH = 100, 10, 100
PARAMS = {"model": "sage", "hidden": 64, "fanouts": "10,10", "batch": 512, "epochs": 1, "train_share": 0.8,
          "validation_share": 0.0}  # fmt: skip
SETTINGS = [(8, 0.0, False), (0, 0.0, False), (8, 0.005, False), (0, 0.005, False), (8, 0.005, True)]
"""Look-ahead, seconds added to each exchange, and whether the sum of gradients is delayed as well."""


def delayed(worker: Worker, delay_s: float, sums: bool, *given: Any) -> dict[str, Any]:
    """Train, with time added to each exchange."""
    swap, add = Exchange._all_to_all, dist.all_reduce

    def late_swap(*args: Any) -> None:
        time.sleep(delay_s)
        swap(*args)

    def late_add(*args: Any) -> None:
        time.sleep(delay_s)
        add(*args)

    Exchange._all_to_all = late_swap  # type: ignore[method-assign]
    if sums:
        dist.all_reduce = late_add
    torch.set_num_threads(worker.threads)
    try:
        return train(worker, *given)
    finally:
        Exchange._all_to_all = swap  # type: ignore[method-assign]
        dist.all_reduce = add


def main(folder: Path, nodes: int) -> None:
    """Measure on a graph of planted communities."""
    rng = np.random.default_rng(1)
    kind = np.arange(nodes) % COMMUNITIES
    names = [f"n{i:07}" for i in range(nodes)]
    sources = np.repeat(np.arange(nodes), DEGREE)
    near = (sources + COMMUNITIES * rng.integers(1, nodes // COMMUNITIES, len(sources))) % nodes
    targets = np.where(rng.random(len(sources)) < 0.9, near, rng.integers(0, nodes, len(sources)))
    rows = [(names[a], names[b]) for u, v in zip(sources, targets, strict=True) for a, b in ((u, v), (v, u))]
    features = rng.normal(size=(nodes, WIDTH)).astype(np.float32)
    features[np.arange(nodes), kind] += 2
    given = {"label": [f"k{each}" for each in kind], "features": features}
    graph = write_heterograph(folder / "graph", {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows)})
    of = {"graph": str(folder / "graph")}
    parts = run_stage(partition.STAGE, {"parts": 4}, of, folder / "parts")
    shards = run_stage(shard.STAGE, {}, of | {"partition": parts.uri}, folder / "shards")
    progress = Progress("train", stream=(folder / "log").open("w"))
    with local_group([Role("worker", 2)], Checkpoint(folder / "kept"), progress, folder) as group:
        for number, (lookahead, delay_s, sums) in enumerate([(8, 0.0, False), *SETTINGS]):  # the first to warm up
            whole = TrainParams(**PARAMS, lookahead=lookahead).model_dump(mode="json")
            output = folder / f"trained-{number}"
            told = group.run(delayed, delay_s, sums, whole, graph.uri, shards.uri, "", str(output))[0]
            steps = told["facts"]["steps"]
            if number:
                sys.stdout.write(json.dumps({
                    "lookahead": lookahead, "delay_ms": 1000 * delay_s, "sums": sums, "steps": steps,
                    "ms_a_step": round(1000 * told["wall_s"] / steps, 1),
                    "busy": {name: round(value / told["wall_s"], 3) for name, value in told["spent"].items()},
                }) + "\n")  # fmt: skip
                sys.stdout.flush()


if __name__ == "__main__":
    from tests.benchmarks.own import gnn_look_ahead  # whose functions workers can import

    gnn_look_ahead.main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
