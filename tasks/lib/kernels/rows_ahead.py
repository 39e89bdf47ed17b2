"""Distance at which sums of listed rows prefetch, by measurement.

A row that is brought into the second-level cache has to arrive before it is added. 16 rows ahead are enough where the
memory answers soon; an AMD EPYC of 2024 sums rows of two cache lines 2.7 times as fast with 128 (4M rows of bfloat16 of
a table of 26 MB: 27 ms with 16, 13 with 64, 10 with 128), and an Intel Xeon of 2023 loses a tenth with 24 or more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numba as nb
import numpy as np
from numba import types
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.huge_pages import on_huge_pages
from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.lanes import bring_row, plus_row, put_row, table_of, zeros64
from superworkflow.tasks.lib.kernels.variants import KernelChoice

_DISTANCES = (16, 32, 64, 128)
_ROWS, _WIDTH, _SUMS, _TERMS = 1 << 18, 64, 1 << 14, 20
"""Rows of the table that is read, 32 MiB of bfloat16; its columns; sums; their rows on average."""


@nb.njit(nogil=True, cache=True)
def _sum_rows(flat: Any, starts: Any, senders: Any, ahead: Any, out: Any) -> None:
    """Sums of different lengths: a processor that guesses their ends wrongly reads nothing ahead by itself."""
    for i in range(len(starts) - 1):
        total = zeros64()
        for e in range(starts[i], starts[i + 1]):
            if e + ahead < len(senders):
                bring_row(total, flat, np.uint64(_WIDTH) * np.uint64(senders[np.uint64(e + ahead)]))
            total = plus_row(total, flat, np.uint64(_WIDTH) * np.uint64(senders[np.uint64(e)]))
        put_row(total, np.float32(1), out, np.uint64(0))


def _inputs() -> tuple[NDArray[Any], ...]:
    rng, table = np.random.default_rng(1), table_of(_ROWS, _WIDTH, np.int16)
    table[:] = 1  # so that its pages are there
    on_huge_pages(table)  # as the tables of graphs are
    starts = np.cumsum(np.append(0, rng.poisson(_TERMS, _SUMS)))
    return table.reshape(-1), starts, rng.integers(0, _ROWS, starts[-1], np.int32), np.zeros(_WIDTH, np.float32)


def _rates() -> Mapping[str, Callable[[], float]]:
    inputs = cache(_inputs)

    def rate(ahead: int) -> float:
        flat, starts, senders, out = inputs()
        _sum_rows(flat, starts[:2], senders, ahead, out)  # compiled, or loaded, before time is taken
        begun = time.perf_counter()
        _sum_rows(flat, starts, senders, ahead, out)
        return len(senders) / (time.perf_counter() - begun)

    return {str(ahead): lambda ahead=ahead: rate(ahead) for ahead in _DISTANCES}  # type: ignore[misc]


DISTANCE = KernelChoice("distance", "rows/s", _rates, lambda: str(_sum_rows.stats.cache_path))
"""Rows between the one that is brought and the one that is added."""


@kernel_intrinsic
def _rows_ahead(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(types.int64, int(DISTANCE.value))

    return types.int64(), generate


rows_ahead: Any = DISTANCE.marks(_rows_ahead)
"""``rows_ahead()``: `DISTANCE`, a constant in compiled code."""
