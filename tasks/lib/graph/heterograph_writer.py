"""Writes the files of a heterograph dataset; see `tasks.lib.graph.heterograph` for what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.graph.heterograph import (
    DTYPES,
    FORMAT,
    GRAPH_FILE,
    EdgeSet,
    Feature,
    NodeSet,
    Ragged,
    Values,
    string_type,
)
from superworkflow.tasks.lib.graph.stat_names import end_stats, record_stats
from superworkflow.tasks.lib.graph.stat_names import stat_name as stat_name

PARQUET: Mapping[str, Any] = {"compression": "lz4", "use_dictionary": False, "row_group_size": 1 << 20}
"""Options of Parquet files of ids and strings."""


def write_graph_file(
    output: FileWriter, node_sets: Iterable[NodeSet], edge_sets: Iterable[EdgeSet], context: Iterable[Feature] = ()
) -> None:
    """Write `graph.json`; sets and features are sorted already (`by_name`)."""
    document = {
        "format": FORMAT,
        "node_sets": [{"name": s.name, "count": s.count, "features": _described(s.features)} for s in node_sets],
        "edge_sets": [
            {
                "name": s.name, "source": s.source, "target": s.target, "count": s.count,
                "reversed_of": s.reversed_of, "features": _described(s.features),
            }
            for s in edge_sets
        ],
        "context": {"features": _described(context)},
    }  # fmt: skip
    output.json(GRAPH_FILE, document)


def write_ids(output: FileWriter, number: int, ids: pa.Array | pa.ChunkedArray) -> None:
    """Write the ids of the nodes of a set, sorted by their bytes, large_string."""
    write_column(output, f"nodes-{number}-ids.parquet", "id", ids, pa.large_string())


def write_feature(output: FileWriter, stem: str, feature: Feature, values: Values) -> None:
    """Write a feature of items in their order; names of files begin with `stem`, from `feature_stem`."""
    if isinstance(values, Ragged):
        dtype = DTYPES[feature.dtype]
        output.array(f"{stem}-values.npy", values.values.astype(dtype, copy=False))
        output.array(f"{stem}-starts.npy", values.starts)
    elif isinstance(values, np.ndarray):
        output.array(f"{stem}.npy", np.ascontiguousarray(values.astype(DTYPES[feature.dtype], copy=False)))
    else:
        write_column(output, f"{stem}.parquet", "value", values, string_type(feature))


def write_rows(
    output: FileWriter,
    number: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    origin: NDArray[np.int64] | None = None,
    table_rows: NDArray[np.int32] | None = None,
) -> None:
    """Write the rows of an edge set, of one that reverses another its edges' positions there, and rows of its table."""
    for name, values in zip(rows_names(number), (indptr, indices), strict=True):
        output.array(name, values)
    if origin is not None:
        output.array(f"edges-{number}-origin.npy", origin)
    if table_rows is not None:
        output.array(f"edges-{number}-row.npy", table_rows)


def rows_names(number: int) -> tuple[str, str]:
    """Files of an edge set's rows: where they begin, and the targets in them."""
    return f"edges-{number}-indptr.npy", f"edges-{number}-indices.npy"


def write_column(
    output: FileWriter, name: str, column: str, values: pa.Array | pa.ChunkedArray, kind: pa.DataType
) -> None:
    """Write a Parquet file of one column."""
    with output.file(name) as path:
        pq.write_table(pa.table({column: values}, pa.schema([(column, kind)])), path, **PARQUET)


def by_name(items: Iterable[Any]) -> list[Any]:
    """Sets or features in the order of their numbers: by the bytes of their names."""
    return sorted(items, key=lambda item: item.name.encode())


def stats_of(node_sets: Sequence[NodeSet], edge_sets: Sequence[EdgeSet]) -> dict[str, Stat]:
    """Facts for estimates: nodes, edges, and of each set by its name, or by number where that is not a plain word.

    Of edges also the names of the node sets at their ends (see `end_stats`), and `reversed_edges`, how many are other
    ones the other way round.
    """
    stats: dict[str, Stat] = {
        "nodes": sum(each.count for each in node_sets),
        "edges": sum(each.count for each in edge_sets),
        "reversed_edges": sum(each.count for each in edge_sets if each.reversed_of is not None),
    }
    stats |= {f"nodes.{stat_name(each.name, number)}": each.count for number, each in enumerate(node_sets)}
    stats |= {f"edges.{stat_name(each.name, number)}": each.count for number, each in enumerate(edge_sets)}
    stats |= record_stats("nodes", node_sets) | record_stats("edges", edge_sets)
    return stats | end_stats(edge_sets)


def _described(features: Iterable[Feature]) -> list[dict[str, Any]]:
    return [{"name": each.name, "dtype": each.dtype, "shape": list(each.shape)} for each in features]
