"""Checkpoints of a worker group, in the stage's checkpoint, by way of the coordinator.

The first worker writes the state that all share. Learned embeddings are written by part of the graph, each part by its
owner, so that any number of workers can resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.checkpoint_stores import Arrays, CheckpointStore
from superworkflow.tasks.lib.gnn.distributed.dist_embedding import DistEmbedding
from superworkflow.tasks.train.checkpoint import UNUSABLE
from superworkflow.tasks.train.optimizers import Optimizer

_KEPT = "optimizer."
"""Prefix of the names of the optimizer's states."""
Parts = Mapping[int, Mapping[str, tuple[int, int]]]
"""Bounds of each part among this worker's rows of each node set."""


def save_tables(
    kept: CheckpointStore, slot: str, parts: Parts, tables: DistEmbedding, best: Mapping[str, NDArray[Any]],
    optimizer: Optimizer,
) -> None:  # fmt: skip
    """Write the rows of this worker's parts, the best rows, and the optimizer's states of them.

    Args:
        kept: store of checkpoints.
        slot: slot of the checkpoint.
        parts: this worker's parts.
        tables: its rows.
        best: best rows by node set; empty if there are none yet.
        optimizer: optimizer of the tables.
    """
    states = optimizer.states()
    for number, (name, rows) in enumerate(tables.arrays().items()):
        arrays = {"rows": rows} | ({"best": best[name]} if best else {})
        for key, value in states.get(number, {}).items():
            arrays[_KEPT + key] = torch.as_tensor(value).detach().cpu().numpy()
        for part, bounds in parts.items():
            low, high = bounds[name]
            some = {key: values[low:high] if values.ndim else values for key, values in arrays.items()}
            kept.write(_name(slot, number, part), some)


class SavedTables(NamedTuple):
    """Saved rows of a worker's parts and the best rows by node set, and optimizer states by number of the table."""

    rows: Arrays
    best: Arrays
    states: dict[int, Arrays]

    def take(self, tables: DistEmbedding, optimizer: Optimizer) -> None:
        """Restore them."""
        tables.load(self.rows)
        if self.rows:
            optimizer.load(self.states)


def read_tables(
    kept: CheckpointStore, slot: str, parts: Parts, tables: DistEmbedding, optimizer: Optimizer, has_best: bool,
    log: Callable[[str], None],
) -> SavedTables | None:  # fmt: skip
    """Read the rows of this worker's parts; None if they are incomplete, or of other tables.

    Args:
        kept: store of checkpoints.
        slot: slot of the checkpoint.
        parts: this worker's parts.
        tables, optimizer: its rows and their optimizer, to check against; not changed.
        has_best: best rows were saved.
        log: called with the reason if it cannot be used.
    """
    rows, best, states = Arrays(), Arrays(), dict[int, Arrays]()
    try:
        for number, (name, own) in enumerate(tables.rows.items()):
            read = {part: kept.read(_name(slot, number, part)) for part in parts}
            for part, arrays in read.items():
                low, high = parts[part][name]
                _check_part(arrays, (high - low, *own.shape[1:]), has_best, f"part {part} of the embeddings of {name}")
            first, *others = read.values()
            if any(not _are_of_one_state(first, each) for each in others):
                raise ValueError(f"parts of the embeddings of {name} are not of one state")
            whole = {
                key: np.concatenate([each[key] for each in read.values()]) if values.ndim else values
                for key, values in first.items()
            }
            rows[name] = whole.pop("rows")
            if has_best:
                best[name] = whole.pop("best")
            if whole:  # no states before the first step
                states[number] = {key.removeprefix(_KEPT): values for key, values in whole.items()}
        optimizer.check(states)
    except (OSError, ValueError) as error:
        log(f"{UNUSABLE} ({reason_of(error)})")
        return None
    return SavedTables(rows, best, states)


def _are_of_one_state(part: Arrays, other: Arrays) -> bool:
    """True if two parts have arrays of the same names, and equal ones if they are not by row."""
    return part.keys() == other.keys() and all(
        values.ndim == other[name].ndim and (values.ndim > 0 or values == other[name]) for name, values in part.items()
    )


def _check_part(arrays: Arrays, shape: tuple[int, ...], has_best: bool, what: str) -> None:
    """Check the arrays of a part, whose rows have this shape. Raises ValueError."""
    given = {name: values for name, values in arrays.items() if not name.startswith(_KEPT)}
    if given.keys() != ({"rows", "best"} if has_best else {"rows"}):
        raise ValueError(f"{what} has {', '.join(sorted(given)) or 'no rows'}")
    by_row = [*given.values(), *(each for each in arrays.values() if each.ndim)]
    if any(each.shape != shape or each.dtype != np.float32 for each in by_row):
        raise ValueError(f"{what} has another shape or kind")


def _name(slot: str, table: int, part: int) -> str:
    return f"{slot}-embeddings-{table}-part-{part:04}"
