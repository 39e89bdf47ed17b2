"""Files of predictions: their names, and what is written piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig

PREDICTIONS, VECTORS, TARGET_VECTORS = "predictions.parquet", "embeddings.parquet", "target_embeddings.parquet"
ROW_GROUP = 1 << 17
"""Rows of a group of the predictions."""
PROBABILITIES, CLASSES = "probabilities.npy", "classes.json"
FACTORS, RELATIONS = "factors.npy", "relations.json"
PIECE = 1 << 16
"""Rows that are computed or written at a time."""
_GROUP_BYTES = 4 << 20


def write_probabilities(output: FileWriter, shape: NetworkConfig, scores: NDArray[np.float32]) -> None:
    """Write the probability of each class, some nodes at a time: no second copy of the scores, which may be large."""
    output.json(CLASSES, list(shape.head.classes))
    with output.file(PROBABILITIES) as path, path.open("wb") as stream:
        write_header(stream, scores.shape, np.dtype("<f4"))
        for first in range(0, len(scores), PIECE):
            piece = torch.from_numpy(scores[first : first + PIECE])
            likely = torch.sigmoid(piece) if shape.head.several else torch.softmax(piece, 1)
            stream.write(likely.numpy().astype("<f4").tobytes())


def write_vectors(path: Path, names: pa.Array, vectors: NDArray[np.float32]) -> None:
    """Write nodes and vectors, a row group at a time."""
    width = vectors.shape[1]
    schema = pa.schema([("node", pa.string()), ("vector", pa.list_(pa.float32(), width))])
    size = max(1, _GROUP_BYTES // (4 * width))
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        for first in range(0, len(vectors), size):
            part = vectors[first : first + size]
            values = pa.FixedSizeListArray.from_arrays(column(part.reshape(-1)), width)
            batch = [names[first : first + size].cast(pa.string()), values]
            writer.write_table(pa.Table.from_arrays(batch, schema=schema), row_group_size=size)
