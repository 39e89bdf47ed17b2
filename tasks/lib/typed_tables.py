"""Typed graphs in memory: dictionaries of frames, PyG's `HeteroData` and DGL's graphs, as tables with a schema."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.described import Described
from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text

if TYPE_CHECKING:
    import pyarrow as pa

_FORM = 'Give {"SET": frame with a column id, ("SET", "NAME", "SET"): frame with columns source and target}'
Triple = tuple[str, str, str]


def graph(value: Any) -> tuple[Described, tuple[str, ...]] | None:
    """Tables of nodes and edges.

    - a dictionary of frames: by a name those of nodes, with a column `id`; by three names those of edges, with columns
      `source` and `target`; every other column is a feature;
    - PyG's `HeteroData` or a graph of DGL, in which node i of a set has the id i; every tensor with a row for each node
      or edge is a feature.

    Raises:
        UserError: a dictionary with other keys.
    """
    if hasattr(value, "edge_types") and hasattr(value, "node_types"):
        value = _of_heterodata(value)
    elif hasattr(value, "canonical_etypes"):
        value = _of_dgl(value)
    if not isinstance(value, Mapping):
        return None
    nodes = {key: each for key, each in value.items() if isinstance(key, str)}
    edges = {key: each for key, each in value.items() if isinstance(key, tuple) and len(key) == 3}
    if not edges or len(nodes) + len(edges) < len(value):
        raise UserError("is no typed graph", where="graph", value=", ".join(map(str, value))[:200], remedy=_FORM)
    files = {key: f"table-{number}.parquet" for number, key in enumerate([*nodes, *edges])}
    describe = partial(_schema, {key: files[key] for key in nodes}, {key: files[key] for key in edges})
    return Described({files[key]: each for key, each in value.items()}, describe), ()


def _schema(nodes: Mapping[str, str], edges: Mapping[Triple, str], folder: Path) -> tuple[str, str]:
    from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema

    shared = Counter(name for _, name, _ in edges)
    names = {each: each[1] if shared[each[1]] == 1 else "_".join(each) for each in edges}
    turned = _reverses(folder, edges)
    tables = [EdgeTable(each[0], names[each], each[2], file) for each, file in edges.items() if each not in turned]
    reverse = {names[each]: names[origin] for each, origin in turned.items()}
    return SCHEMA_FILE, schema_text(
        plain_schema(folder, nodes, tables, reverse, lambda warning: warnings.warn(str(warning), stacklevel=2))
    )


def _reverses(folder: Path, edges: Mapping[Triple, str]) -> dict[Triple, Triple]:
    """Edge sets that have the rows of an earlier one the other way round, as PyG's `ToUndirected` makes them."""
    found: dict[Triple, Triple] = {}
    for origin, each in combinations(edges, 2):
        if origin[::2] != each[::-2] or each in found or origin in found:
            continue
        first, second = (_footer(folder / edges[triple]) for triple in (origin, each))
        if first == second and _pairs(folder / edges[origin], 1) == _pairs(folder / edges[each], -1):
            found[each] = origin
    return found


def _footer(path: Path) -> tuple[int, list[str]]:
    """Number of rows and names of the columns of a file."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    return footer.num_rows, sorted(footer.schema.to_arrow_schema().names)


def _pairs(path: Path, order: int) -> pa.Table:
    """The ends of edges, in the order of the file or the other way round, sorted."""
    import pyarrow.parquet as pq

    ends = pq.read_table(path, columns=["source", "target"]).select(["source", "target"][::order])
    return ends.rename_columns(["from", "to"]).sort_by([("from", "ascending"), ("to", "ascending")])


def _of_heterodata(data: Any) -> dict[Any, pa.Table]:
    nodes = {kind: _node_table(data[kind].num_nodes, data[kind]) for kind in data.node_types}
    return nodes | {triple: _edge_table(data[triple].edge_index, data[triple]) for triple in data.edge_types}


def _of_dgl(data: Any) -> dict[Any, pa.Table]:
    nodes = {kind: _node_table(data.num_nodes(kind), data.nodes[kind].data) for kind in data.ntypes}
    return nodes | {
        triple: _edge_table(data.edges(etype=triple), data.edges[triple].data) for triple in data.canonical_etypes
    }


def _node_table(rows: int, store: Any) -> pa.Table:
    import pyarrow as pa

    return pa.table({"id": np.arange(rows), **_features(store, rows)})


def _edge_table(ends: Any, store: Any) -> pa.Table:
    import pyarrow as pa

    source, target = (each.detach().cpu().numpy() for each in ends)
    return pa.table({"source": source, "target": target, **_features(store, len(source))})


def _features(store: Any, rows: int) -> dict[str, Any]:
    """Tensors with a row for each item: numbers, and vectors as lists of one length."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for name, value in store.items():
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else None
        if array is None or name == "edge_index" or array.ndim not in (1, 2) or len(array) != rows:
            continue
        flat = pa.array(array.ravel())
        found[name] = flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    return found
