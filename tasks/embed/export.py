"""Embeddings as word2vec text: a header `count dimensions`, then a line per vertex, `label x_1 … x_d`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset


def write_word2vec(dataset: Dataset, path: Path) -> None:
    """Write the vectors of an embed dataset as word2vec text, a few thousand at a time.

    Args:
        dataset: an embed dataset.
        path: file to write.

    Raises:
        UserError: a label contains white space, which the format uses as its separator.
    """
    with dataset.parquet("embeddings.parquet") as file, path.open("w", encoding="utf-8") as stream:
        dimensions = file.schema_arrow.field("vector").type.list_size
        stream.write(f"{file.metadata.num_rows} {dimensions}\n")
        for batch in file.iter_batches(4096, columns=["node", "vector"]):
            vectors = batch["vector"].flatten().to_numpy().reshape(-1, dimensions)
            for label, vector in zip(batch["node"].cast(pa.string()).to_pylist(), vectors, strict=True):
                if not label or any(letter.isspace() for letter in label):
                    raise UserError(
                        "a label of word2vec text cannot contain white space", where="export", value=label,
                        remedy="Use the Parquet file, or relabel the graph",
                    )  # fmt: skip
                stream.write(label + " " + " ".join(map(np.format_float_positional, vector)) + "\n")
