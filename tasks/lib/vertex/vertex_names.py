"""The graph of an earlier run, and its vertices matched by name with those of another.

Names are those of nodes, places in a lattice, or numbers of variables and the variables of factors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Store


def graph_before(initial: Dataset) -> Dataset:
    """The graph of an earlier run, which lies in the same store.

    Raises:
        UserError: the dataset was made of no graph, or the store has it no longer.
    """
    entry, root = initial.manifest.inputs.get("graph"), initial.uri.rsplit("/", 2)[0]
    found = Store(root).find(entry.stage, entry.digest) if entry is not None and entry.stage else None
    if found is None:
        raise UserError("the graph of the earlier run is not in its store", where="initial", value=initial.uri,
                        remedy="Give the dataset where it was made, or leave it out")  # fmt: skip
    return found


def matched(before: Dataset, graph: Dataset) -> NDArray[np.int32]:
    """int32 [earlier vertices], the present number of each, -1 of those that are gone.

    Args:
        before: graph of an earlier run: index, grid or factor_graph dataset.
        graph: the present one.

    Raises:
        UserError: they are of different kinds, or lattices of different shapes or values.
    """
    kinds = ["grid" if "shape" in each.stats else "model" if "variables" in each.stats else "nodes"
             for each in (before, graph)]  # fmt: skip
    if kinds[0] != kinds[1]:
        raise UserError("the earlier run is on a graph of another kind", where="initial", value=kinds[0],
                        remedy=f"Give a run on {kinds[1]}, or leave it out")  # fmt: skip
    return {"grid": _of_lattices, "model": _of_models, "nodes": _of_nodes}[kinds[0]](before, graph)


def _of_lattices(before: Dataset, graph: Dataset) -> NDArray[np.int32]:
    levels = [each.array("levels.npy") for each in (before, graph)]
    shapes = [str(each.stats["shape"]) for each in (before, graph)]
    for what, (then, now) in {"another shape": shapes, "other values": [each.tolist() for each in levels]}.items():
        if then != now:
            raise UserError(f"the earlier lattice has {what}", where="initial", value=f"{then}, now {now}"[:200],
                            remedy="Give a run on a lattice of this shape and these values, or none")  # fmt: skip
    return np.arange(int(graph.stats["vertices"] or 0), dtype=np.int32)


def _of_models(before: Dataset, graph: Dataset) -> NDArray[np.int32]:
    """Variables by number and states, factors by their variables."""
    named = []
    for each in (before, graph):
        indptr, indices, starts = (each.array(f"{name}.npy") for name in ("indptr", "indices", "table_indptr"))
        states, variables = np.diff(starts).tolist(), int(each.stats["variables"] or 0)
        names: list[tuple[int, ...]] = [(variable, -states[variable]) for variable in range(variables)]
        ends = indices.tolist()
        for factor in range(variables, len(indptr) - 1):
            names.append(tuple(ends[indptr[factor] : indptr[factor + 1]]))
        named.append(names)
    numbers = {name: number for number, name in enumerate(named[1])}
    found = [numbers.get(name, -1) for name in named[0]]
    return np.array(found, np.int32).reshape(-1)


def _of_nodes(before: Dataset, graph: Dataset) -> NDArray[np.int32]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = []
    for each in (before, graph):
        names.append(each.table("vertices.parquet", ["node"]).column(0).cast(pa.large_string()).combine_chunks())
    found = pc.fill_null(pc.index_in(names[0], value_set=names[1]), -1)
    numbers: NDArray[np.int32] = found.to_numpy(zero_copy_only=False).astype(np.int32)
    return numbers
