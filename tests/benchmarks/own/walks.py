"""Our walks on an index dataset, through the array interface of the walk stage.

    python -m tests.benchmarks.own.walks INDEX WEIGHTED(0|1)
    {"p", "q", "walk_length", "num_walks", "threads", "seed", "seconds"} -> {"steps", "wall_s", "cpu_s", "tables_s"}

A job is `num_walks` walks from every vertex, with the tables that it needs (Bloom filter, alias tables) built anew,
all of it timed; jobs are repeated until `seconds` have passed. Walks go into one buffer, as in the stage.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from infra.dataset import Dataset
from infra.filesystem import Location
from tasks.walk import shard_walks
from tasks.walk.run import read_padded
from tasks.walk.walker import Walker
from tests.benchmarks.peers.serving import Clock, serve

graph: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    dataset = Dataset.open(Location.of(sys.argv[1]))
    weighted = sys.argv[2] == "1"
    graph.update(
        indptr=dataset.array("indptr.npy", mmap=False), indices=read_padded(dataset.local("indices.npy")),
        weights=dataset.array("weights.npy", mmap=False) if weighted else None, padded=True,
        directed=bool(dataset.stats["directed"]),
    )  # fmt: skip
    return {"vertices": len(graph["indptr"]) - 1, "edges": int(graph["indptr"][-1])}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    job(request, request["seed"], few=True)  # loads the compiled kernels
    steps, tables_s, number = 0, 0.0, 0
    begun = time.perf_counter()
    with Clock() as clock:
        while number == 0 or time.perf_counter() - begun < request["seconds"]:
            done, seconds = job(request, request["seed"] + number)
            steps, tables_s, number = steps + done, tables_s + seconds, number + 1
    return {"steps": steps, "tables_s": tables_s / number, "jobs": number, **clock.seconds()}


def job(request: dict[str, Any], seed: int, few: bool = False) -> tuple[int, float]:
    """Steps of one job and the seconds that its tables took."""
    threads, length = request["threads"], request["walk_length"]
    with Clock() as tables:
        walker = Walker(**graph, walk_length=length, p=request["p"], q=request["q"], seed=seed, threads=threads)
    total = min(1000, walker.n_starts) if few else walker.n_starts * request["num_walks"]
    size = min(total, shard_walks(length))
    out, taken = np.empty((size, length), walker.dtype), 0
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, total, size):
            last = min(total, first + size)
            for piece in walker.submit(pool, first, last, out):
                piece.result()
            taken += last - first
            if out[0, -1] < 0:
                raise ValueError("a walk met a sink: steps would be counted that were not made")
    return taken * (length - 1), tables.wall_s


serve(answer, prepare)
