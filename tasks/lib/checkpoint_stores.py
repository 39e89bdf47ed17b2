"""Stores of checkpoints: named arrays, and a note of the state that they are of.

A state is written to one of two slots and then noted, so that a crash leaves either the old state or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors

STATE = "state.json"
GROUP_NOTE = "workers.json"
"""Names of the notes of one process and of a worker group."""
Arrays = dict[str, NDArray[Any]]


class CheckpointStore(Protocol):
    """Store of checkpoints."""

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the arrays of this name."""

    def read(self, name: str) -> Arrays:
        """Read the arrays of this name. Raises OSError or ValueError if they are missing or incomplete."""

    def note(self, text: str) -> None:
        """Replace the note atomically."""

    def noted(self) -> str | None:
        """Read the note; None if there is none."""


class Folder:
    """A local folder of checkpoints."""

    def __init__(self, path: Path):
        self._path = path

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_tensors(self._path / f"{name}.safetensors", arrays)

    def read(self, name: str) -> Arrays:
        return read_tensors(self._path / f"{name}.safetensors")

    def note(self, text: str) -> None:
        temporary = self._path / f"{STATE}.tmp"
        temporary.write_text(text)
        temporary.replace(self._path / STATE)

    def noted(self) -> str | None:
        path = self._path / STATE
        return path.read_text() if path.is_file() else None
