"""Pieces of `.npy` files, read straight into their place; nothing else of the file is read."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from infra.filesystem import Location


def _header(stream: BinaryIO) -> tuple[int, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    (length,), _, dtype = read(stream)
    return length, dtype


def array_header(file: Location) -> tuple[int, np.dtype[Any]]:
    """(entries, dtype) of a 1-D array."""
    with file.open() as stream:
        return _header(stream)


def read_slice(file: Location, first: int = 0, last: int | None = None, *, padding: int = 0) -> npt.NDArray[Any]:
    """Entries ``first`` to ``last - 1`` of a 1-D array, to its end if None, with ``padding`` entries of -1 behind."""
    with file.open() as stream:
        length, dtype = _header(stream)
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
