"""Model selection: the epoch whose weights are kept, and progress in terms of early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LOSS, FIGURE, BOTH = "loss", "figure", "both"
LEAST_GAIN = 1e-5
"""Least fall of the validation loss that counts as progress; losses are per item, of numbers that are standardised."""


class EpochVerdict(NamedTuple):
    """Verdict on an epoch.

    Args:
        is_kept: its weights replace those kept so far.
        is_better: resets early stopping.
    """

    is_kept: bool
    is_better: bool


class ModelSelection:
    """Compares each epoch with all before it on the validation items.

    By `loss` an epoch with a lower loss is kept; by `figure` one with a higher figure, or an equal figure and a lower
    loss. By `both` an epoch is kept if neither its loss nor its figure is worse than any before, and counts as better
    if either is not: the rule of Veličković et al. (ICLR 2018).

    By `loss` an epoch resets early stopping if its loss is lower by `LEAST_GAIN` than that of the last one that did;
    by the others none does any more from a loss below `LEAST_GAIN` on, as no later loss can be lower by as much.

    Args:
        by: `loss`, `figure` or `both`.
        figure: name of the figure in an epoch's row; larger is better.
        rows: epochs that were compared before.
    """

    def __init__(self, by: str, figure: str, rows: Iterable[Mapping[str, float]] = ()):
        self._by, self._figure = by, figure
        self._lowest, self._highest, self._kept = math.inf, -math.inf, (-math.inf, -math.inf)
        self._reached = math.inf
        for row in rows:
            if "validation_loss" in row:
                self.compare(row)

    def compare(self, row: Mapping[str, float]) -> EpochVerdict:
        """Compare the next epoch with the best one.

        Args:
            row: the epoch's `validation_loss`, finite, and its figure.
        """
        loss, figure = row["validation_loss"], row[self._figure]
        if self._by == BOTH:
            is_low, is_high = loss <= self._lowest, figure >= self._highest
            is_kept, is_better = is_low and is_high, is_low or is_high
        else:
            worth = (figure, -loss) if self._by == FIGURE else (-loss, 0.0)
            is_kept = is_better = worth > self._kept
            self._kept = max(self._kept, worth)
        if self._by == LOSS:
            is_better = loss < self._reached - LEAST_GAIN
            self._reached = loss if is_better else self._reached
        self._lowest, self._highest = min(self._lowest, loss), max(self._highest, figure)
        return EpochVerdict(is_kept, is_better and self._lowest >= LEAST_GAIN)
