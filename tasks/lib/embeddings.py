"""Rows of an embed dataset, by vertex."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset

EMBEDDINGS = "embeddings.parquet"


_BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class Gathered:
    """Vectors of the nodes that were asked for.

    Args:
        vectors: float32 `[n, d]`, zeros for nodes without a vector.
        missing: how many of the nodes have no vector.
    """

    vectors: NDArray[np.float32]
    missing: int


def gather(embeddings: Dataset, nodes: pa.Array) -> Gathered:
    """Vectors of `nodes` (distinct strings), in their order; takes memory for those only."""
    with open_embeddings(embeddings) as file:
        dimensions = dimensions_of(file.schema_arrow, embeddings)
        result = np.zeros((len(nodes), dimensions), dtype=np.float32)
        seen = 0
        for batch in batches(file, _BATCH_ROWS):
            place = pc.index_in(batch["node"].cast(nodes.type), value_set=nodes)
            rows = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
            if len(rows):
                result[pc.drop_null(place).to_numpy()] = vectors_of(batch, dimensions)[rows]
                seen += len(rows)
    return Gathered(result, len(nodes) - seen)


def open_embeddings(embeddings: Dataset) -> pq.ParquetFile:
    """The table of embeddings for streaming; not mapped, since mapped pages that were read stay in the resident set."""
    return pq.ParquetFile(embeddings.local(EMBEDDINGS), memory_map=False)


def batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Nodes and vectors, at most `rows` at once; group by group, because a reader over all groups keeps them all."""
    for group in range(file.metadata.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=["node", "vector"])


def dimensions_of(schema: pa.Schema, embeddings: Dataset) -> int:
    """Length of the vectors."""
    kind = schema.field("vector").type if {"node", "vector"} <= set(schema.names) else None
    if kind is None or not pa.types.is_fixed_size_list(kind) or kind.value_type != pa.float32():
        raise DatasetDamaged(
            "not a dataset of embeddings: columns `node` (text) and `vector` (fixed-size list of float32) expected",
            where=f"{embeddings.uri}/{EMBEDDINGS}", value=str(kind),
            remedy="Give a dataset that the embed stage made",
        )  # fmt: skip
    return int(kind.list_size)


def vectors_of(batch: pa.RecordBatch, dimensions: int) -> NDArray[np.float32]:
    """The vectors of a batch as `[rows, dimensions]`, without copying them.

    Raises:
        DatasetDamaged: a row has no vector, or no value in it.
    """
    values = batch["vector"].flatten()
    if batch["vector"].null_count or values.null_count or batch["node"].null_count:
        raise DatasetDamaged(
            "not a dataset of embeddings: a row has no node or no vector", where=EMBEDDINGS,
            remedy="Give a dataset that the embed stage made",
        )  # fmt: skip
    flat: NDArray[np.float32] = values.to_numpy(zero_copy_only=True)
    return flat.reshape(-1, dimensions)
