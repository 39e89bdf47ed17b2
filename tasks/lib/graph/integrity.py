"""Checks that the files of a dataset fit each other: compiled kernels follow any index that they are given.

One pass over the arrays in memory, before the first kernel sees them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.storage.dataset import Dataset


def check_rows(
    where: str,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    vertices: int,
    prefix: str = "",
    signed: bool = False,
) -> None:
    """Check the rows of a graph, or of some of its vertices.

    Args:
        where: the dataset.
        indptr: begins of rows, relative to these indices.
        indices: neighbours.
        weights: of the arcs, or None.
        vertices: of the whole graph, that neighbours may be.
        prefix: of the files' names.
        signed: weights may be any finite numbers, as ratings are.

    Raises:
        DatasetDamaged: lengths differ, a row ends before it begins, a neighbour is no vertex, or a weight is not a
            positive number.
    """
    if indptr.ndim != 1 or indptr.dtype != np.int64 or not len(indptr) or indptr[0] != 0:
        raise unfit(f"{where}/{prefix}indptr.npy", "begins of rows are int64 [vertices + 1] from 0 on")
    if not (indptr[1:] >= indptr[:-1]).all():
        raise unfit(f"{where}/{prefix}indptr.npy", "a row ends before it begins")
    if indices.ndim != 1 or indices.dtype.kind != "i" or len(indices) != indptr[-1]:
        raise unfit(f"{where}/{prefix}indices.npy", f"{int(indptr[-1])} arcs by {prefix}indptr.npy", len(indices))
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < vertices:
        foreign = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise unfit(f"{where}/{prefix}indices.npy", f"a neighbour is none of {vertices} vertices", foreign)
    if weights is None:
        return
    if weights.shape != indices.shape or weights.dtype != np.float32:
        raise unfit(f"{where}/weights.npy", f"{len(indices)} arcs by indptr.npy", len(weights))
    if len(weights) and not (-np.inf if signed else 0) < weights.min() <= weights.max() < np.inf:
        what = "finite number" if signed else "positive finite number (index.negative=keep alone admits others)"
        raise unfit(f"{where}/weights.npy", f"a weight is not a {what}")


def check_walks(where: str, walks: NDArray[Any], vertices: int) -> None:
    """Check a shard of walks, before it is trained on.

    Raises:
        UserError: a vertex is not in the graph.
        DatasetDamaged: these are no walks.
    """
    if walks.ndim != 2 or walks.dtype.kind != "i":
        raise unfit(where, "walks are integers [walks, walk_length]", f"{walks.dtype}{list(walks.shape)}")
    largest = int(walks.max(initial=-1))
    if largest >= vertices:
        raise foreign_vertex(where, largest, vertices)


def check_pairs(where: str, pairs: NDArray[Any], vertices: int) -> None:
    """Check pairs of vertices.

    Raises:
        DatasetDamaged: these are no pairs, or not of this graph.
    """
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind != "i":
        raise unfit(where, "pairs are integers [pairs, 2]", f"{pairs.dtype}{list(pairs.shape)}")
    if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < vertices:
        raise unfit(where, f"a pair has another vertex than those of a graph of {vertices}", int(pairs.max()))


def check_labels(
    where: str,
    labelled: NDArray[Any],
    offsets: NDArray[Any],
    kinds: NDArray[Any],
    names: Any,
    vertices: int,
) -> None:
    """Check the labels of a graph's nodes.

    Args:
        where: the dataset.
        labelled: vertices with a label.
        offsets: where the labels of each begin and end.
        kinds: numbers of labels.
        names: of the labels.
        vertices: of the graph.

    Raises:
        UserError: a vertex is not in the graph.
        DatasetDamaged: lengths differ, a vertex occurs twice or has no label, or a label has no name.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise unfit(f"{where}/names.json", "names of labels are a list of texts")
    if labelled.ndim != 1 or labelled.dtype != np.int64 or not (labelled[1:] > labelled[:-1]).all():
        raise unfit(f"{where}/vertices.npy", "labelled vertices are int64 [n], ascending")
    if offsets.shape != (len(labelled) + 1,) or offsets.dtype != np.int64 or offsets[0] != 0:
        raise unfit(f"{where}/offsets.npy", f"{len(labelled)} vertices by vertices.npy", list(offsets.shape))
    if not (offsets[1:] > offsets[:-1]).all():
        raise unfit(f"{where}/offsets.npy", "a vertex has no label")
    if kinds.ndim != 1 or kinds.dtype.kind != "i" or len(kinds) != offsets[-1]:
        raise unfit(f"{where}/kinds.npy", f"{int(offsets[-1])} labels by offsets.npy", list(kinds.shape))
    if len(kinds) and not 0 <= int(kinds.min()) <= int(kinds.max()) < len(names):
        foreign = int(kinds.min()) if kinds.min() < 0 else int(kinds.max())
        raise unfit(f"{where}/kinds.npy", f"a label is none of {len(names)} in names.json", foreign)
    if len(labelled) and labelled[0] < 0:
        raise unfit(f"{where}/vertices.npy", "a vertex is below 0", int(labelled[0]))
    if len(labelled) and labelled[-1] >= vertices:
        raise UserError(
            f"a labelled vertex is not in the graph of {vertices} vertices",
            where=where, value=int(labelled[-1]), remedy="Give the graph that the labels were matched with",
        )  # fmt: skip


def foreign_vertex(where: str, vertex: int, vertices: int) -> UserError:
    """The error for walks that were made on another graph."""
    return UserError(
        f"a vertex of the walks is not in the graph of {vertices} vertices",
        where=where, value=vertex, remedy="Give the graph that the walks were made on",
    )  # fmt: skip


def unfit(where: str, what: str, value: Any = None) -> DatasetDamaged:
    """The error for a file that does not fit the others."""
    given = {} if value is None else {"value": value}
    remedy = "Remove this dataset, and its stage will make it again"
    return DatasetDamaged(f"files do not fit each other: {what}", where=where, remedy=remedy, **given)


def damaged(dataset: Dataset, name: str, what: str, value: object = None) -> DatasetDamaged:
    """Like `unfit`, for a file of a dataset."""
    return unfit(f"{dataset.uri}/{name}", what, value)
