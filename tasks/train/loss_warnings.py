"""Warnings about the course of the loss, and about links that training made worse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.model.config import EDGE_REGRESSION, LINKS, REGRESSION, Head
from superworkflow.tasks.lib.gnn.objective.base import Objective
from superworkflow.tasks.train.checkpoint import TrainingPosition

EARLY_STEPS = 20
"""Steps after which a loss is below that of guessing if training works."""
MARGIN, EPOCHS, FALL = 0.2, 2, 0.05
"""A validation loss this far above that of guessing, in at least this many last epochs, counts as diverging where the
AUC is this far below that of the best epoch too: as scores grow the loss alone rises in most trainings."""


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


def divergence(task: Objective, position: TrainingPosition, items: int, rate: float | None) -> list[InputWarning]:
    """Warning of training that diverged and kept an earlier epoch; none if it did not.

    Args:
        task: what was learned.
        position: where training ended, with an epoch that was kept.
        items: number of validation items.
        rate: learning rate.

    Raises:
        UserError: the training loss is above that of guessing too, and the AUC of every epoch is within two standard
            errors of guessing (those of the Mann-Whitney statistic of as many pairs of each kind).
    """
    if task.head.task != LINKS:
        return []
    guess = guessing_loss(task.head)
    losses = [row["validation_loss"] for row in position.epochs]
    limit = guess + MARGIN
    is_rising = losses[-1] > min(losses[0] + MARGIN, 2 * guess)  # the first epoch may have diverged already
    if min(losses[-EPOCHS:]) <= limit or not is_rising:
        return []
    course = f"{losses[0]:.2f} in the first epoch, {losses[-1]:.2f} in the last, {guess:.2f} by guessing"
    figures = [row[f"validation_{task.figure}"] for row in position.epochs]
    best = max(figures)
    is_lost = position.epochs[-1]["loss"] > guess  # of what is trained on: it did not just overfit
    if is_lost and best <= 0.5 + 2 * ((2 * items + 1) / (12 * items**2)) ** 0.5:
        raise UserError(
            f"training diverged (validation loss {course}), and no epoch is better than guessing",
            where="train.learning_rate", value=rate, remedy="Lower train.learning_rate",
        )  # fmt: skip
    if figures[-1] >= best - FALL:
        return []
    kept = f"epoch {position.best} is" if position.best else "the first weights are"
    fall = f"the validation {task.figure.upper()} fell from {best:.3f} to {figures[-1]:.3f}"
    what = f"the validation loss rose above that of guessing ({course}), and {fall}; {kept} kept"
    return [InputWarning(what, "train.learning_rate", str(rate), "If predictions are poor, lower train.learning_rate")]


def untrained(position: TrainingPosition, figure: str) -> list[InputWarning]:
    """Warning that no epoch is better than the first weights, which are kept; none if one is.

    Args:
        position: where training ended.
        figure: name of the figure that is compared, in the rows of epochs.
    """
    if position.best or not position.first:
        return []
    best = max(row[figure] for row in position.epochs)
    return [InputWarning(
        "training did not help: the first weights rank links best and are kept", figure,
        f"{position.first[figure]:.4f} with first weights, {best:.4f} after an epoch at most",
        "Compare train.model=sage and gcn, or lower train.learning_rate",
    )]  # fmt: skip
