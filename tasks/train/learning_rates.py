"""Course of the learning rate: a function of the step, so that resumed training has the same."""

from __future__ import annotations

import math

from superworkflow.tasks.train.params import ConcreteTrainParams


def rate_of(params: ConcreteTrainParams, step: int, steps: int) -> float:
    """Learning rate of a step, from 0.

    In the warm-up it rises by equal amounts and has its full value in the last step of it. Then it is that of
    torch.optim.lr_scheduler: with `linear` of `PolynomialLR`, with `cosine` of `CosineAnnealingLR`.

    Args:
        params: the stage's parameters.
        step: number of steps done.
        steps: number of steps of all epochs.
    """
    if step < params.warmup_steps:
        return params.learning_rate * (step + 1) / params.warmup_steps
    if params.learning_rate_schedule == "constant":
        return params.learning_rate
    share = min(1.0, (step - params.warmup_steps) / max(1, steps - params.warmup_steps))
    left = 1 - share if params.learning_rate_schedule == "linear" else (1 + math.cos(math.pi * share)) / 2
    return params.learning_rate * left
