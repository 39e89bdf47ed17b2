"""Batches of 64 stored subgraphs with their features, as tensors, shuffled, by one thread.

python -m tests.benchmarks.own.loading FOLDER
{"batches"} -> {"batches", "wall_s", "cpu_s"}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from superworkflow.loader import Batch, Subgraphs
from tests.benchmarks.peers.serving import Clock, serve

made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    folder = Path(sys.argv[1])
    made["batches"] = _endless(Subgraphs(str(folder / "graph"), str(folder / "sample")))
    return {}


def _endless(subgraphs: Subgraphs) -> Iterator[Batch]:
    for epoch in count():
        yield from subgraphs.batches(64, epoch=epoch, drop_last=len(subgraphs) >= 64)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        found = sum(1 for _ in islice(made["batches"], request["batches"]))
    return {"batches": found, **clock.seconds()}


serve(answer, prepare)
