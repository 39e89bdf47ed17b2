"""The mode `SUPERWORKFLOW_TEST_KERNELS=checked`: all kernels are compiled anew so that their mistakes are seen.

Indices are checked against bounds, and no kernel is parallel, because a check in one of several threads does not raise;
every call from Python has guard zones, and the matrices of training lie between zones of their own; the processor is
one without AVX-512, which takes the other way through the intrinsics. `make test-kernels` runs the kernels' tests so.
"""

import atexit
import os
import shutil
import tempfile
from typing import Any

VARIABLE = "SUPERWORKFLOW_TEST_KERNELS"
PLAIN_CPU = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2"}
"""A processor with AVX2 and neither AVX-512 nor bfloat16."""


def is_checked() -> bool:
    """True if this process compiles its kernels in this mode."""
    return os.environ.get(VARIABLE) == "checked"


def set_up_checked_kernels() -> None:
    """Before any module of kernels is imported: have them compiled in this mode, if it is asked for."""
    if not is_checked():
        return
    cache = tempfile.mkdtemp(prefix="checked-kernels-")
    atexit.register(shutil.rmtree, cache, ignore_errors=True)
    os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
    import llvmlite.binding

    if llvmlite.binding.get_host_cpu_features().get("avx2"):
        os.environ |= PLAIN_CPU
    import numba

    compiled = numba.njit

    def serial(*arguments: Any, parallel: bool = False, **options: Any) -> Any:
        return compiled(*arguments, **options)

    numba.njit = serial
    from tests.kernels.guarded import guard_all_calls
    from tests.kernels.poisoned import poison_matrices

    guard_all_calls()
    poison_matrices()
