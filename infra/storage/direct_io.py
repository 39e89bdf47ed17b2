"""Local files that are large, and that nobody reads soon: written past the kernel's cache of pages where that can be.

Through the cache each GB takes half a CPU second more, and pushes out of memory what is being read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

PIECE = 4 << 20
"""Bytes that are written together."""
ALIGNED = 4096
"""Alignment in bytes of offsets, lengths and memory of direct writes; no usual file system asks for more."""
_DIRECT = getattr(os, "O_DIRECT", 0)
_KEPT = 8
"""Pieces of memory that are kept for the next files, 64 MiB: what threads that write a file each use at a time."""
_free: list[mmap.mmap] = []


class LargeFile:
    """A new file, written from its beginning to its end.

    A thread of its own writes one buffer while the next one is filled. Where the file system takes no direct writes,
    they pass through the kernel's cache, whose pages are dropped as the file grows.

    Args:
        path: of the file; what was there goes.

    Raises:
        OSError: of a piece, such as that the disk is full, from a later call, at last from the end of the block.
    """

    def __init__(self, path: Path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        self._direct = bool(_DIRECT)
        try:
            self._descriptor = os.open(path, flags | _DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._descriptor, self._direct = os.open(path, flags, 0o666), False
        self._memory, self._other = _memory(), _memory()
        self._held = self._written = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-file")
        self._writing: Future[None] | None = None

    def __enter__(self) -> LargeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self._write_held()
                self._wait()
                if self._held:
                    self._through_cache()
                    self._write(memoryview(self._memory)[: self._held])
        finally:
            self._thread.shutdown()
            os.close(self._descriptor)
            _give_back(self._memory, self._other)

    def write(self, data: Any) -> int:
        """Write bytes, by way of the memory that is written next."""
        view = memoryview(data).cast("B")
        for first in range(0, len(view), PIECE):
            part = view[first : first + PIECE]
            self.room(len(part))[:] = part
            self.filled(len(part))
        return len(view)

    def room(self, size: int) -> memoryview:
        """Memory to put the next `size` bytes into; valid until `filled`."""
        if self._held + size > len(self._memory):
            self._write_held()
        if self._held + size > len(self._memory):
            larger = mmap.mmap(-1, -(-(self._held + size) // PIECE) * PIECE)
            larger[: self._held] = self._memory[: self._held]
            self._memory = larger
        return memoryview(self._memory)[self._held : self._held + size]

    def filled(self, size: int) -> None:
        """Take the bytes that were put into the room."""
        self._held += size
        if self._held >= PIECE:
            self._write_held()

    def flush(self) -> None:
        """Nobody reads the file before its end."""

    def _write_held(self) -> None:
        """Begin to write all whole blocks, and keep what is left over for the next piece."""
        whole = self._held - self._held % ALIGNED
        if not whole:
            return
        self._wait()
        left = self._held - whole
        self._other[:left] = self._memory[whole : self._held]
        self._writing = self._thread.submit(self._write, memoryview(self._memory)[:whole])
        self._memory, self._other, self._held = self._other, self._memory, left

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, view: memoryview) -> None:
        while len(view):
            try:
                count = os.write(self._descriptor, view)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                self._through_cache()
                continue
            view, self._written = view[count:], self._written + count
        if not self._direct and hasattr(os, "posix_fadvise"):
            # Starts to write the pages to the disk, and drops those that are there by now; waits for neither.
            with contextlib.suppress(OSError):  # a file system that takes no advice
                os.posix_fadvise(self._descriptor, 0, self._written, os.POSIX_FADV_DONTNEED)

    def _through_cache(self) -> None:
        """Write the rest, which is no whole block, or what a file system refuses, as other files are written."""
        if self._direct:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~_DIRECT)
            self._direct = False


def _memory() -> mmap.mmap:
    """Memory for two pieces, left by a file before where there is some.

    On huge pages, of which the kernel finds those that the disk is to read with fewer look-ups.
    """
    try:
        return _free.pop()
    except IndexError:
        made = mmap.mmap(-1, 2 * PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


def _give_back(*memory: mmap.mmap) -> None:
    """Keep memory that nothing is written from any more. Not locked: a piece more than wanted may be kept."""
    _free.extend([each for each in memory if len(each) == 2 * PIECE][: max(0, _KEPT - len(_free))])
