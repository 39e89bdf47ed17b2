"""Temporary folders of stages; what a killed process left behind is removed when the next stage starts on the machine.

A killed process cannot remove its folders, and they may hold a whole graph. The kernel's lock on a folder (`flock`)
shows whether its process lives, even where several containers see one folder for temporary files and the numbers of
processes say nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "superworkflow-temporary-"
FRESH_SECONDS = 60.0
"""A folder as young may not be locked yet."""


class Scratch:
    """A temporary folder, held by this process until `remove`.

    Args:
        kind: what it is for, a part of its name.
    """

    def __init__(self, kind: str):
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is taken for abandoned
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and what is in it, unless that was done."""
        if self._descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = -1


def remove_abandoned() -> None:
    """Remove this user's folders whose processes have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _opened(path) as descriptor:
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid() and found.st_mtime < time.time() - FRESH_SECONDS:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process lives
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
