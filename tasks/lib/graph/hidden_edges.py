"""A graph without some of its edges."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.graph.heterograph import GRAPH_FILE, HeteroGraph, feature_stem, take
from superworkflow.tasks.lib.graph.heterograph_writer import stats_of, write_feature, write_graph_file, write_rows
from superworkflow.tasks.lib.graph.sparse_rows import row_starts


def write_without(
    output: FileWriter, graph: HeteroGraph, gone: Mapping[int, NDArray[np.int64]], feature: str = ""
) -> dict[str, Stat]:
    """Write a graph without some edges; what is the same is copied as it is.

    Args:
        output: the dataset.
        graph: the graph.
        gone: positions of the edges by the number of their set, distinct.
        feature: of these sets, which is left out too; empty for none.

    Returns:
        Stats of what is left.
    """
    source = graph.dataset
    changed = tuple(f"edges-{number}-" for number in gone)
    for file in source.manifest.files:
        if file.path != GRAPH_FILE and not file.path.startswith(changed):
            output.copy(file.path, source.local(file.path))
    edge_sets = list(graph.edge_sets.values())
    kept = {number: np.ones(edge_sets[number].count, np.bool_) for number in gone}
    for number, positions in gone.items():
        kept[number][positions] = False
    for number, keep in kept.items():
        edges = edge_sets[number]
        features = tuple(each for each in edges.features if each.name != feature)
        rows = graph.rows(edges.name)
        origin = graph.origin(edges.name)
        table_rows = None if origin is not None else graph.table_rows(edges.name)[keep].astype(np.int32)
        if origin is not None:
            number_of = np.cumsum(kept[graph.edge_number(edges.reversed_of or "")]) - 1
            origin = number_of[origin[keep]]
        write_rows(output, number, row_starts(keep)[rows.indptr], rows.indices[keep], origin, table_rows)
        if origin is None:
            for place, each in enumerate(features):
                values = take(graph.edge_feature(edges.name, each.name), np.flatnonzero(keep))
                write_feature(output, feature_stem("edges", number, place), each, values)
        edge_sets[number] = edges._replace(count=int(keep.sum()), features=features)
    write_graph_file(output, graph.node_sets.values(), edge_sets, graph.context)
    stats = stats_of(list(graph.node_sets.values()), edge_sets)
    if source.stats.get("reversed_edges") and not stats["reversed_edges"]:  # one set has them both ways
        stats["reversed_edges"] = int(stats["edges"] or 0) // 2
    return stats
