"""Graphs, and rows of their nodes, in memory: as columns of the tables that stages read.

Forms are recognised by what they offer, so that none of their packages is imported. Each function returns the columns
and the flags that the value implies (`directed`), or None for a value of another form, such as a frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError

Converted = tuple[Any, tuple[str, ...]]


def edges(value: Any) -> Converted | None:
    """Columns `source`, `target` and, where there are some, `weight`.

    - an array or tensor [edges, 2], or [edges, 3] with weights; or [2, edges];
    - a sparse adjacency matrix of SciPy: its entries are the weights;
    - a graph of NetworkX or igraph, by its nodes' names and the edges' `weight`; a directed one implies `directed`;
    - anything with an `edge_index` [2, edges], such as PyG's `Data`;
    - a graph of DGL with one type of edges; their weights are its `edata["weight"]`.

    Raises:
        UserError: an array of another shape, ends that are no whole numbers, or a graph of several types.
    """
    if hasattr(value, "edge_index"):
        value = value.edge_index
    elif hasattr(value, "canonical_etypes"):
        return _of_dgl(value), ()
    elif hasattr(value, "get_edgelist"):
        return _of_igraph(value), _direction(value)
    elif hasattr(value, "edges") and hasattr(value, "adj"):
        return _of_networkx(value), _direction(value)
    elif hasattr(value, "tocoo"):
        entries = value.tocoo()
        return _columns(entries.row, entries.col, entries.data), ()
    array = _array(value)
    if array is None:
        return None
    if array.ndim == 2 and len(array) == 2 and array.shape[1] > 3:
        array = array.T
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        raise _shape("edges", array, "[edges, 2], [edges, 3] with weights, or [2, edges]")
    ends = array[:, :2]
    if ends.dtype.kind == "f":
        if not (np.isfinite(ends).all() and (ends == np.floor(ends)).all()):
            remedy = "Give sources and targets in the first two columns"
            raise UserError("numbers of nodes are not whole", where="edges", remedy=remedy)
        ends = ends.astype(np.int64)
    return _columns(ends[:, 0], ends[:, 1], array[:, 2] if array.shape[1] == 3 else None), ()


def features(value: Any) -> Converted | None:
    """Rows of nodes: row i of an array [nodes, columns] is that of node i; entries of a sparse matrix likewise."""
    if hasattr(value, "tocoo"):
        entries = value.tocoo()
        return {"node": entries.row, "column": entries.col, "value": entries.data}, ()
    array = _array(value)
    if array is None:
        return None
    if array.ndim != 2:
        raise _shape("features", array, "[nodes, columns]")
    return {"node": np.arange(len(array)), **{f"feature_{i}": column for i, column in enumerate(array.T)}}, ()


def labels(value: Any) -> Converted | None:
    """Columns `node` and `label`: of an array [nodes], of a mapping of nodes to labels, or of pandas' `Series`."""
    if hasattr(value, "to_frame") and hasattr(value, "index"):
        return {"node": value.index.to_numpy(), "label": value.to_numpy()}, ()
    if isinstance(value, Mapping) and not any(isinstance(each, list | np.ndarray) for each in value.values()):
        return {"node": list(value), "label": list(value.values())}, ()
    array = _array(value)
    if array is None:
        return None
    if array.ndim != 1:
        raise _shape("labels", array, "[nodes]")
    return {"node": np.arange(len(array)), "label": array}, ()


def array(value: Any) -> Converted | None:
    """An array, or a tensor, as it is."""
    found = _array(value)
    return None if found is None else (found, ())


def _array(value: Any) -> NDArray[Any] | None:
    """An array of NumPy, or a tensor's; None for anything else."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return value if isinstance(value, np.ndarray) else None


def _of_networkx(graph: Any) -> dict[str, Any]:
    found = list(graph.edges(data="weight"))
    weights = [weight for _, _, weight in found]
    return _columns(
        _names([first for first, _, _ in found]), _names([second for _, second, _ in found]),
        weights if any(weight is not None for weight in weights) else None,
    )  # fmt: skip


def _of_igraph(graph: Any) -> dict[str, Any]:
    ends = np.asarray(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    names = np.asarray(graph.vs["name"]) if "name" in graph.vs.attributes() else np.arange(graph.vcount())
    weights = graph.es["weight"] if "weight" in graph.es.attributes() else None
    return _columns(names[ends[:, 0]], names[ends[:, 1]], weights)


def _of_dgl(graph: Any) -> dict[str, Any]:
    if len(graph.canonical_etypes) != 1:
        raise UserError("a graph with several types of edges", where="edges", value=", ".join(graph.etypes),
                        remedy="Give it as graph, or one type of it")  # fmt: skip
    source, target = map(_array, graph.edges(order="eid"))
    return _columns(source, target, _array(graph.edata["weight"]) if "weight" in graph.edata else None)


def _direction(graph: Any) -> tuple[str, ...]:
    return ("directed",) if graph.is_directed() else ()


def _columns(sources: Any, targets: Any, weights: Any = None) -> dict[str, Any]:
    return {"source": sources, "target": targets} | ({} if weights is None else {"weight": weights})


def _names(nodes: list[Any]) -> list[Any]:
    """Names of nodes: as they are where all are numbers or all are texts, else as texts."""
    is_uniform = len({type(each) for each in nodes}) == 1 and isinstance(nodes[0], int | str)
    return nodes if is_uniform else list(map(str, nodes))


def _shape(name: str, array: NDArray[Any], valid: str) -> UserError:
    shape = f"[{', '.join(map(str, array.shape))}]"
    return UserError("is of another shape", where=name, value=shape, remedy=f"Give {valid}")
