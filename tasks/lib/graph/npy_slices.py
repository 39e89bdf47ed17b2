"""Pieces of `.npy` files, read straight into their place; nothing else of the file is read."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.formats.npy import read_header


def array_header(file: Location) -> tuple[int, np.dtype[Any]]:
    """(entries, dtype) of a 1-D array."""
    with file.open() as stream:
        (length,), dtype = read_header(stream)
        return length, dtype


def read_slice(file: Location, first: int = 0, last: int | None = None, *, padding: int = 0) -> npt.NDArray[Any]:
    """Entries ``first`` to ``last - 1`` of a 1-D array, to its end if None, with ``padding`` entries of -1 behind."""
    with file.open() as stream:
        (length,), dtype = read_header(stream)
        last = length if last is None else last
        values = np.empty(last - first + padding, dtype)
        stream.seek(first * dtype.itemsize, 1)
        fill(stream, values[: last - first], file.uri)
    values[last - first :] = -1
    return values


def fill(stream: BinaryIO, values: npt.NDArray[Any], where: str) -> None:
    """Read an array's bytes from where a stream stands.

    Raises:
        OSError: the stream ends before.
    """
    view, done = memoryview(values.reshape(-1).view(np.uint8).data), 0
    while done < values.nbytes:
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise OSError(f"{where} ended after {done} bytes of {values.nbytes}")
        done += count
