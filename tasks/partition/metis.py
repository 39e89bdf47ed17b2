"""METIS 5.2.1 by its C interface, from the wheel `cmeel-metis`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import needs_package

MOST = 2**31 - 1
"""METIS counts in 32 bits."""
_OK, _NO_MEMORY = 1, -3
_OPTIONS, _CUTS, _SEED, _ON_DISK, _NUMBERING = 40, 8, 9, 11, 19
"""Length of its options, and places among them; see `metis.h`."""
_TRIED_ENTRIES, _MOST_CUTS = 4_000_000, 8
"""The best of several cuts is taken at each bisection, as long as they read no more than `_TRIED_ENTRIES` together."""
_INT32 = ctypes.POINTER(ctypes.c_int32)


@functools.cache
def _library() -> Any:
    """The library. It asks for libGKlib by a path that is wrong in the wheel, so that goes first."""
    found = importlib.util.find_spec("cmeel")
    if found is None or found.origin is None:
        raise needs_package("cmeel", "partition.method=metis")
    folder = Path(found.origin).parent.parent / "cmeel.prefix" / "lib"
    if not (folder / "libmetis.so").exists():
        raise needs_package("cmeel", "partition.method=metis")
    ctypes.CDLL(str(folder / "libGKlib.so"), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "libmetis.so"))


def bisect(
    starts: NDArray[np.int64],
    adjacency: NDArray[np.int32],
    edge_weights: NDArray[np.int32] | None,
    vertex_weights: NDArray[np.int32],
    parts: int,
    imbalance: float,
    seed: int,
    scratch: Path,
) -> tuple[NDArray[np.int32], int]:
    """Divide a graph by recursive bisection.

    METIS coarsens a graph step by step, and refines what it found on the way back. Of graphs above 128 MiB it needs
    only two at a time; the others wait in files in the working directory, which is set to `scratch` during the call.
    The parts are the same.

    Args:
        starts: of the rows [vertices + 1].
        adjacency: symmetric, without loops, each neighbour once [entries].
        edge_weights: [entries], symmetric; None for 1 each.
        vertex_weights: of each vertex in each constraint [vertices, constraints].
        parts: a power of two, at least 2.
        imbalance: how many times the mean of each constraint a side of a bisection may have.
        seed: of the C library's random numbers; no other thread may draw from them during the call.
        scratch: a folder for these files; removing what METIS may leave there when it fails is up to the caller.

    Returns:
        The part of each vertex [vertices], numbered by bisection, and the weight of the edges that are cut.

    Raises:
        UserError: memory does not suffice.
        RuntimeError: METIS refuses the graph, or was stopped.
    """
    library = _library()
    vertices, constraints = vertex_weights.shape
    if len(starts) != vertices + 1 or starts[-1] != len(adjacency) or len(adjacency) > MOST:
        raise ValueError("rows do not fit each other")
    if edge_weights is not None and edge_weights.shape != adjacency.shape:
        raise ValueError("not a weight for each edge")
    options = (ctypes.c_int32 * _OPTIONS)()
    library.METIS_SetDefaultOptions(options)
    options[_SEED], options[_ON_DISK], options[_NUMBERING] = seed, 1, 0
    options[_CUTS] = max(1, min(_MOST_CUTS, _TRIED_ENTRIES // max(1, len(adjacency))))
    rows = np.ascontiguousarray(starts, np.int32)
    near, heavy = np.ascontiguousarray(adjacency, np.int32), np.ascontiguousarray(vertex_weights, np.int32)
    edges = None if edge_weights is None else np.ascontiguousarray(edge_weights, np.int32)
    bounds = (ctypes.c_float * constraints)(*[imbalance] * constraints)
    cut, found = ctypes.c_int32(0), np.zeros(vertices, np.int32)
    with contextlib.chdir(scratch):
        status = library.METIS_PartGraphRecursive(
            ctypes.byref(ctypes.c_int32(vertices)), ctypes.byref(ctypes.c_int32(constraints)), _pointer(rows),
            _pointer(near), _pointer(heavy), None, None if edges is None else _pointer(edges),
            ctypes.byref(ctypes.c_int32(parts)), None, bounds, options, ctypes.byref(cut), _pointer(found),
        )  # fmt: skip
    if status == _NO_MEMORY:
        raise UserError("METIS has not enough memory for this graph", where="partition.method", value="metis",
                        remedy="Give the stage more memory, or set partition.method=contiguous")  # fmt: skip
    if status != _OK:
        raise RuntimeError(f"METIS was stopped, or refused the graph: status {status}")
    if vertices and not 0 <= int(found.min()) <= int(found.max()) < parts:
        raise RuntimeError("METIS gave a part that there is not")
    return found, int(cut.value)


def _pointer(values: NDArray[np.int32]) -> Any:
    return values.ctypes.data_as(_INT32)
