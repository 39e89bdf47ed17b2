"""Our walks on an index dataset, through the array interface of the walk stage.

    python -m tests.benchmarks.own.walks INDEX WEIGHTED(0|1)
    {"p", "q", "walk_length", "num_walks", "threads", "seed", "seconds"} -> {"steps", "wall_s", "cpu_s", "tables_s"}

A job is `num_walks` walks from every vertex, with the tables that it needs (Bloom filter, alias tables) built anew for
it. The tables are timed in full, the walks for about `seconds`, from which the rest is extrapolated; short jobs
are repeated. Walks go into one buffer, as in the stage.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.walk.estimates import shard_walks
from superworkflow.tasks.walk.run import padded_indices
from superworkflow.tasks.walk.walker import Walker
from tests.benchmarks.peers.serving import Clock, serve

graph: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    dataset = Dataset.open(sys.argv[1])
    weighted = sys.argv[2] == "1"
    graph.update(
        indptr=dataset.array("indptr.npy", mmap=False), indices=padded_indices(dataset),
        weights=dataset.array("weights.npy", mmap=False) if weighted else None, padded=True,
        directed=bool(dataset.stats["directed"]),
    )  # fmt: skip
    return {"vertices": len(graph["indptr"]) - 1, "edges": int(graph["indptr"][-1])}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    job(request, request["seed"], few=True)  # loads the compiled kernels
    begun, jobs = time.perf_counter(), []
    while not jobs or time.perf_counter() - begun < request["seconds"]:
        jobs.append(job(request, request["seed"] + len(jobs)))
    return {"jobs": len(jobs), "tables_s": jobs[0]["tables_s"]} | {
        name: sum(each[name] for each in jobs) for name in ("steps", "wall_s", "cpu_s")
    }


def job(request: dict[str, Any], seed: int, few: bool = False) -> dict[str, float]:
    """Steps of one job, and what all of it takes; `few` makes 1000 walks."""
    threads, length = request["threads"], request["walk_length"]
    with Clock() as tables:
        walker = Walker(**graph, walk_length=length, p=request["p"], q=request["q"], seed=seed, threads=threads)
    total = min(1000, walker.n_starts) if few else walker.n_starts * request["num_walks"]
    size = min(total, shard_walks(length))
    out, made = np.empty((size, length), walker.dtype), 0
    with ThreadPoolExecutor(threads) as pool, Clock() as walking:
        begun = time.perf_counter()
        while made < total and (made == 0 or time.perf_counter() - begun < request["seconds"]):
            last = min(total, made + size)
            for piece in walker.submit(pool, made, last, out[: last - made]):
                piece.result()
            made = last
    if (out[: min(size, made), -1] < 0).any():
        raise ValueError("a walk met a sink: steps would be counted that were not made")
    share = total / made
    return {
        "steps": total * (length - 1), "tables_s": tables.wall_s, "wall_s": tables.wall_s + walking.wall_s * share,
        "cpu_s": tables.cpu_s + walking.cpu_s * share,
    }  # fmt: skip


serve(answer, prepare)
