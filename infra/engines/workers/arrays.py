"""Arrays in messages: their forms as JSON, their bytes one after the other. Nothing is unpickled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Sequence[NDArray[Any]]
Forms = list[tuple[str, list[int]]]
"""Type and shape of each array, the type as `numpy.dtype.str`."""
_KINDS = "fiu"
_MOST_DIMENSIONS = 4


def packed(arrays: Arrays) -> tuple[Forms, bytes]:
    """Forms and bytes of arrays of numbers."""
    forms = [(each.dtype.str, list(each.shape)) for each in arrays]
    return forms, b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)


def unpacked(forms: Any, payload: bytes | memoryview) -> list[NDArray[Any]]:
    """The arrays again, each aligned, writable and in memory of its own.

    Raises:
        ValueError: forms that are none, or a payload of another size.
    """
    found, done, view = [], 0, memoryview(payload)
    for kind, shape in _checked(forms):
        size = kind.itemsize * math.prod(shape)
        if done + size > len(view):
            raise ValueError(f"{len(view)} bytes are too few for arrays of forms {forms}")
        made = np.empty(shape, kind)
        made.reshape(-1).view(np.uint8)[:] = view[done : done + size]
        found.append(made)
        done += size
    if done != len(view):
        raise ValueError(f"{len(view)} bytes are too many for arrays of forms {forms}")
    return found


def bytes_of(forms: Any) -> int:
    """Bytes that arrays of these forms take.

    Raises:
        ValueError: forms that are none.
    """
    return sum(kind.itemsize * math.prod(shape) for kind, shape in _checked(forms))


def _checked(forms: Any) -> list[tuple[np.dtype[Any], list[int]]]:
    try:
        found = [(np.dtype(str(kind)), [int(length) for length in shape]) for kind, shape in forms]
    except (TypeError, ValueError) as error:
        raise ValueError(f"not forms of arrays: {error}") from None
    for kind, shape in found:
        if kind.kind not in _KINDS or len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
            raise ValueError(f"not the form of an array of numbers: {kind}, {shape}")
    return found
