"""Ways to multiply factors of bfloat16 and add up in float32, and the arithmetic ceiling of each on this processor.

`tiles` are Intel's AMX, `words` the instruction of AVX-512 that multiplies two terms at a time, `floats` multiply-adds
of float32. How fast each is differs by more than ten times, and in another order: on an Intel Xeon of 2023 one core
makes 3,700, 120 and 240 GFLOP/s, on an AMD EPYC of 2022, which has no tiles, `words` are twice as fast as `floats`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils as numba_cgutils
from numba.core import types

from superworkflow.tasks.lib.kernels.cpu_features import has
from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic
from superworkflow.tasks.lib.kernels.variants import KernelChoice

cgutils: Any = numba_cgutils
TILE = 16
"""Rows of a tile, and 32-bit words of a row."""
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
_LANES, _TURNS = 16, 20_000
_SUMS = 16 if has("avx512f") else 6
"""Sums at once: enough to hide how long one addition takes, and no more than stay in registers, two each of AVX2."""
_BYTE, _WORD, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_FLOATS = ir.VectorType(ir.FloatType(), _LANES)


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type of that name, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


BFLOAT16: Any = _BFloat16()


def may_use_tiles() -> bool:
    """Ask Linux for the tile registers, for all threads and children of this process; says whether they may be used.

    A processor without them, an older kernel, and a sandbox or a thread with a small stack for signals refuse.
    """
    if not (has("amx-bf16") and has("avx512bf16") and sys.platform == "linux" and platform.machine() == "x86_64"):
        return False
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA)) == 0


def _call_tiles(builder: Any, name: str, *arguments: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments)


def zero_tile(builder: Any, tile: int) -> None:
    _call_tiles(builder, "tilezero", _BYTE(tile))


def load_tile(builder: Any, tile: int, pointer: Any, stride: Any) -> None:
    """Load 16 rows of 64 bytes, `stride` bytes apart."""
    _call_tiles(builder, "tileloadd64", _BYTE(tile), builder.bitcast(pointer, _BYTE.as_pointer()), stride)


def store_tile(builder: Any, tile: int, pointer: Any, stride: Any) -> None:
    """Store 16 rows of 64 bytes, `stride` bytes apart."""
    _call_tiles(builder, "tilestored64", _BYTE(tile), builder.bitcast(pointer, _BYTE.as_pointer()), stride)


def multiply_tiles(builder: Any, total: int, left: int, right: int) -> None:
    """total[r, c] += sum of left[r, 2 t] right[t, 2 c] over t, plus that of left[r, 2 t + 1] right[t, 2 c + 1]."""
    _call_tiles(builder, "tdpbf16ps", _BYTE(total), _BYTE(left), _BYTE(right))


def multiply_word_vectors(builder: Any, factor: Any, others: Any, total: Any) -> Any:
    """total + the second terms' product, then + the first ones': vectors of 16 words of two bfloat16."""
    words = ir.VectorType(BFLOAT16, 2 * _LANES)
    kind = ir.FunctionType(_FLOATS, [_FLOATS, words, words])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(function, [total, builder.bitcast(factor, words), builder.bitcast(others, words)])


@kernel_intrinsic
def begin_tiles(typing_context: Any) -> Any:
    """Set this thread's tile registers up: eight of 16 rows of 64 bytes, as those of `load_tile` are."""
    shape = [1] + [0] * 15 + [4 * TILE, 0] * 8 + [0] * 16 + [TILE] * 8 + [0] * 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        content = cgutils.create_constant_array(_BYTE, shape)
        place = cgutils.global_constant(builder, "tile_shapes", content)
        _call_tiles(builder, "ldtilecfg", builder.bitcast(place, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(), generate


@kernel_intrinsic
def end_tiles(typing_context: Any) -> Any:
    """Give the tile registers back, so that the system need not keep them when it switches threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call_tiles(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def _sums(multiply: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """Intrinsic of a loop whose turns each add a product to `_SUMS` independent sums in registers; returns one."""

    def typed(typing_context: Any, turns: Any, factor: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            undefined, zeros = ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_FLOATS, [0.0] * _LANES)
            one = builder.insert_element(undefined, arguments[1], _WORD(0))
            factor = builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_WORD, _LANES), [0] * _LANES))
            sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(_SUMS)]
            with cgutils.for_range(builder, arguments[0]):
                for total in sums:
                    builder.store(multiply(builder, factor, factor, builder.load(total)), total)
            found = builder.load(sums[0])
            for total in sums[1:]:
                found = builder.fadd(found, builder.load(total))
            return builder.extract_element(found, _WORD(0))

        return types.float32(types.int64, types.float32), generate

    return kernel_intrinsic(typed)


def _multiply_floats(builder: Any, factor: Any, others: Any, total: Any) -> Any:
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32")
    return builder.call(function, [factor, others, total])


_add_floats, _add_words = _sums(_multiply_floats), _sums(multiply_word_vectors)


@kernel_intrinsic
def _add_tiles(typing_context: Any, turns: Any) -> Any:
    """Products of tiles of zeros, four sums at a time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for tile in range(8):
            zero_tile(builder, tile)
        with cgutils.for_range(builder, arguments[0]):
            for total in range(4):
                multiply_tiles(builder, total, 4 + total // 2, 6 + total % 2)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@nb.njit(cache=True, nogil=True)
def _multiply_by_floats(turns: int) -> float:
    return float(_add_floats(turns, np.float32(0.5)))


@nb.njit(cache=True, nogil=True)
def _multiply_by_words(turns: int) -> float:
    return float(_add_words(turns, np.float32(0.5)))


@nb.njit(cache=True, nogil=True)
def _multiply_by_tiles(turns: int) -> float:
    begin_tiles()
    _add_tiles(turns)
    end_tiles()
    return 0.0


_FLOPS = {
    "floats": (_multiply_by_floats, 2 * _SUMS * _LANES),
    "words": (_multiply_by_words, 4 * _SUMS * _LANES),
    "tiles": (_multiply_by_tiles, 4 * 4 * TILE**3),
}
"""A kernel for each way, and the multiplications and additions in a turn of its loop."""


def _rates() -> Mapping[str, Callable[[], float]]:
    def rate(name: str) -> float:
        kernel, flops = _FLOPS[name]
        kernel(1)  # compiled, or loaded, before time is taken
        begun = time.perf_counter()
        kernel(_TURNS)
        return flops * _TURNS / (time.perf_counter() - begun)

    ways = ["floats"] + ["words"] * has("avx512bf16") + ["tiles"] * may_use_tiles()
    return {name: lambda name=name: rate(name) for name in ways}  # type: ignore[misc]


PRODUCTS = KernelChoice("products", "FLOP/s", _rates, lambda: str(_multiply_by_floats.stats.cache_path))
"""How products of bfloat16 are made here; in the one order of sums of `product_words` all give the same bits."""
