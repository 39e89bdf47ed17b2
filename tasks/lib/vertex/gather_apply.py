"""Updates made of gather, apply and scatter (Gonzalez et al., "PowerGraph", OSDI 2012)."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

BLOCK = 1 << 12
"""In-neighbours whose gathered numbers are summed first; the sums of blocks are added in their order."""


def _gather(scope: Any, other: Any, weight: Any, params: Any) -> float:
    raise NotImplementedError


def _apply(scope: Any, total: float, params: Any) -> Any:
    raise NotImplementedError


def _scatter(scope: Any, other: Any, params: Any) -> float:
    return 0.0


def _update(scope: Any, params: Any) -> Any:
    """Gather from in-neighbours, apply, and signal out-neighbours."""
    total = 0.0
    for begin in range(0, scope.in_degree, BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, scope.in_degree)):
            part += _gather(scope, scope.in_neighbour(i), scope.in_weight(i), params)
        total += part
    residual = _apply(scope, total, params)
    for i in range(scope.out_degree):
        scope.signal(scope.neighbour(i), _scatter(scope, scope.neighbour(i), params))
    return residual


def update_of(
    gather: Callable[..., Any], apply: Callable[..., Any], scatter: Callable[..., Any] | None
) -> Callable[[Any, Any], Any]:  # fmt: skip
    """The update of these three, whose text is theirs; see `VertexProgram`."""
    parts = {"_gather": gather, "_apply": apply, **({"_scatter": scatter} if scatter is not None else {})}
    made = FunctionType(_update.__code__, {**_update.__globals__, **parts}, apply.__name__)
    made.__module__, made.__qualname__ = apply.__module__, apply.__qualname__
    return made


def is_update_of_parts(update: Callable[..., Any]) -> bool:
    """True of what `update_of` makes."""
    return getattr(update, "__code__", None) is _update.__code__
