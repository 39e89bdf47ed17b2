"""Features that give away the label: each of their values belongs to one class, and each class to one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.heterograph.feature_columns import CATEGORIES, NodeColumn
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning

_SAMPLE, _LEAST, _SHOWN = 1000, 20, 3


def label_leaks(
    values: NDArray[Any], words: bool, columns: Sequence[NodeColumn], classes: NDArray[np.int64], where: str
) -> list[InputWarning]:
    """Warning of features by which a network would learn nothing else; none where there are no such.

    Args:
        values: features of all nodes, [nodes, values].
        words: they are bags of words, of which only those that are not zero count.
        columns: the columns of the table that they come from, in their order.
        classes: class of each node, -1 for none.
        where: the table, for people.
    """
    labelled = np.flatnonzero(classes >= 0)
    kinds = len(np.unique(classes[labelled]))
    if len(labelled) < _LEAST or kinds < 2 or 2 * kinds > len(labelled):  # classes of one node each
        return []
    sample = labelled[:: -(-len(labelled) // _SAMPLE)]
    drawn = _read(values[sample], words)
    likely = [(name, span) for name, span in _parts(columns) if _is_label(drawn[:, span], classes[sample])]
    found = [name for name, span in likely if _is_label(_read(values[labelled, span], words), classes[labelled])]
    if not found:
        return []
    return [InputWarning(
        "a feature gives away the label: each of its values belongs to one class", where,
        ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else ""),
        "Leave the column out, unless it is known for nodes without a label too",
    )]  # fmt: skip


def _read(values: NDArray[Any], words: bool) -> NDArray[Any]:
    return values != 0 if words else np.asarray(values)


def _parts(columns: Sequence[NodeColumn]) -> Iterator[tuple[str, slice]]:
    """Names and values of what is compared with the label: a column of categories, else each number."""
    first = 0
    for column in columns:
        if column.kind == CATEGORIES or column.width == 1:
            yield column.name, slice(first, first + column.width)
        else:
            yield from ((f"{column.name}[{i}]", slice(first + i, first + i + 1)) for i in range(column.width))
        first += column.width


def _is_label(values: NDArray[Any], classes: NDArray[np.int64]) -> bool:
    _, kinds = np.unique(values, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1).astype(np.int64)
    pairs = len(np.unique(kinds * (int(classes.max()) + 1) + classes))
    return int(kinds.max()) + 1 == pairs == len(np.unique(classes)) > 1
