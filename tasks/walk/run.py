"""Run of stage `walk`: read the graph, make the walks shard by shard."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, warning_stats
from superworkflow.tasks.lib.graph.integrity import check_rows
from superworkflow.tasks.lib.graph.npy_slices import read_slice
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.walk.estimates import shard_walks
from superworkflow.tasks.walk.kernels.adjacency import PADDING
from superworkflow.tasks.walk.params import WalkParams
from superworkflow.tasks.walk.walker import Walker

load_kernels_fast()

MANY_STOPPED = 0.05
"""Share of walks that a sink ends above which the run warns."""


def run(job: StageRun[WalkParams]) -> Output:
    """Write the walks of `job.inputs["graph"]`.

    Raises:
        UserError: weights are asked for and the graph has none, or a start vertex is not in the graph.
    """
    graph, params = job.inputs["graph"], job.params
    walker = load_walker(graph, params, job.threads)
    total = params.num_walks * walker.n_starts
    spans = shard_spans(total, params.walk_length)
    names = shard_names(spans)
    job.output.claim(names, resumable=True)
    tokens, stopped, done, left = 0, 0, 0, []
    for i, name in enumerate(names):
        with job.output.left_whole(name) as path:
            if path is None:
                left.append(i)
                continue
            shard = np.load(path, mmap_mode="r", allow_pickle=False)
            more_tokens, more_stopped = count_tokens(shard)
            tokens, stopped, done = tokens + more_tokens, stopped + more_stopped, done + len(shard)
    if done:
        job.progress.log(f"{len(names) - len(left)} of {len(names)} shards are from an earlier attempt")
    buffers = [np.empty((spans[0][1], params.walk_length), walker.dtype) for _ in left[:2]]
    began, before = time.perf_counter(), tokens - done
    with ThreadPoolExecutor(job.threads) as pool:
        # One shard is written while the next one is made.
        pending = [walker.submit(pool, *spans[i], buffers[turn]) for turn, i in enumerate(left[:2])]
        for turn, i in enumerate(left):
            for piece in pending[turn]:
                piece.result()
            first, last = spans[i]
            shard = buffers[turn % 2][: last - first]
            job.output.array(names[i], shard)
            more_tokens, more_stopped = count_tokens(shard)
            tokens, stopped, done = tokens + more_tokens, stopped + more_stopped, done + len(shard)
            steps_per_s = (tokens - done - before) / (time.perf_counter() - began)
            job.progress.update(done, total, "walks", steps_per_s=steps_per_s)
            if turn + 2 < len(left):
                pending.append(walker.submit(pool, *spans[left[turn + 2]], buffers[turn % 2]))
            pending[turn] = []
    return walk_output(params, walker.n_starts, walker.vertices, walker.weighted, tokens, stopped)


def shard_spans(total: int, walk_length: int) -> list[tuple[int, int]]:
    """First walk and end of each shard of a dataset of `total` walks."""
    size = shard_walks(walk_length)
    return [(first, min(first + size, total)) for first in range(0, total, size)]


def shard_name(shard: int) -> str:
    """Name of a shard's file."""
    return f"walks-{shard:05d}.npy"


def shard_names(spans: Sequence[tuple[int, int]]) -> list[str]:
    """Names of all shards' files."""
    return [shard_name(shard) for shard in range(len(spans))]


def count_tokens(shard: npt.NDArray[Any]) -> tuple[int, int]:
    """Vertices in the walks of a shard, and how many walks a sink has ended."""
    short = shard[shard[:, -1] < 0]
    return (len(shard) - len(short)) * shard.shape[1] + int(np.count_nonzero(short >= 0)), len(short)


def walk_output(params: WalkParams, starts: int, vertices: int, weighted: bool, tokens: int, stopped: int) -> Output:
    """Output of the stage, on every engine.

    Args:
        params: of the walks.
        starts: start vertices.
        vertices: of the graph.
        weighted: steps are in proportion to weights.
        tokens, stopped: sums of `count_tokens`.
    """
    total = params.num_walks * starts
    return Output(
        rows=total,
        stats={
            "walks": total, "tokens": tokens, "steps": tokens - total, "walks_ended_by_sink": stopped,
            "walk_length": params.walk_length, "num_walks": params.num_walks, "start_vertices": starts,
            "vertices": vertices, "weighted": weighted, "shards": len(shard_spans(total, params.walk_length)),
            **warning_stats(_sink_warnings(stopped, total)),
        },
    )  # fmt: skip


def _sink_warnings(stopped: int, total: int) -> list[InputWarning]:
    if not stopped or stopped < MANY_STOPPED * total:
        return []
    what = f"{stopped / total:.0%} of the walks end early, at vertices without outgoing edges"
    return [InputWarning(what, "graph", f"{stopped:,} of {total:,} walks",
                         "Leave --directed out if both directions count, or raise walk.num_walks")]  # fmt: skip


def uses_weights(graph: Dataset, params: WalkParams) -> bool:
    """True if walks step in proportion to weights.

    Raises:
        UserError: weights are asked for and the graph has none.
    """
    has_weights = "weights.npy" in graph
    if params.weighted and not has_weights:
        raise UserError(
            "the graph has no weights", where="walk.weighted", value=True,
            remedy="Give index a weight column, or leave walk.weighted out",
        )  # fmt: skip
    return has_weights if params.weighted is None else params.weighted


def load_walker(graph: Dataset, params: WalkParams, threads: int) -> Walker:
    """The walker of an index dataset, its arrays in memory.

    Raises:
        UserError: as `run`.
    """
    weighted = uses_weights(graph, params)
    starts = None if params.start_vertices is None else find_vertices(graph, params.start_vertices)
    indptr, indices = graph.array("indptr.npy", mmap=False), padded_indices(graph)
    weights = graph.array("weights.npy", mmap=False) if weighted else None
    check_rows(graph.uri, indptr, indices[: len(indices) - PADDING], weights, len(indptr) - 1)
    return Walker(
        indptr,
        indices,
        weights,
        padded=True, directed=bool(graph.stats["directed"]), walk_length=params.walk_length,
        p=params.p, q=params.q, seed=params.seed, starts=starts, threads=threads,
    )  # fmt: skip


def find_vertices(graph: Dataset, labels: Sequence[str]) -> npt.NDArray[np.int64]:
    """Vertex ids of the labels, in their order.

    Raises:
        UserError: names the first label that is not in the graph.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    nodes = graph.table("vertices.parquet", ["node"])["node"].cast(pa.string())
    found = pc.index_in(pa.array(labels, pa.string()), value_set=nodes)
    if found.null_count:
        unknown = labels[found.is_null().index(True).as_py()]
        raise UserError(
            f"{found.null_count} of {len(labels)} start vertices are not in the graph, here is the first one",
            where="walk.start_vertices", value=unknown,
            remedy="Give labels as they stand in the edge list, of vertices that index has kept",
        )  # fmt: skip
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def padded_indices(graph: Dataset) -> npt.NDArray[Any]:
    """The neighbours of an index dataset followed by `PADDING` entries of -1, read without a copy."""
    return read_slice(Location.of(str(graph.local("indices.npy"))), padding=PADDING)
