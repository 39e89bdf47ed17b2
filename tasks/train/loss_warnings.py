"""Warnings about the course of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.config import EDGE_REGRESSION, LINKS, REGRESSION, Head

EARLY_STEPS = 20
"""Steps after which a loss is below that of guessing if training works."""


def guessing_loss(head: Head) -> float:
    """Loss of a network that takes all classes, or a link and none, for equally likely; of numbers, of their mean."""
    if head.task in (REGRESSION, EDGE_REGRESSION):
        return 1.0
    return math.log(2) if head.task == LINKS or head.several else math.log(len(head.classes))


def loss_warnings(
    head: Head, rows: Sequence[Mapping[str, float]], steps: int, stage: str = "train"
) -> list[InputWarning]:  # fmt: skip
    """A warning if the loss is above that of guessing, in the first epoch that ends after 20 steps, or in the last.

    Args:
        head: the network's.
        rows: epochs so far, with `epoch` and `loss`.
        steps: of an epoch.
        stage: stage whose parameter the warning names.
    """
    early = -(-EARLY_STEPS // steps)
    guess = guessing_loss(head)
    for row in (rows[early - 1], rows[-1]) if len(rows) >= early else ():
        if row["loss"] > guess:
            value = f"{row['loss']:.4g} in epoch {row['epoch']:.0f}, guessing {guess:.4g}"
            settle = f"Set {stage}.learning_rate lower, and look at the features' scale"
            return [InputWarning("the loss of training is above that of guessing", "loss", value, settle)]
    return []
