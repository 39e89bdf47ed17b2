"""Model selection: the epoch whose weights are kept, and progress in terms of early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LOSS, FIGURE, BOTH = "loss", "figure", "both"


class EpochVerdict(NamedTuple):
    """Verdict on an epoch.

    Args:
        is_kept: its weights replace those that were kept so far.
        is_better: those who wait for a better epoch have seen one.
    """

    is_kept: bool
    is_better: bool


class ModelSelection:
    """Compares each epoch with all before it, by what it makes of the items to validate on.

    By `loss` an epoch is kept that has a lower one; by `figure` one that has a higher one, or the same and a lower
    loss. By `both` it is one whose loss and figure are no worse than any before, and an epoch of which that is true of
    either goes on as progress: the rule by which the networks of Veličković et al. (ICLR 2018) were chosen.

    Args:
        by: one of these.
        figure: name of the figure in an epoch's row; more is better.
        rows: epochs that were compared before.
    """

    def __init__(self, by: str, figure: str, rows: Iterable[Mapping[str, float]] = ()):
        self._by, self._figure = by, figure
        self._lowest, self._highest, self._kept = math.inf, -math.inf, (-math.inf, -math.inf)
        for row in rows:
            if "validation_loss" in row:
                self.compare(row)

    def compare(self, row: Mapping[str, float]) -> EpochVerdict:
        """Compare the next epoch with the best one.

        Args:
            row: its `validation_loss`, which is finite, and its figure.
        """
        loss, figure = row["validation_loss"], row[self._figure]
        if self._by == BOTH:
            is_low, is_high = loss <= self._lowest, figure >= self._highest
            found = EpochVerdict(is_low and is_high, is_low or is_high)
        else:
            worth = (figure, -loss) if self._by == FIGURE else (-loss, 0.0)
            found = EpochVerdict(worth > self._kept, worth > self._kept)
            self._kept = max(self._kept, worth)
        self._lowest, self._highest = min(self._lowest, loss), max(self._highest, figure)
        return found
