"""Compiled kernels that an image brings along.

Numba compiles a kernel when it is first called, which takes a small stage longer than its work, and keeps it in a
folder. It uses such a folder only where it may also write to it, and an image's is read-only. What was compiled for
another processor, or from other source files, it compiles anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

BROUGHT_VARIABLE = "SUPERWORKFLOW_KERNELS"
"""Names the folder of the image."""


def bring_kernels() -> None:
    """Copy the image's kernels to `NUMBA_CACHE_DIR`, unless that folder is there already."""
    brought, kept = os.environ.get(BROUGHT_VARIABLE), os.environ.get("NUMBA_CACHE_DIR")
    if brought and kept and Path(brought).is_dir() and not Path(kept).exists():
        partial = Path(f"{kept}.{os.getpid()}")
        shutil.copytree(brought, partial, copy_function=shutil.copyfile)
        try:
            partial.rename(kept)
        except OSError:  # another process was first
            shutil.rmtree(partial)
