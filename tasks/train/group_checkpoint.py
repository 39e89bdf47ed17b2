"""Checkpoints of a worker group: in the stage's checkpoint, by way of the coordinator.

The first worker writes what all have. Learned embeddings are written by part of the graph, each by who owns the part,
so that any number of workers can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.safe_names import reason_of
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn.distributed.dist_embedding import DistEmbedding
from superworkflow.tasks.train.checkpoint import GROUP_NOTE, UNUSABLE, Arrays, CheckpointStore
from superworkflow.tasks.train.optimizers import Optimizer

_PIECE_BYTES = 32 << 20
_KEPT = "optimizer."
"""Names of what the optimizer keeps begin with it."""
Parts = Mapping[int, Mapping[str, tuple[int, int]]]
"""Bounds of each part among this worker's rows of each node set."""


class GroupKept:
    """See `checkpoint.CheckpointStore`.

    Args:
        worker: this one.
        folder: for temporary files.
    """

    def __init__(self, worker: Worker, folder: Path):
        self._worker, self._file = worker, folder / "checkpoint.safetensors"

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        write_tensors(self._file, arrays)
        number, more = 0, True
        with self._file.open("rb") as stream:
            while more:  # the last piece is a short one, or empty
                piece = stream.read(_PIECE_BYTES)
                self._worker.save(f"workers/{name}.{number}", piece)
                number, more = number + 1, len(piece) == _PIECE_BYTES
        self._file.unlink()

    def read(self, name: str) -> Arrays:
        number, more = 0, True
        with self._file.open("wb") as stream:
            while more:
                piece = self._worker.load(f"workers/{name}.{number}")
                if piece is None:
                    raise FileNotFoundError(f"{name}.{number}")
                stream.write(piece)
                number, more = number + 1, len(piece) == _PIECE_BYTES
        arrays = read_tensors(self._file)
        self._file.unlink()
        return arrays

    def note(self, text: str) -> None:
        self._worker.save(GROUP_NOTE, text.encode())

    def noted(self) -> str | None:
        data = self._worker.load(GROUP_NOTE)
        return None if data is None else data.decode()


def save_tables(
    kept: CheckpointStore, slot: str, parts: Parts, tables: DistEmbedding, best: Mapping[str, NDArray[Any]],
    optimizer: Optimizer,
) -> None:  # fmt: skip
    """Write the rows of this worker's parts, the best ones, and what the optimizer keeps of them.

    Args:
        kept: where to.
        slot: in which.
        parts: this worker's.
        tables: its rows.
        best: the best ones by node set; empty where there are none yet.
        optimizer: of the tables.
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
    """State of a whole checkpoint: by node set the rows of a worker's parts and the best ones; by number of the table
    what the optimizer keeps."""

    rows: Arrays
    best: Arrays
    states: dict[int, Arrays]

    def take(self, tables: DistEmbedding, optimizer: Optimizer) -> None:
        """Go back to them."""
        tables.load(self.rows)
        if self.rows:
            optimizer.load(self.states)


def read_tables(
    kept: CheckpointStore, slot: str, parts: Parts, tables: DistEmbedding, optimizer: Optimizer, has_best: bool,
    tell: Callable[[str], None],
) -> SavedTables | None:  # fmt: skip
    """Saved rows of this worker's parts; None where they are not whole, or not of these tables.

    Args:
        kept: where it is.
        slot: in which.
        parts: this worker's.
        tables, optimizer: its rows, and what trains them; nothing of them changes.
        has_best: whether best ones were saved.
        tell: called with why it cannot be used.
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
            if whole:  # there are none before the first step
                states[number] = {key.removeprefix(_KEPT): values for key, values in whole.items()}
        optimizer.check(states)
    except (OSError, ValueError) as error:
        tell(f"{UNUSABLE} ({reason_of(error)})")
        return None
    return SavedTables(rows, best, states)


def _are_of_one_state(part: Arrays, other: Arrays) -> bool:
    """True if two parts have arrays of the same names, and the same numbers where these are not by row."""
    return part.keys() == other.keys() and all(
        values.ndim == other[name].ndim and (values.ndim > 0 or values == other[name]) for name, values in part.items()
    )


def _check_part(arrays: Arrays, shape: tuple[int, ...], has_best: bool, what: str) -> None:
    """True if it can be a part of so many rows. Raises ValueError."""
    given = {name: values for name, values in arrays.items() if not name.startswith(_KEPT)}
    if given.keys() != ({"rows", "best"} if has_best else {"rows"}):
        raise ValueError(f"{what} has {', '.join(sorted(given)) or 'no rows'}")
    by_row = [*given.values(), *(each for each in arrays.values() if each.ndim)]
    if any(each.shape != shape or each.dtype != np.float32 for each in by_row):
        raise ValueError(f"{what} has another shape or kind")


def _name(slot: str, table: int, part: int) -> str:
    return f"{slot}-embeddings-{table}-part-{part:04}"
