"""Checkpoints of the workers of a group, in the stage's checkpoint, by way of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.tasks.lib.checkpoint_stores import GROUP_NOTE, Arrays
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors

_PIECE_BYTES = 32 << 20


class GroupKept:
    """The `checkpoint_stores.CheckpointStore` of a worker group.

    Args:
        worker: this worker.
        folder: folder of temporary files.
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
