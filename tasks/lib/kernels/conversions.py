"""Conversions between float64 and whole numbers that are not negative, which the compiler makes vectors of.

AVX2 has none of 64 bits, and LLVM then takes vectors apart. There the 52 bits of a float64 between 2**52 and 2**53 are
the whole number itself. Both ways give the same values.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils as numba_cgutils
from numba.core import types

from superworkflow.tasks.lib.kernels.cpu_features import has
from superworkflow.tasks.lib.kernels.intrinsics import kernel_intrinsic

cgutils: Any = numba_cgutils
_PAIR: Any = types.Tuple([types.int64, types.float64])  # type: ignore[no-untyped-call]
LIMIT = 2.0**51
"""Numbers below this one have an exact whole part."""
_BY_BITS = platform.machine().lower() in ("x86_64", "amd64") and not has("avx512dq")
_WORD, _REAL = ir.IntType(64), ir.DoubleType()
_FIRST = 2.0**52
_BITS = 0x433 << 52
"""Bits of `_FIRST`."""


@kernel_intrinsic
def real_of(typing_context: Any, whole: Any) -> Any:
    """``real_of(whole)``: an int64 from 0 to 2**52 - 1 as a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _BY_BITS:
            return builder.sitofp(arguments[0], _REAL)
        return builder.fsub(builder.bitcast(builder.or_(arguments[0], _WORD(_BITS)), _REAL), _REAL(_FIRST))

    return types.float64(types.int64), generate


@kernel_intrinsic
def whole_and_rest(typing_context: Any, real: Any) -> Any:
    """``whole_and_rest(real)``: the whole part of a float64 from 0 to 2**62, and the rest; of one from `LIMIT` on some
    number from there on, and any rest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        if not _BY_BITS:
            whole = builder.fptosi(value, _WORD)
            floor = builder.sitofp(whole, _REAL)
        else:
            kind = ir.FunctionType(_REAL, [_REAL])
            floor = builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.floor.f64"), [value])
            most = builder.select(builder.fcmp_ordered("<", floor, _REAL(LIMIT)), floor, _REAL(LIMIT))
            whole = builder.xor(builder.bitcast(builder.fadd(most, _REAL(_FIRST)), _WORD), _WORD(_BITS))
        return context.make_tuple(builder, signature.return_type, [whole, builder.fsub(value, floor)])

    return _PAIR(types.float64), generate
