"""Features in parts: from the rows of tables to ranges of items, where tasks put them in order, as parts of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.heterograph.edge_blocks import EdgeBlocks, edges_name
from superworkflow.tasks.heterograph.features import column_values, joined_values
from superworkflow.tasks.heterograph.table_parts import Scan
from superworkflow.tasks.lib.graph.dtypes import DTYPES, STRING
from superworkflow.tasks.lib.graph.heterograph import Feature, Ragged, feature_stem, take
from superworkflow.tasks.lib.in_parts.id_ranges import ROW_BITS, Ranges, row_keys, rows_name
from superworkflow.tasks.lib.in_parts.task_outputs import TaskOutputs


@dataclass(frozen=True)
class SendFeatures:
    """Features in the rows of a part, to the ranges of nodes or blocks of edges whose they are.

    Args:
        scan: of the part.
        features: of the set, sorted by name.
        cut: the ranges or the blocks of the set.
        item: of edges, the number of the part among those of edges.
        first: task of the first range or block.
    """

    scan: Scan
    features: tuple[Feature, ...]
    cut: Ranges | EdgeBlocks
    item: int
    first: int

    def places(self, rows: int) -> NDArray[np.int32]:
        """The range or block of each row, -1 where the row was left out."""
        found = np.full(rows, -1, np.int32)
        if isinstance(self.cut, Ranges):
            for place, chosen in self.cut.cut(self.scan.ids()[0]):
                found[chosen] = place
            return found
        table = self.scan.kept.table(edges_name(self.item))
        rows_there = table["row"].to_numpy() & ((1 << ROW_BITS) - 1)
        for place, chosen in self.cut.split(table["source"].to_numpy()):
            found[rows_there[chosen]] = place
        return found


def send_features(task: SendFeatures) -> Iterator[tuple[int, Any]]:
    """Values of all features, batch by batch, with the keys of their rows."""
    rows_there = task.scan.kept.table(task.scan.name).num_rows
    places, row = task.places(rows_there), 0
    width = sum(feature.width for feature in task.features)
    for batch in task.scan.part.batches([feature.name for feature in task.features], width):
        values = [column_values(batch, column, feature) for column, feature in enumerate(task.features)]
        here = places[row : row + len(batch.columns[0])]
        for place in np.unique(here[here >= 0]).tolist():
            chosen = np.flatnonzero(here == place)
            keys = row_keys(task.scan.part.number, chosen + row)
            yield task.first + place, (keys, [take(each, chosen) for each in values])
        row += len(here)


@dataclass(frozen=True)
class Placed:
    """Placement of features on the tasks of an exchange.

    Args:
        kind: `nodes` or `edges`.
        first: task of the first range or block.
        cut: the ranges or the blocks.
        features: of the set.
    """

    kind: str
    first: int
    cut: Ranges | EdgeBlocks
    features: tuple[Feature, ...]


def place_features(kept: TaskOutputs, sets: Sequence[Placed], task: int, sent: list[Any]) -> list[int]:
    """Put the features of a range or block in order, and leave its parts of the files.

    Returns:
        Of each feature, how many entries its items have together, where it is ragged; else 0.
    """
    placed = next(each for each in reversed(sets) if each.first <= task)
    number, place = placed.cut.number, task - placed.first
    wanted = kept.array(rows_name(placed.kind, number, place), np.int64)
    keys = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in sent)])
    order = np.argsort(keys, kind="stable")
    found = np.searchsorted(keys[order], wanted)
    if len(wanted) and (len(keys) == 0 or found.max() >= len(keys) or (keys[order][found] != wanted).any()):
        raise RuntimeError(f"features of rows are missing in part {place} of {placed.kind} {number}")
    order = order[found]
    sizes = []
    for column, feature in enumerate(placed.features):
        values = take(joined_values(feature, [each[column] for _, each in sent]), order)
        stem = feature_stem(placed.kind, number, column)
        if isinstance(values, Ragged):
            kept.write(part_name(f"{stem}-values", place), values.values.astype(DTYPES[feature.dtype], copy=False))
            kept.write(part_name(f"{stem}-starts", place), values.starts[1:].astype("<i8"))
        elif feature.dtype == STRING:
            kept.write(part_name(stem, place), pa.table({"value": values}))
        else:
            kept.write(part_name(stem, place), values.astype(DTYPES[feature.dtype], copy=False))
        sizes.append(len(values.values) if isinstance(values, Ragged) else 0)
    return sizes


def part_name(stem: str, place: int) -> str:
    """Name of a part of a feature's file."""
    return f"features/{stem}-{place:06d}"
