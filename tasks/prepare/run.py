"""Run of stage `prepare`: count vertices, select the vocabulary, build the distributions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, Progress, StageRun
from superworkflow.infra.storage.dataset import Dataset, FileWriter
from superworkflow.tasks.lib.graph.integrity import foreign_vertex
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.prepare import COUNTERS, PrepareParams
from superworkflow.tasks.prepare.alias import alias_table

load_kernels_fast()


def run(job: StageRun[PrepareParams]) -> Output:
    """Write the vocabulary of `job.inputs["walks"]`.

    Raises:
        UserError: no vertex occurs `min_count` times.
    """
    walks = job.inputs["walks"]
    counts = count_vertices(walks, int(job.inputs["graph"].stats["vertices"] or 0), job.threads, job.progress)
    job.output.claim(FILES)
    result = write_vocabulary(job.output, counts, walks, job.params)
    stats = result.stats
    job.progress.log(
        f"kept {stats['rows']:,} of {stats['vertices_in_walks']:,} vertices in the walks, "
        f"{stats['tokens']:,} tokens, dropped {stats['tokens_dropped']:,}"
    )
    return result


FILES = ("kept.npy", "remap.npy", "counts.npy", "negative_threshold.npy", "negative_alias.npy", "keep.npy")
"""Files of a vocabulary; the last one only if frequent vertices are subsampled."""


def write_vocabulary(output: FileWriter, counts: NDArray[np.int64], walks: Dataset, params: PrepareParams) -> Output:
    """Write the dataset, from the occurrences of each vertex.

    Raises:
        UserError: no vertex occurs `min_count` times.
    """
    if not counts.max(initial=0):
        raise UserError("the walks are empty", where=walks.uri, remedy="Give walks with at least one vertex")
    vertices = len(counts)
    if counts.max() < params.min_count:
        raise UserError(
            f"no vertex occurs at least min_count times; the most frequent one occurs {counts.max()} times",
            where="prepare.min_count", value=params.min_count, remedy="Lower it, or make more or longer walks",
        )  # fmt: skip
    integer = np.int32 if vertices < 2**31 else np.int64
    kept = keep_vertices(counts, params.min_count).astype(integer)
    remap = np.full(vertices, -1, integer)
    remap[kept] = np.arange(len(kept), dtype=integer)
    seen = int(np.count_nonzero(counts))
    tokens = int(counts.sum())
    counts = counts[kept]
    kept_tokens = int(counts.sum())
    for name, values in (("kept.npy", kept), ("remap.npy", remap), ("counts.npy", counts)):
        output.array(name, values)
    rows = len(kept)
    del kept, remap
    threshold, alias = alias_table(counts.astype(np.float64) ** params.power)
    output.array("negative_threshold.npy", threshold)
    output.array("negative_alias.npy", alias.astype(integer, copy=False))
    expected = float(kept_tokens)
    if params.sample:
        keep = keep_probability(counts, params.sample)
        output.array("keep.npy", keep)
        expected = float(keep @ counts)
    return Output(
        rows=rows,
        stats={
            "rows": rows, "vertices": vertices, "vertices_in_walks": seen, "tokens": kept_tokens,
            "tokens_dropped": tokens - kept_tokens, "expected_tokens": expected,
            "walks": walks.stats["walks"], "largest_count": int(counts[0]),
        },
    )  # fmt: skip


def count_vertices(walks: Dataset, vertices: int, threads: int, progress: Progress) -> NDArray[np.int64]:
    """Count the occurrences of each vertex; each thread holds one shard in memory.

    Raises:
        UserError: a vertex of the walks is not in the graph.
    """
    names = walks.files("walks-*.npy")
    threads = max(1, min(threads, COUNTERS, len(names)))
    private = [np.zeros(vertices, np.int64) for _ in range(threads)]
    done, began = 0, time.perf_counter()

    def count(index: int) -> list[tuple[str, int, int]]:
        nonlocal done
        found = []
        for name in names[index::threads]:
            shard = np.ascontiguousarray(walks.array(name))
            walks_counted, bad = shard.shape[0], int(count_tokens(shard.reshape(-1), private[index]))
            walks.release(name)
            found.append((name, walks_counted, bad))
        return found

    with ThreadPoolExecutor(threads) as pool:
        for result in pool.map(count, range(threads)):
            for name, size, bad in result:
                if bad >= 0:
                    raise foreign_vertex(f"{walks.uri}/{name}", bad, vertices)
                done += size
                progress.update(
                    done, int(walks.stats["walks"] or done), "walks", walks_per_s=done / (time.perf_counter() - began)
                )
    total = private[0]
    for other in private[1:]:
        total += other
    return total


@njit(nogil=True, cache=True)
def count_tokens(tokens: Any, counts: Any) -> int:
    """Add occurrences to ``counts`` [vertices] in place; returns -1, or the first vertex that is out of range."""
    for i in range(len(tokens)):
        vertex = tokens[i]
        if vertex >= 0:
            if vertex >= len(counts):
                return int(vertex)
            counts[vertex] += 1
    return -1


def keep_vertices(counts: NDArray[np.int64], min_count: int) -> NDArray[np.int64]:
    """Vertices that occur at least `min_count` times, the most frequent first, ties by id."""
    kept = np.flatnonzero(counts >= min_count)
    return kept[np.argsort(-counts[kept], kind="stable")]


def keep_probability(counts: NDArray[np.int64], sample: float) -> NDArray[np.float32]:
    """Probability of keeping an occurrence, as the word2vec program computes it (Mikolov et al., 2013)."""
    share = counts / counts.sum()
    ratio = sample / share
    keep: NDArray[np.float32] = np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)
    return keep
