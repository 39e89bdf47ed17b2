"""The header of a `.npy` file, for those who read or write the values after it by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from superworkflow.infra.storage.digest import SummedStream


def read_header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """(shape, dtype); the values follow in the stream.

    Raises:
        ValueError: this is not such a file.
    """
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def write_header(stream: BinaryIO | SummedStream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """The header that `numpy.save` writes; the values are to follow in the stream."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
