"""Splits of labelled edges into training, validation and test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.edge_times import EdgeTimes
from superworkflow.tasks.lib.gnn.objective.labels import divided
from superworkflow.tasks.lib.gnn.objective.splits import BY_NAME, SPLITS
from superworkflow.tasks.lib.gnn.sampler.links import packed_pairs
from superworkflow.tasks.lib.graph.missing_labels import is_blank

NONE = -1


def drawn_splits(
    pairs: NDArray[np.int64], classes: NDArray[np.int64], directed: bool, shares: tuple[float, float], seed: int
) -> NDArray[np.int8]:
    """Random splits of each class, all edges between two nodes in one.

    Args:
        pairs: int64 [n, 2].
        classes: class of each edge; zeros of numbers.
        directed: edges from one node to another are apart from those back.
        shares: to train and to validate on.
        seed: of the hash.
    """
    _, firsts, group = np.unique(packed_pairs(pairs, not directed), return_index=True, return_inverse=True)
    of_groups = divided(classes[firsts], int(classes.max(initial=0)) + 1, shares, seed)
    found: NDArray[np.int8] = of_groups[group.reshape(-1)]
    return found


def named_splits(texts: pa.LargeStringArray, shares: tuple[float, float], where: str) -> NDArray[np.int8]:
    """Splits by names such as `train`, or by times or numbers, of which the latest are tested; -1 without a name.

    Raises:
        UserError: texts are neither, or all times are one.
    """
    coded = texts.dictionary_encode()
    names = [text.strip().lower() for text in coded.dictionary.to_pylist()]
    if names and all(name in BY_NAME or is_blank(name) for name in names):
        numbers = [SPLITS.index(BY_NAME[name]) if name in BY_NAME else NONE for name in names]
        found: NDArray[np.int8] = np.array(numbers, np.int8)[coded.indices.to_numpy()]
        return found
    return _by_time(_numbers(texts, where), shares, where)


def _by_time(times: NDArray[Any], shares: tuple[float, float], where: str) -> NDArray[np.int8]:
    """Splits of edges in the order of their times; those of one time are in one split."""
    ordered = np.sort(times)
    cuts = [min(len(times) - 1, round(share * len(times))) for share in (shares[0], sum(shares))]
    first, second = (ordered[cut] for cut in cuts)
    if first == ordered[0]:
        raise UserError("edges cannot be split by times that are the same", where=where, value=str(first),
                        remedy="Set train.split_by to random, or name another column")  # fmt: skip
    found: NDArray[np.int8] = (times >= first).astype(np.int8) + (times >= second).astype(np.int8)
    return found


def _numbers(texts: pa.LargeStringArray, where: str) -> NDArray[Any]:
    try:
        numbers: NDArray[Any] = pc.cast(pc.ascii_trim_whitespace(texts), pa.float64()).to_numpy()
        if np.isfinite(numbers).all():
            return numbers
    except pa.ArrowInvalid:
        pass
    dates = EdgeTimes(0, 1, dates=True).numbers(texts)
    if dates is not None:
        return dates
    shown = ", ".join(map(repr, pc.unique(texts)[:3].to_pylist()))
    raise UserError(
        "the column has neither splits nor times", where=where, value=shown,
        remedy="Give train, validation and test, or a number or a date in each row",
    )  # fmt: skip
