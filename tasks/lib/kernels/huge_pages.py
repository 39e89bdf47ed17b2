"""Large arrays on huge pages, so that random access to them does not wait for page tables, or on small ones; and memory
that stays with the process, or leaves it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PAGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1 and later
_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14 and later
_STEP = 16 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's mallopt
_KEPT_BYTES = 1 << 30
_GROWTH_BYTES = 512 << 20
_PIECE_VALUES, _HELD_PIECES = 1 << 21, 8


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


def map_whole(array: Any) -> None:
    """Map all pages of a memory-mapped file now, of which most will be read in any order.

    Each would else be mapped when it is first read, sixteen neighbours at most at a time: of a table of 377 MB that
    took as long as a third of the copies of its rows. On other systems, and of other arrays, nothing happens.
    """
    mapped = getattr(array, "_mmap", None)
    if mapped is None or not sys.platform.startswith("linux"):
        return
    with suppress(OSError):  # an older kernel, or an unreadable page: reading it raises later
        for first in range(0, len(mapped), _STEP):  # in steps, between which other threads run
            mapped.madvise(_POPULATE_READ, first, min(_STEP, len(mapped) - first))


def rows_of_pieces(values: NDArray[Any]) -> Iterator[slice]:
    """Slices of rows, one after the other, of a size that fits in caches.

    Of a mapped file no more than some pieces stay in memory.
    """
    rows = max(1, _PIECE_VALUES // max(1, values.shape[1]))
    for number, first in enumerate(range(0, len(values), rows), 1):
        yield slice(first, min(first + rows, len(values)))
        if number % _HELD_PIECES == 0:
            release(values)


def release(values: NDArray[Any]) -> None:
    """Let go of the pages of a mapped file, which has what was written to them."""
    if isinstance(values, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        values._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


@contextmanager
def small_pages(wanted: bool = True) -> Iterator[None]:
    """Allocate NumPy arrays without huge pages inside the block, if `wanted`.

    A hypervisor that takes back what its guest has freed does so by huge pages, and to get one again took 2 to 3 ms
    where this was measured. Arrays that are used for a second or two are better off without.
    """
    switch = getattr(np._core.multiarray, "_set_madvise_hugepage", None)  # type: ignore[attr-defined]
    if not wanted or switch is None:
        yield
        return
    before = switch(False)
    try:
        yield
    finally:
        switch(before)


def keep_memory() -> bool:
    """Have this process keep what it frees, for good, instead of giving it back to the system; says whether it does.

    For work that takes and frees the same large arrays in each step: to get their pages anew, filled with zeros, was a
    tenth of a step of training. Single arrays above a GiB still go back. Threads that start afterwards take memory from
    where the first one does: their own arenas have no room for arrays above 64 MiB. Only glibc can be asked.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    wanted = {_TRIM_THRESHOLD: -1, _MMAP_THRESHOLD: _KEPT_BYTES, _ARENA_MAX: 1}
    return mallopt is not None and all(mallopt(option, value) for option, value in wanted.items())


class KeptMemory:
    """Memory that this process keeps, as by `keep_memory`, and gives back once it has become much more.

    For loops whose arrays have other sizes in each step: the holes between them grow, in a training on links to five
    times what was used. Where sizes are alike nothing is given back.
    """

    def __init__(self) -> None:
        self._bounded = keep_memory()
        self._most = self._limit()

    def give_back(self) -> bool:
        """Give back what is free, if the process has doubled and grown by 512 MiB more; says whether it was tried.

        To get it back costs: of a bound of half as much steps took a quarter longer, of this one a hundredth.
        """
        if not self._bounded or _own_bytes() <= self._most:
            return False
        ctypes.CDLL(None).malloc_trim(0)
        self._most = self._limit()
        return True

    def _limit(self) -> int:
        return 2 * _own_bytes() + _GROWTH_BYTES if self._bounded else 0


def _own_bytes() -> int:
    """Resident memory of this process that is no file's."""
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * mmap.PAGESIZE
