"""The file of a matrix of features: filled, then scaled in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.tasks.heterograph.feature_columns import NodeColumn, fill_missing
from superworkflow.tasks.heterograph.scaling import Scaling, fit
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.column_scaling import NONE, width_of
from superworkflow.tasks.lib.graph.dtypes import DTYPES
from superworkflow.tasks.lib.kernels.huge_pages import rows_of_pieces

_MOST_HALF = 65504.0


def write_scaled(
    output: FileWriter,
    name: str,
    shape: tuple[int, int],
    half: bool,
    fill: Callable[[NDArray[np.float32]], Scaling],
    scratch: Path,
    where: str,
    may_widen: bool,
) -> tuple[Scaling, NDArray[np.floating]]:
    """Write a matrix of features, and return its scaling and what was written.

    Args:
        output: where to.
        name: of the file.
        shape: nodes, and numbers of each.
        half: write float16; what is halved or widened is scaled from a file in `scratch`.
        fill: fills the matrix with finite numbers and returns their scaling.
        scratch: folder for temporary files.
        where: where the features are from, for people.
        may_widen: a scaling may make more values of these numbers.

    Raises:
        UserError: a scaled value is beyond float16.
    """
    with output.file(name) as path:
        apart = half or may_widen
        whole = scratch / "features.npy" if apart else path
        filled = np.lib.format.open_memmap(whole, "w+", np.dtype("<f4"), shape)
        scaling, written = fill(filled), filled
        if apart:
            kind, width = np.dtype(DTYPES["half" if half else "float"]), width_of(scaling._asdict(), shape[1])
            written = np.lib.format.open_memmap(path, "w+", kind, (shape[0], width))
        for rows in rows_of_pieces(written):
            if apart or scaling.kind != NONE:
                values = scaling.apply(filled[rows])
                if half:
                    _check_range(values, where)
                written[rows] = values
        written.flush()
        if apart:
            whole.unlink()
    return scaling, written


def fill_and_fit(
    filled: NDArray[np.float32], absent: NDArray[np.int64], columns: Sequence[NodeColumn], where: str,
    learned: Scaling | None, wanted: str,
) -> tuple[Scaling, list[InputWarning]]:  # fmt: skip
    """Replace missing values of a matrix (see `fill_missing`); its scaling, and warnings.

    Args:
        filled, absent, columns, where: as of `fill_missing`.
        learned: scaling of a network, which serves instead of a new one; None without one.
        wanted: kind of the new one, as of `fit`.
    """
    warnings, stands_in = fill_missing(filled, absent, columns, where, learned.fill if learned else None)
    if learned is not None:
        return learned, warnings
    found = fit(filled, wanted, [each.width for each in columns])
    return found if stands_in is None else found._replace(fill=stands_in), warnings


def _check_range(values: NDArray[np.float32], where: str) -> None:
    large = np.abs(values) > _MOST_HALF
    if large.any():
        row, column = (int(each[0]) for each in np.nonzero(large))
        raise UserError(
            f"a feature is beyond float16's {_MOST_HALF:g}", where=where, value=float(values[row, column]),
            remedy="Set heterograph.precision=float32, or heterograph.scaling=standard",
        )  # fmt: skip
