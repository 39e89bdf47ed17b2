"""NumPy arrays as Arrow columns, and what Arrow's errors mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def column(values: NDArray[Any]) -> pa.Array:
    """An array [n] of numbers as an Arrow array that shares its memory.

    `pa.array` would import pandas first, to see whether the values come from there, which takes a quarter of a second.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def is_damage(error: Exception) -> bool:
    """True if an error says that a file is not what it should be; if not, the file could not be reached.

    Arrow raises a plain `OSError` without a number for bytes that make no sense; those of file systems have one, or are
    of a class of their own.
    """
    return isinstance(error, pa.ArrowException) or (type(error) is OSError and error.errno is None)
