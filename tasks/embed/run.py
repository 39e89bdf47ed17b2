"""The work of stage `embed`: tables, training, and the Parquet file of vectors by label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed.device import check_device
from superworkflow.tasks.embed.tables import EmbeddingPosition, EmbeddingTables, load_checkpoint, warm_start
from superworkflow.tasks.embed.train import Kernel, NumbaKernel, Vocabulary, train
from superworkflow.tasks.lib.formats.arrow import column

ROW_GROUP_BYTES = 4 << 20


def run(job: StageRun[EmbedParams]) -> Output:
    """Train on `job.inputs["walks"]` and write one vector for each kept vertex.

    Raises:
        UserError: the device is not there, walks or vocabulary are of another graph, earlier embeddings do not fit, or
            training diverged.
    """
    params, graph = job.params, job.inputs["graph"]
    check_device(params)
    vocabulary = Vocabulary.read(job.inputs["vocabulary"], int(graph.stats["vertices"] or 0))
    rows = len(vocabulary.threshold)
    tables = EmbeddingTables.random(rows, params.dimensions, params.seed, params.optimizer == "adagrad")
    matched = 0
    if "initial" in job.inputs:
        matched = warm_start(tables.centre, job.inputs["initial"], graph, vocabulary.remap)
        job.progress.log(f"{matched:,} of {rows:,} vectors start from earlier embeddings")
    position = load_checkpoint(job.checkpoint, tables)
    if position is None:
        position = EmbeddingPosition()
    else:
        job.progress.log(f"resuming at epoch {position.epoch + 1}, shard {position.shard}")
    kernel = make_kernel(tables, vocabulary, params, job.threads)
    position = train(
        kernel, tables, job.inputs["walks"], len(vocabulary.remap), params, position, job.checkpoint,
        job.save_checkpoint, job.progress,
    )  # fmt: skip
    with job.output.file("embeddings.parquet") as path:
        write_embeddings(path, tables.centre, graph, vocabulary.remap)
    return Output(
        rows=rows,
        stats={
            "rows": rows, "dimensions": params.dimensions, "vertices": len(vocabulary.remap), "matched": matched,
            "tokens": int(job.inputs["walks"].stats["tokens"] or 0) * params.epochs, "loss": position.losses[-1],
            "kernel": params.engine,
        },
    )  # fmt: skip


def make_kernel(tables: EmbeddingTables, vocabulary: Vocabulary, params: EmbedParams, threads: int) -> Kernel:
    """The kernel that the parameters ask for."""
    if params.engine == "numba":
        from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

        load_kernels_fast()
        return NumbaKernel(tables, vocabulary, params, threads)
    from superworkflow.tasks.embed.torch_kernel import TorchKernel

    return TorchKernel(tables, vocabulary, params, threads)


def write_embeddings(path: Path, vectors: NDArray[np.float32], graph: Dataset, remap: NDArray[Any]) -> None:
    """Write `node` and `vector` of the kept vertices, by vertex id, a row group at a time."""
    dimensions = vectors.shape[1]
    schema = pa.schema([("node", pa.string()), ("vector", pa.list_(pa.float32(), dimensions))])
    size = max(1, ROW_GROUP_BYTES // (4 * dimensions))
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        for first, labels in _labels(graph, size):
            row = remap[first : first + len(labels)]
            kept = row >= 0
            if not kept.any():
                continue
            values = column(vectors[row[kept]].reshape(-1))
            batch = [labels.take(column(np.flatnonzero(kept))), pa.FixedSizeListArray.from_arrays(values, dimensions)]
            writer.write_table(pa.Table.from_arrays(batch, schema=schema), row_group_size=size)


def _labels(graph: Dataset, size: int) -> Iterator[tuple[int, pa.Array]]:
    """(first vertex, labels) of consecutive vertices."""
    first = 0
    with graph.parquet("vertices.parquet") as file:
        for batch in file.iter_batches(size, columns=["node"]):
            yield first, batch["node"].cast(pa.string())
            first += batch.num_rows
