"""The matrix of samples and features that a `feature_graph` dataset holds."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.integrity import check_rows

FEATURES, SAMPLES = 1, 0
"""Sides that a program updates."""


def updated_rows(graph: Dataset, side: int, program: str) -> sp.csr_array:
    """Values of the vertices that a program updates, float64 [samples, features] or [features, samples].

    Args:
        graph: dataset of stage `feature_graph`.
        side: which a program updates.
        program: its name, for the error.

    Raises:
        UserError: the graph is another one, is made for another program, or is damaged.
    """
    if graph.stats.get("updated_side") != side:
        labels = "numbers" if side == FEATURES else "classes"
        raise UserError(f"the program needs a graph of samples whose labels are {labels}", where=f"program {program}",
                        value=graph.uri, remedy=f"Make it by feature_graph.labels={labels}")  # fmt: skip
    samples, vertices = int(graph.stats["samples"] or 0), int(graph.stats["vertices"] or 0)
    indptr, indices = graph.array("indptr.npy", mmap=False), graph.array("indices.npy")
    check_rows(graph.uri, indptr, indices, None, vertices)
    first, last = (samples, vertices) if side == FEATURES else (0, samples)
    starts, values = indptr[first : last + 1], graph.array("value.npy")
    columns = indices[starts[0] : starts[-1]] - (samples if side == SAMPLES else 0)
    shape = (last - first, vertices - last + first)
    if len(values) != len(columns) or ((columns < 0) | (columns >= shape[1])).any():
        raise UserError("the values are not those of the graph", where=graph.uri,
                        remedy="Delete the dataset and run again")  # fmt: skip
    return sp.csr_array((np.asarray(values), columns, starts - starts[0]), shape)
