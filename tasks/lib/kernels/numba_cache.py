"""Kernels from Numba's cache on disk, without the tables that only compiling needs, and into it one at a time.

Before it looks into its cache, Numba imports all that it could compile (typed containers, random numbers, linear
algebra with SciPy, …) and registers it: several tenths of a second in each process, and unused when the kernel is
found. Its compiler does the same by itself before it compiles, so that leaving it out of the look-up loses nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import sys
from typing import Any

import numba
from numba.core import environment, event
from numba.core.caching import Cache, IndexDataCacheFile
from numba.core.environment import Environment
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from superworkflow.infra.process.compile_clock import clock

TESTED_VERSION = (0, 68)
"""Newest Numba whose private functions were compared with those here; newer ones are left as they are, and slow."""


def load_kernels_fast() -> None:
    """Look up kernels in the cache without filling the compiler's tables, and save them under a lock: all of Numba."""
    if numba.version_info.short <= TESTED_VERSION:
        setattr(Cache, "load_overload", _load_overload)  # noqa: B010  # to mypy a method cannot be assigned
        setattr(environment, "_rebuild_env", _rebuild_env)  # noqa: B010
        setattr(IndexDataCacheFile, "save", _save)  # noqa: B010


class _CompileListener(event.Listener):
    """Passes on when Numba compiles; what it finds in its cache makes no event."""

    def on_start(self, event: Any) -> None:
        clock.begin()

    def on_end(self, event: Any) -> None:
        clock.end()


event.register("numba:compile", _CompileListener())  # type: ignore[no-untyped-call]


def prepare() -> None:
    """Do what the first kernel that is loaded would wait for."""
    context = cpu_target.target_context
    rtsys.initialize(context)
    context.codegen().magic_tuple()


def _load_overload(cache: Any, signature: Any, target_context: Any) -> Any:
    rtsys.initialize(target_context)  # kernels that allocate call it
    try:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, target_context)
    except (AttributeError, ImportError):
        # The index names a type that was moved or renamed since, in a file other than the kernel's. Numba would fail
        # here, and again when it saves the kernel.
        cache._cache_file.flush()
    return None  # the guard passes over a file that vanished


_save_unlocked: Any = IndexDataCacheFile.save


def _save(file: Any, key: Any, data: Any) -> None:
    """Save a kernel while no other process saves one in this folder.

    Numba reads the index of a function's kernels, takes the first file that it does not name, and writes index and
    file: of two processes at a time one loses its entry, or is left with one that names the other's kernel.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a file system without locks
            folder = os.open(file._cache_path, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        _save_unlocked(file, key, data)


def _rebuild_env(module: str, constants: Any, name: str) -> Any:
    """Rebuild an environment as Numba's function of this name does, without the modules that a kernel was inlined from.

    They would be there for interpreted code that a kernel falls back to, which ours and Numba's do not. Among them are
    those for strings, and for sums, which looks for SciPy's BLAS.
    """
    environments: Any = Environment._memo
    if (made := environments.get(name)) is None:
        own = module.startswith("numba.") and module not in sys.modules
        made = Environment({"__name__": module} if own else importlib.import_module(module).__dict__)
        made.consts[:] = constants
        made.env_name = name
        environments[name] = made
    return made


# Kernels on disk name it where Numba has it; so do those that are written from here.
_rebuild_env.__module__ = environment.__name__
