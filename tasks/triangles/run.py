"""The work of stage `triangles`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.vertex.stage import GLOBALS, SHARD
from superworkflow.tasks.triangles.kernel import BLOCK, count_triangles, lower_rows


def run(job: StageRun[StageParams]) -> Output:
    """Count; see `tasks.triangles`."""
    graph = job.inputs["graph"]
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    vertices = len(indptr) - 1
    check_rows(graph.uri, indptr, indices, None, vertices)
    if graph.stats["directed"]:
        indptr, indices = _both_ways(indptr, indices)
    counts = triangles(indptr, indices, job.threads)
    degrees = np.diff(indptr)
    pairs = degrees * (degrees - 1) // 2
    clustering = counts / np.maximum(1, pairs)
    found = {
        "triangles": int(counts.sum()) // 3, "transitivity": float(counts.sum() / max(1, pairs.sum())),
        "mean_clustering": float(clustering.mean()) if vertices else 0.0,
    }  # fmt: skip
    for name, values in (("triangles", counts), ("clustering", clustering)):
        for number, low in enumerate(range(0, max(1, vertices), SHARD)):
            job.output.array(f"{name}-{number:05d}.npy", values[low : low + SHARD])
    job.output.json(GLOBALS, found)
    job.progress.log(f"{found['triangles']} triangles, transitivity {found['transitivity']:.4g}, "
                     f"mean clustering coefficient {found['mean_clustering']:.4g}")  # fmt: skip
    stats = {f"global.{name}": value for name, value in found.items()}
    return Output(rows=vertices, stats={"vertices": vertices, "fields": "triangles,clustering", **stats})


def triangles(indptr: NDArray[np.int64], indices: NDArray[np.int32], threads: int) -> NDArray[np.int64]:
    """Triangles of each vertex.

    Args:
        indptr: int64 [vertices + 1].
        indices: int32 [arcs], ascending in each row, both arcs of each edge.
        threads: how many count.
    """
    vertices = len(indptr) - 1
    starts, lower = np.empty(vertices + 1, np.int64), np.empty(len(indices), np.int32)
    lower_rows(indptr, indices, starts, lower)
    lower, claims = lower[: starts[-1]], np.zeros(1, np.int64)
    threads = min(threads, -(-vertices // BLOCK)) or 1
    counts: list[NDArray[np.int64]] = [np.zeros(vertices, np.int64) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda own: count_triangles(starts, lower, claims, np.zeros(vertices, np.uint8), own), counts))
    total: NDArray[np.int64] = np.sum(counts, axis=0, dtype=np.int64)
    return total


def _both_ways(indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows that have each edge in both directions, once."""
    ones, size = np.ones(len(indices), np.int8), len(indptr) - 1
    out = sp.csr_array((ones, indices, indptr), (size, size))
    both = sp.csr_array(out.maximum(out.T.tocsr()))
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices.astype(np.int32)
