"""Threads of OpenMP and OpenBLAS: how long they wait for their next work before they sleep, and how many Numba starts.

GNU's library, which torch and Numba compute with, lets a thread that is done ask 300,000 times whether there is more
before it sleeps: some milliseconds. That is fastest while nobody else wants the core. A stage shares it with other
stages, trials and its own threads that read ahead, and a container pays for it out of its quota of CPU time. Where it
finds more of its own threads than cores, the library asks 100 times; of other processes it does not know.

OpenBLAS, which NumPy computes with, starts its threads when it is loaded, and each waits for 2**26 ticks of the
processor, some 25 ms, also where nothing is ever multiplied.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, MutableMapping

_ASKED = "GOMP_SPINCOUNT"
_TIMES = 1_000
_CHOSEN_BY = (_ASKED, "OMP_WAIT_POLICY")
"""Variables by which a user has chosen already; the second selects spinning or sleeping."""
_NUMBA = "NUMBA_NUM_THREADS"
_LOGARITHM, _TICKS = "OPENBLAS_THREAD_TIMEOUT", 16
"""Logarithm of the spins before a thread sleeps, and its replacement: some 25 µs."""


def sleep_soon(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have threads sleep after 1,000 questions or 2**16 ticks, unless the environment says otherwise.

    The libraries read it when they are loaded: for this process to be called before torch and NumPy are imported, and
    for all that are started from it.
    """
    if not any(name in environment for name in _CHOSEN_BY):
        environment[_ASKED] = str(_TIMES)
    environment.setdefault(_LOGARITHM, str(_TICKS))


def limit_numba(threads: int) -> None:
    """Have Numba start no more than so many threads in this process, which has not computed with it yet.

    Where Numba starts its own, it makes their number that of all of OpenMP's in the thread that calls, hence torch's
    too. By itself it takes one for each core, whatever torch was told before.
    """
    os.environ[_NUMBA] = str(threads)
    _tell_numba()


@contextlib.contextmanager
def numba_threads(threads: int) -> Iterator[None]:
    """Have Numba compute with so many threads meanwhile, unless the environment says how many.

    For a stage: in a pod Numba sees the cores of the whole node, and what a stage tells it is for the thread that does
    so alone. Where this process has computed with it before, it keeps the threads that it has.
    """
    if _NUMBA in os.environ:
        yield
        return
    try:
        with contextlib.suppress(RuntimeError):
            limit_numba(threads)
        yield
    finally:
        os.environ.pop(_NUMBA, None)
        with contextlib.suppress(RuntimeError):
            _tell_numba()


def _tell_numba() -> None:
    """Have Numba read the environment again, where it was imported before, such as before this process was forked.

    Raises:
        RuntimeError: it says otherwise, and Numba has started its threads.
    """
    numba, pool = sys.modules.get("numba"), sys.modules.get("numba.np.ufunc.parallel")
    if numba is not None:
        numba.config.reload_config()
    if pool is not None:
        setattr(pool, "NUM_THREADS", pool.get_thread_count())  # noqa: B010  # taken when it was imported
