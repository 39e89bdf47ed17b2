"""Files of named arrays in the format safetensors: a length, a header in JSON, and the bytes of each array."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}
_MOST_HEADER = 100_000_000
_ALIGNED = 8


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays, by name.

    Args:
        path: where to.
        tensors: in the order in which they are to be written; C-contiguous copies are made where need be.
        metadata: texts about them.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": _NAMES[values.dtype], "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)))
        stream.write(text)
        for values in tensors.values():
            stream.write(values.tobytes() if values.ndim == 0 else np.ascontiguousarray(values).data)


def read_tensors(path: Path, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of a file, by name.

    Args:
        path: of the file.
        mapped: map them, read-only, instead of reading them.

    Raises:
        ValueError: it is no such file, or not whole.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        begin = stream.read(8)
        if len(begin) < 8 or not 0 < (length := struct.unpack("<Q", begin)[0]) <= min(_MOST_HEADER, size - 8):
            raise ValueError("no header of safetensors")
        header = json.loads(stream.read(length))
        if not isinstance(header, dict):
            raise ValueError("the header names no tensors")
        room = size - 8 - length
        found: dict[str, NDArray[Any]] = {}
        ends = 0
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape, first, last = _place(name, entry)
            if last - first != dtype.itemsize * math.prod(shape) or last > room:
                raise ValueError(f"tensor {name!r} has not the bytes that its shape needs")
            if mapped and last > first:
                found[name] = np.memmap(path, dtype, "r", 8 + length + first, shape)
            else:
                stream.seek(8 + length + first)
                found[name] = np.frombuffer(bytearray(stream.read(last - first)), dtype).reshape(shape)
            ends = max(ends, last)
        if ends != room:
            raise ValueError("the file is longer than its tensors")
    return found


def _place(name: str, entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Entry of a tensor in the header: dtype, shape, and the range of its bytes."""
    try:
        dtype, shape = np.dtype(_KINDS[entry["dtype"]]), tuple(entry["shape"])
        first, last = entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"tensor {name!r} is not described") from None
    if not all(type(each) is int and each >= 0 for each in (*shape, first, last)):
        raise ValueError(f"tensor {name!r} has no place")
    return dtype, shape, first, last
