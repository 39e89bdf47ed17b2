"""Sampler that proposes trials, and pruner that stops them early."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from superworkflow.infra.base.errors import UserError

FEW_TRIALS = 10
"""Trials that TPE draws at random before it models the objective."""
MANY_TRIALS = 200
"""NSGA-II needs several generations of its population to be better than TPE."""
POPULATION = 40


@dataclass(frozen=True)
class Choice:
    """A choice, and the reason shown for it."""

    name: str
    reason: str


def choose_sampler(requested: str | None, trials: int, objectives: int) -> Choice:
    """The requested sampler, or one that suits the number of trials and objectives."""
    if requested is not None:
        return Choice(requested, "as requested")
    if trials <= FEW_TRIALS:
        return Choice("random", f"{trials} trials are too few to learn from")
    if objectives > 1 and trials >= MANY_TRIALS:
        return Choice("nsga2", f"{objectives} objectives and {trials} trials")
    return Choice("tpe", f"{trials} trials, {objectives} {'objective' if objectives == 1 else 'objectives'}")


def choose_pruner(requested: str | None, objectives: int, steps: int) -> Choice:
    """The requested pruner; by default `median`, or `none` where no trial can be stopped early.

    Args:
        requested: one of `sweeps.names.PRUNERS`.
        objectives: number of objectives.
        steps: the most intermediate values that a trial reports.

    Raises:
        UserError: a pruner with several objectives, or for trials that report no intermediate value before their last.
    """
    if objectives > 1:
        if requested not in (None, "none"):
            raise UserError(
                "a trial cannot be stopped early when several objectives judge it", where="--pruner", value=requested,
                remedy="Leave it out, or give one objective",
            )  # fmt: skip
        return Choice("none", "several objectives")
    if steps < 2:
        if requested not in (None, "none"):
            raise UserError(
                "a trial cannot be stopped early: no stage of this objective reports more than one intermediate value",
                where="--pruner", value=requested, remedy="Leave it out, or let that stage take more steps",
            )  # fmt: skip
        return Choice("none", "no stage of the objective reports several steps")
    if requested is not None:
        return Choice(requested, "as requested")
    return Choice("median", f"one objective, {steps} steps")


def trial_seed(seed: int, number: int) -> int:
    """Seed for sampling one trial, from the sweep's seed and the trial's number only."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "little")


def make_sampler(name: str, seed: int) -> BaseSampler:
    """A sampler for one trial; samplers keep no state between trials outside the study."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "tpe":
            return TPESampler(seed=seed, n_startup_trials=FEW_TRIALS, constant_liar=True)
        if name == "gp":
            return GPSampler(seed=seed, n_startup_trials=FEW_TRIALS)
        if name == "nsga2":
            return NSGAIISampler(seed=seed, population_size=POPULATION)
    return RandomSampler(seed=seed)  # also for `grid`: its points are in the queue already


def make_pruner(name: str, steps: int) -> BasePruner:
    """A pruner.

    Args:
        name: one of `sweeps.names.PRUNERS`.
        steps: the most intermediate values that a trial reports; 0 to take it from the first complete trial.
    """
    if name == "median":
        return MedianPruner(n_startup_trials=5, n_warmup_steps=0)
    if name == "hyperband":
        return HyperbandPruner(min_resource=1, max_resource=steps or "auto", reduction_factor=3)
    return NopPruner()
