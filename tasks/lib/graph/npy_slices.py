"""Pieces of `.npy` files, read straight into their place; nothing else of the file is read."""

from __future__ import annotations

from typing import Any

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
        view = memoryview(values[: last - first].view(np.uint8).data)
        stream.seek(first * dtype.itemsize, 1)
        done = 0
        while done < len(view):
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise OSError(f"{file.uri} ended after {done} bytes of {len(view)}")
            done += count
    values[last - first :] = -1
    return values
