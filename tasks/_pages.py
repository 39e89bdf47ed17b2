"""Large arrays on huge pages, so that random access to them does not wait for page tables."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from numpy.typing import NDArray

_PAGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1 and later


def on_huge_pages(array: NDArray[Any]) -> bool:
    """Ask the kernel to move an array that was just filled to huge pages; says whether it did.

    NumPy asks for huge pages when it allocates, but a kernel whose free memory is in small pieces then gives small
    ones; this request makes it gather them. On other systems, and where the kernel refuses, nothing happens.
    """
    if not sys.platform.startswith("linux") or array.nbytes < 2 * _PAGE:
        return False
    first = -(-array.ctypes.data // _PAGE) * _PAGE
    last = (array.ctypes.data + array.nbytes) // _PAGE * _PAGE
    library = ctypes.CDLL(None)
    return int(library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)) == 0
