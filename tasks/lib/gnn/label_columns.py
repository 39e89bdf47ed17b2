"""Columns of predictions of nodes with several labels: lists of labels, and of their probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.metrics.figures import top_k

PIECE = 1 << 14
"""Nodes whose lists are made at a time."""
Floats = NDArray[np.float32]


def label_columns(
    classes: Sequence[str], pieces: Iterable[tuple[Floats, Floats]], counts: NDArray[np.int64]
) -> dict[str, pa.ChunkedArray]:
    """Lists of labels, by name of the column.

    Args:
        classes: names of all labels.
        pieces: probabilities of the labels of `PIECE` nodes [nodes, labels], and values by which they are ranked.
        counts: number of labels that each node has.

    Returns:
        `predicted`, labels with a probability of at least 0.5, or else the most probable one; `probability`, theirs;
        `ranked`, for a node with k labels the k most probable.
    """
    names, parts = pa.array(classes, pa.string()), list[dict[str, pa.Array]]()
    for number, (likely, order) in enumerate(pieces):
        predicted = likely >= 0.5
        predicted[np.arange(len(order)), order.argmax(1)] = True
        ranked = top_k(order.astype(np.float64), counts[number * PIECE : (number + 1) * PIECE])
        parts.append({
            "predicted": _lists(predicted, names.take(column(np.nonzero(predicted)[1]))),
            "probability": _lists(predicted, column(likely[predicted])),
            "ranked": _lists(ranked, names.take(column(np.nonzero(ranked)[1]))),
        })  # fmt: skip
    return {name: pa.chunked_array([part[name] for part in parts]) for name in parts[0]}


def _lists(marked: NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """Lists of values by row, as long as the number of marks in the row."""
    starts = np.zeros(len(marked) + 1, np.int32)
    np.cumsum(marked.sum(1), out=starts[1:])
    return pa.ListArray.from_arrays(column(starts), values)
