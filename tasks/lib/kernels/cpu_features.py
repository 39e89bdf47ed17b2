"""Features of the processor that kernels are compiled for."""

from __future__ import annotations

import llvmlite.binding  # type: ignore[import-untyped]
import numba


def has(feature: str) -> bool:
    """True if the processor that Numba compiles for has this feature."""
    features: str | None = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is not None:
        return f"+{feature}" in features.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature))
