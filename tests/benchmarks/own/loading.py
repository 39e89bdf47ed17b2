"""Batches of 64 stored subgraphs with their features, as tensors, shuffled, by one thread: an epoch.

python -m tests.benchmarks.own.loading FOLDER
{"kept": whether subgraphs are in memory since the epoch before} -> {"batches", "wall_s", "cpu_s"}
"""

import sys
from pathlib import Path
from typing import Any

from superworkflow.loader import Subgraphs
from tests.benchmarks.peers.serving import Clock, serve

made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    folder = Path(sys.argv[1])
    for kept in (False, True):
        made[kept] = Subgraphs(str(folder / "graph"), str(folder / "sample"), kept_bytes=1 << 32 if kept else 0)
    return {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    made["epoch"] = made.get("epoch", 0) + 1
    with Clock() as clock:
        found = sum(1 for _ in made[request["kept"]].batches(64, epoch=made["epoch"]))
    return {"batches": found, **clock.seconds()}


serve(answer, prepare)
