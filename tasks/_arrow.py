"""NumPy arrays as Arrow columns."""

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
