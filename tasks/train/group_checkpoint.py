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
from superworkflow.infra.storage.names import reason_of
from superworkflow.tasks._gnn.tables import Tables
from superworkflow.tasks._gnn.tensors import read_tensors, write_tensors
from superworkflow.tasks.train.checkpoint import GROUP_NOTE, UNUSABLE, Arrays, Kept
from superworkflow.tasks.train.optimizers import Optimizer

_PIECE_BYTES = 32 << 20
Parts = Mapping[int, Mapping[str, tuple[int, int]]]
"""Of this worker's rows of each node set, where those of each part begin and end."""


class GroupKept:
    """See `checkpoint.Kept`.

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
    kept: Kept, slot: str, parts: Parts, tables: Tables, best: Mapping[str, NDArray[Any]],
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
            arrays[f"optimizer.{key}"] = torch.as_tensor(value).detach().cpu().numpy()
        for part, bounds in parts.items():
            low, high = bounds[name]
            some = {key: values[low:high] if values.ndim else values for key, values in arrays.items()}
            kept.write(_name(slot, number, part), some)


class SavedTables(NamedTuple):
    """By node set the rows of a worker's parts and the best ones; what the optimizer keeps by number of the table."""

    rows: Arrays
    best: Arrays
    states: dict[int, Arrays]

    def take(self, tables: Tables, optimizer: Optimizer) -> None:
        """Go back to them."""
        tables.load(self.rows)
        if self.rows:
            optimizer.load(self.states)


def read_tables(kept: Kept, slot: str, parts: Parts, tables: Tables, tell: Callable[[str], None]) -> SavedTables | None:
    """What was saved of the rows of this worker's parts; None where it is not there as a whole.

    Args:
        kept: where it is.
        slot: in which.
        parts: this worker's.
        tables: its rows.
        tell: called with what is missing.
    """
    rows, best, states = Arrays(), Arrays(), {}
    try:
        for number, (name, own) in enumerate(tables.arrays().items()):
            read = [kept.read(_name(slot, number, part)) for part in parts]
            whole = {
                key: np.concatenate([each[key] for each in read]) if values.ndim else values
                for key, values in read[0].items()
            }
            if any(values.ndim and values.shape != own.shape for values in whole.values()):
                raise ValueError(f"embeddings of {name} have another shape")
            rows[name] = whole.pop("rows")
            if "best" in whole:
                best[name] = whole.pop("best")
            states[number] = {key.partition(".")[2]: values for key, values in whole.items()}
    except (OSError, ValueError, KeyError) as error:
        tell(f"{UNUSABLE} ({reason_of(error)})")
        return None
    return SavedTables(rows, best, states)


def _name(slot: str, table: int, part: int) -> str:
    return f"{slot}-embeddings-{table}-part-{part:04}"
