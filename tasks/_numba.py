"""Kernels from Numba's cache on disk, without the tables that only compiling needs.

Before it looks into its cache, Numba imports all that it could compile (typed containers, random numbers, linear
algebra with SciPy, …) and registers it: several tenths of a second in each process, and unused when the kernel is
found. Its compiler does the same by itself before it compiles, so that leaving it out of the look-up loses nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event
from numba.core.caching import Cache
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from superworkflow.infra.execution.compiling import clock

_BLAS = "scipy.linalg.cython_blas"


def load_kernels_fast() -> None:
    """Look up cached kernels without filling the compiler's tables; all of Numba in this process."""
    if all(hasattr(Cache, name) for name in ("_load_overload", "_guard_against_spurious_io_errors")):
        setattr(Cache, "load_overload", _load_overload)  # noqa: B010  # to mypy a method cannot be assigned


class _Told(event.Listener):
    """Passes on when Numba compiles; what it finds in its cache makes no event."""

    def on_start(self, event: Any) -> None:
        clock.begin()

    def on_end(self, event: Any) -> None:
        clock.end()


event.register("numba:compile", _Told())  # type: ignore[no-untyped-call]


def prepare() -> None:
    """Do what the first kernel that is loaded would wait for."""
    context = cpu_target.target_context
    rtsys.initialize(context)
    context.codegen().magic_tuple()


def _load_overload(cache: Any, signature: Any, target_context: Any) -> Any:
    rtsys.initialize(target_context)  # kernels that allocate call it
    with _without_blas(), cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, target_context)
    return None  # type: ignore[unreachable]  # the guard passes over a file that vanished


@contextmanager
def _without_blas() -> Iterator[None]:
    """Modules that a kernel was inlined from are imported with it, and Numba's for sums looks for SciPy's BLAS then.

    It only wants to know whether products of two vectors may be left to it when `np.convolve` and the like are
    compiled; `np.dot` asks again by itself.
    """
    if _BLAS in sys.modules or "numba.np.arraymath" in sys.modules:
        yield
        return
    sys.modules[_BLAS] = None  # type: ignore[assignment]  # imports of it fail at once
    try:
        yield
    finally:
        del sys.modules[_BLAS]
