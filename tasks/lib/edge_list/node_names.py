"""Rows that the kernels have numbered by names in the file: without those that lack an id, and with two sides apart.

The kernels number a name wherever it stands. What is left out or set apart depends on the name only, so it is decided
once for each name, not for each row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.edge_list.bipartite import prefixed
from superworkflow.tasks.lib.edge_list.dialect import Dialect
from superworkflow.tasks.lib.edge_list.encode import Encoder
from superworkflow.tasks.lib.edge_list.missing_ids import missing
from superworkflow.tasks.lib.edge_list.text_rows import BadRow
from superworkflow.tasks.lib.edge_list.vertex_order import label_array

_PIECE = 1 << 20


def settle_names(encoder: Encoder, dialect: Dialect) -> Encoder:
    """The rows of an encoder as the dialect says of missing ids and of sides.

    Args:
        encoder: has numbered the names in the file; it is spent if another one is returned.
        dialect: of the file.

    Raises:
        BadRow: a row has no id, and that is an error.
        pa.ArrowInvalid: a name is not UTF-8.
    """
    if dialect.missing == "keep" and dialect.sides is None:
        return encoder
    keys, arena = encoder.keys()
    names = label_array(np.arange(len(keys), dtype=np.int32), keys, arena)
    none = missing(names).to_numpy(zero_copy_only=False)
    if dialect.missing == "error" and none.any():
        raise BadRow
    if dialect.sides is None and not none.any():
        return encoder
    buffer, rows, weights, _, _ = encoder.result()
    ends = buffer[: 2 * rows].reshape(-1, 2)
    dropped = 0
    if dialect.missing == "drop":
        kept = ~none[ends].any(axis=1)
        dropped = rows - int(kept.sum())
        rows -= dropped
        buffer[: 2 * rows] = ends[kept].ravel()
        ends = buffer[: 2 * rows].reshape(-1, 2)
        weights = weights[kept] if weights is not None else None
    made = Encoder(encoder.threads, encoder.weighted)
    if dialect.sides is None:
        _renumber(ends, names, "", made)
    else:
        for side, prefix in enumerate(dialect.sides):
            _renumber(ends[:, side], names, prefix, made)
    made.adopt(buffer, rows, weights, dropped)
    return made


def _renumber(ends: NDArray[np.int32], names: pa.Array, prefix: str, made: Encoder) -> None:
    """Number the names that occur in `ends` anew, in place, by an encoder that gets them with a prefix."""
    used = np.zeros(len(names), np.bool_)
    used[ends] = True
    numbers = np.zeros(len(names), np.int32)
    found = np.flatnonzero(used)
    for first in range(0, len(found), _PIECE):
        piece = found[first : first + _PIECE]
        own = names.take(pa.array(piece)).cast(pa.string())
        numbers[piece] = made.numbers(prefixed(own, prefix) if prefix else own)
    ends[...] = numbers[ends]
