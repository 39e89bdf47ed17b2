"""Small heterographs as datasets, written from Python values without the stage."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.tasks.lib.graph.heterograph import (
    DTYPES,
    STRING,
    EdgeSet,
    Feature,
    NodeSet,
    Ragged,
    Values,
    feature_stem,
    index_dtype,
    string_type,
    take,
)
from superworkflow.tasks.lib.graph.heterograph_writer import (
    by_name,
    stats_of,
    write_feature,
    write_graph_file,
    write_ids,
    write_rows,
)
from tests.datasets import commit

_NAMES = {np.dtype(given): name for name, given in DTYPES.items()}


class Nodes(NamedTuple):
    """A node set: ids in any order, and features by name, an array, a `Ragged`, or a list of strings (or of lists)."""

    ids: Sequence[str]
    features: Mapping[str, Any] = {}


class Edges(NamedTuple):
    """An edge set: rows of (source id, target id) in the order of the file; or the set that it reverses."""

    source: str
    target: str
    rows: Sequence[tuple[str, str]] = ()
    features: Mapping[str, Any] = {}
    reversed_of: str | None = None


def write_heterograph(
    folder: Path,
    nodes: Mapping[str, Nodes],
    edges: Mapping[str, Edges],
    context: Mapping[str, Any] | None = None,
) -> Dataset:
    """A heterograph dataset in `folder`; context features have one item."""
    output = DatasetWriter(folder)
    numbers: dict[str, dict[str, int]] = {}
    node_sets = []
    for i, name in enumerate(sorted(nodes, key=str.encode)):
        ids = nodes[name].ids
        order = sorted(range(len(ids)), key=lambda row: ids[row].encode())
        numbers[name] = {ids[row]: number for number, row in enumerate(order)}
        write_ids(output, i, pa.array([ids[row] for row in order], pa.large_string()))
        node_sets.append(NodeSet(name, len(ids), _write_features(output, "nodes", i, nodes[name].features, order)))
    edge_sets: dict[str, EdgeSet] = {}
    stored: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    names = sorted(edges, key=str.encode)
    for name in sorted(names, key=lambda each: edges[each].reversed_of is not None):
        j, given = names.index(name), edges[name]
        if given.reversed_of is None:
            rows = [(numbers[given.source][s], numbers[given.target][t]) for s, t in given.rows]
            sources, targets = np.array(rows, np.int64).reshape(-1, 2).T
            order = np.lexsort((targets, sources))
            stored[name] = sources, targets = sources[order], targets[order]
            features, origin = _write_features(output, "edges", j, given.features, order), None
            table_rows: np.ndarray | None = order.astype(np.int32)
        else:
            targets, sources = stored[given.reversed_of]
            origin = np.lexsort((targets, sources)).astype(np.int64)
            sources, targets = sources[origin], targets[origin]
            features, table_rows = edge_sets[given.reversed_of].features, None
        count, others = len(numbers[given.source]), len(numbers[given.target])
        indptr = np.searchsorted(sources, np.arange(count + 1)).astype(np.int64)
        write_rows(output, j, indptr, targets.astype(index_dtype(others)), origin, table_rows)
        edge_sets[name] = EdgeSet(name, given.source, given.target, len(sources), given.reversed_of, features)
    in_order = [edge_sets[name] for name in names]
    write_graph_file(output, node_sets, in_order, _write_features(output, "context", None, context or {}, [0]))
    stats = stats_of(node_sets, in_order) | {"bytes": output.bytes_written}
    return commit(output, "heterograph", {"name": f"heterograph-{folder.name}"}, stats, int(stats["nodes"] or 0))


def _write_features(
    output: DatasetWriter, kind: str, number: int | None, given: Mapping[str, Any], order: Any
) -> tuple[Feature, ...]:
    values = {name: _typed(name, each) for name, each in given.items()}
    features = by_name(feature for feature, _ in values.values())
    for place, feature in enumerate(features):
        in_order = take(values[feature.name][1], np.asarray(order, np.int64))
        write_feature(output, feature_stem(kind, number, place), feature, in_order)
    return tuple(features)


def _typed(name: str, given: Any) -> tuple[Feature, Values]:
    if isinstance(given, Ragged):
        return Feature(name, _NAMES[given.values.dtype], (None, *given.values.shape[1:])), given
    if isinstance(given, np.ndarray):
        return Feature(name, _NAMES[given.dtype], given.shape[1:]), given
    feature = Feature(name, STRING, () if all(isinstance(each, str | bytes) for each in given) else (None,))
    return feature, pa.array(given, string_type(feature))
