"""Graphs, and rows of their nodes, in memory: as columns of the tables that stages read.

Forms are recognised by what they offer, so that none of their packages is imported. Each function returns the columns
and the flags that the value implies (`directed`), or None for a value of another form, such as a frame.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError

Converted = tuple[Any, tuple[str, ...]]
_SIDES = {"source": "row_id", "target": "column_id"}
"""Columns of a matrix that is not square, by which stages see that the same number is two nodes."""


def edges(value: Any) -> Converted | None:
    """Columns `source`, `target` and, where there are some, `weight`.

    - an array or tensor [edges, 2], or [edges, 3] with weights; or [2, edges];
    - a sparse adjacency matrix of SciPy: its entries are the weights; one that is not square has nodes of two kinds;
    - a graph of NetworkX or igraph, by its nodes' names and the edges' `weight`; a directed one implies `directed`;
    - anything with an `edge_index` [2, edges], such as PyG's `Data`; its `edge_weight` are the weights;
    - a graph of DGL with one type of edges; their weights are its `edata["weight"]`.

    Nodes of a graph that have no edge get a self-loop, which stages drop; the node stays.

    Raises:
        UserError: an array of another shape, ends that are no whole numbers, a graph of several types, or two nodes of
            one name.
    """
    if hasattr(value, "edge_index"):
        return _of_pyg(value), ()
    if hasattr(value, "canonical_etypes"):
        return _of_dgl(value), ()
    if hasattr(value, "get_edgelist"):
        return _of_igraph(value), _direction(value)
    if hasattr(value, "edges") and hasattr(value, "adj"):
        return _of_networkx(value), _direction(value)
    if hasattr(value, "tocoo"):
        entries = value.tocoo()
        found = _columns(entries.row, entries.col, entries.data)
        is_square = value.shape[0] == value.shape[1]
        return found if is_square else {_SIDES.get(name, name): each for name, each in found.items()}, ()
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
        return {"node": value.index.to_numpy(), "label": value}, ()  # whose missing values are null
    if isinstance(value, Mapping) and not any(isinstance(each, list | np.ndarray) for each in value.values()):
        found = [None if isinstance(each, float) and math.isnan(each) else each for each in value.values()]
        return {"node": list(value), "label": found}, ()
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
    nodes = list(graph.nodes)
    names = dict(zip(nodes, _names(nodes), strict=True))
    _check_distinct(list(names.values()))
    return _columns(
        [names[first] for first, _, _ in found], [names[second] for _, second, _ in found],
        weights if any(weight is not None for weight in weights) else None, list(names.values()),
    )  # fmt: skip


def _of_igraph(graph: Any) -> dict[str, Any]:
    ends = np.asarray(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    names = np.asarray(graph.vs["name"] if "name" in graph.vs.attributes() else range(graph.vcount()))
    _check_distinct(names.tolist())
    weights = graph.es["weight"] if "weight" in graph.es.attributes() else None
    return _columns(names[ends[:, 0]], names[ends[:, 1]], weights, names)


def _of_dgl(graph: Any) -> dict[str, Any]:
    if len(graph.canonical_etypes) != 1:
        raise UserError("a graph with several types of edges", where="edges", value=", ".join(graph.etypes),
                        remedy="Give it as graph, or one type of it")  # fmt: skip
    source, target = map(_array, graph.edges(order="eid"))
    nodes = np.arange(graph.num_nodes()) if len(graph.ntypes) == 1 else ()
    return _columns(source, target, _array(graph.edata["weight"]) if "weight" in graph.edata else None, nodes)


def _of_pyg(data: Any) -> dict[str, Any]:
    ends = _array(data.edge_index)
    if ends is None or ends.ndim != 2 or len(ends) != 2:
        raise _shape("edges", np.asarray(data.edge_index), "an edge_index [2, edges]")
    nodes = np.arange(getattr(data, "num_nodes", None) or 0)
    return _columns(ends[0], ends[1], _array(getattr(data, "edge_weight", None)), nodes)


def _direction(graph: Any) -> tuple[str, ...]:
    return ("directed",) if graph.is_directed() else ()


def _columns(
    sources: Any, targets: Any, weights: Any = None, nodes: Sequence[Any] | NDArray[Any] = ()
) -> dict[str, Any]:
    """The columns; each of the graph's `nodes` that has no edge is joined to itself by one of weight 1."""
    alone = sorted(set(nodes).difference(sources, targets)) if len(nodes) else []
    if alone:
        sources, targets = [*sources, *alone], [*targets, *alone]
        weights = None if weights is None else [*weights, *[1.0] * len(alone)]
    return {"source": sources, "target": targets} | ({} if weights is None else {"weight": weights})


def _names(nodes: list[Any]) -> list[Any]:
    """Names of nodes: as they are where all are numbers or all are texts, else as texts."""
    is_uniform = len({type(each) for each in nodes}) == 1 and isinstance(nodes[0], int | str)
    return nodes if is_uniform else list(map(str, nodes))


def _check_distinct(names: list[Any]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UserError("two nodes have one name as text", where="edges", value=twice, remedy="Rename one of them")


def _shape(name: str, array: NDArray[Any], valid: str) -> UserError:
    shape = f"[{', '.join(map(str, array.shape))}]"
    return UserError("is of another shape", where=name, value=shape, remedy=f"Give {valid}")
