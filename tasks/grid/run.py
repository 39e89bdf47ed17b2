"""The work of stage `grid`."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.manifest import Stat
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.grid import GridParams
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats

MOST_LABELS = 256
PNG = b"\x89PNG\r\n\x1a\n"
"""First bytes of a PNG."""
GREY = ("1", "L", "I", "I;16", "I;16B")
"""Modes of Pillow without colours."""


def run(job: StageRun[GridParams]) -> Output:
    """Make the grid graph; see `tasks.grid`."""
    source = job.sources["lattice"]
    path = source.local(job.scratch)
    with path.open("rb") as file:
        is_png = file.read(len(PNG)) == PNG
    doubts: list[InputWarning] = []
    if is_png:
        values, mode = read_picture(path, source.uri)
        if mode not in GREY:
            doubts.append(InputWarning("the picture has colours or transparency; its greys alone are used", source.uri,
                                       mode, "Write a PNG of greys, such as one channel"))  # fmt: skip
        values = cut(values, job.params.levels)
    else:
        values = read_lattice(path, source.uri)
        if values.ndim == 3 and values.shape[2] in (3, 4) and values.dtype == np.uint8 and min(values.shape[:2]) > 4:
            doubts.append(InputWarning(
                f"the array looks like an image of {values.shape[2]} channels, and is read as a volume", source.uri,
                " x ".join(map(str, values.shape)), "Write its greys or labels, of 2 dimensions, if it is one",
            ))  # fmt: skip
    log_warnings(job.progress, doubts)
    levels, observed = np.unique(values, return_inverse=True)
    if not 2 <= len(levels) <= MOST_LABELS:
        remedy = "Round its values to few levels" if len(levels) > 1 else "Give one whose values differ"
        raise UserError(f"a lattice has 2 to {MOST_LABELS} distinct values", where=source.uri, value=len(levels),
                        remedy=remedy)  # fmt: skip
    indptr, indices = grid_rows(values.shape)
    arrays: dict[str, NDArray[Any]] = {
        "indptr": indptr,
        "indices": indices,
        "observed": observed.reshape(-1).astype(np.int32),
        "levels": levels,
    }
    for name, array in arrays.items():
        job.output.array(f"{name}.npy", array)
    shape = ",".join(map(str, values.shape))
    job.progress.log(f"{' x '.join(map(str, values.shape))} vertices with {len(levels)} labels")
    return Output(
        rows=values.size,
        stats={
            "vertices": values.size, "edges": len(indices) // 2, "labels": len(levels), "shape": shape,
            "directed": False, "weighted": False, "picture": is_png,
            **warning_stats(doubts),
        },
    )  # fmt: skip


def read_lattice(path: Path, where: str) -> NDArray[Any]:
    """The array of a file.

    Raises:
        UserError: it is no `.npy`, or no lattice of integers.
    """
    try:
        with path.open("rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK")):
                raise ValueError("another format")  # of which NumPy says that it could be a pickle, to be trusted
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError("no array in NumPy's format, and no PNG", where=where, value=str(error)[:100],
                        remedy="Write it with numpy.save, or as PNG") from None  # fmt: skip
    if not isinstance(values, np.ndarray) or values.ndim not in (2, 3) or values.dtype.kind not in "biu":
        given = f"{values.dtype}{list(values.shape)}" if isinstance(values, np.ndarray) else "several arrays"
        is_real = isinstance(values, np.ndarray) and values.ndim in (2, 3) and values.dtype.kind == "f"
        remedy = "Round it, such as np.rint(8 * array).astype(int) of values from 0 to 1" if is_real else (
            "Give one, with a number for each label")  # fmt: skip
        raise UserError("a lattice is an array of 2 or 3 dimensions, of integers", where=where, value=given,
                        remedy=remedy)  # fmt: skip
    return _sized(values, where)


def _sized(values: NDArray[Any], where: str) -> NDArray[Any]:
    if not 2 <= values.size < 1 << 31:
        raise UserError("a lattice has 2 to 2³¹ - 1 vertices", where=where, value=values.size,
                        remedy="Give another, or a part of it")  # fmt: skip
    return values


def read_picture(path: Path, where: str) -> tuple[NDArray[np.uint8], str]:
    """Greys of a PNG, [height, width], and its mode as Pillow names it; of 16 bits the highest eight that are in use.

    Raises:
        UserError: it is damaged, or larger than Pillow opens.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.mode.startswith("I"):  # 16 bits
                deep = np.asarray(image).astype(np.int64)
                greys = (deep >> max(0, int(deep.max()).bit_length() - 8)).astype(np.uint8)
            else:
                greys = np.asarray(image.convert("L"))
            return _sized(greys, where), image.mode
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError("the picture cannot be read", where=where, value=str(error)[:100],
                        remedy="Write it again as PNG, or in parts") from None  # fmt: skip


def cut(greys: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    """Greys cut into equally wide levels, each of which becomes its mean; greys that are as few stay."""
    counts = np.bincount(greys.reshape(-1), minlength=256)
    if (counts > 0).sum() <= levels:
        return greys
    level = np.arange(256) * levels // 256
    sums, sizes = np.bincount(level, counts * np.arange(256)), np.bincount(level, counts)
    means: NDArray[np.uint8] = np.rint(sums / np.maximum(sizes, 1)).astype(np.uint8)
    return means[level][greys]


def grid_rows(shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows of a grid: indptr int64 [vertices + 1], and indices int32 [arcs], ascending in each row."""
    size = math.prod(shape)
    vertices = np.arange(size, dtype=np.int32)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    there = np.empty((size, 2 * len(shape)), bool)
    offsets = np.array([-stride for stride in strides] + strides[::-1], np.int32)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        along = vertices // stride % length
        there[:, axis] = along > 0
        there[:, -1 - axis] = along < length - 1
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1, dtype=np.int64))])
    return indptr, (vertices[:, None] + offsets)[there]


def size_of(source: Source, look_bytes: int) -> dict[str, Stat]:
    """Vertices by the head of the file, for estimates; nothing of another file."""
    try:
        with source.location.open() as file:
            if (head := file.read(24)).startswith(PNG):
                width, height = struct.unpack(">II", head[16:24])
                return {"vertices": width * height}
            file.seek(0)
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return {"vertices": math.prod(read(file)[0])}
    except (ValueError, OSError, struct.error):
        return {}
