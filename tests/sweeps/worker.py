"""A process that takes part in a study, with arithmetic in place of a pipeline: `worker.py URL NAME TRIALS SECONDS`.

Prints `claimed N` when it has begun trial N; holds a trial for SECONDS before it ends it.
"""

import sys
import time

from optuna.trial import TrialState

from superworkflow.sweeps.storage import StudyStorage
from superworkflow.sweeps.study import StudySpec, SweepStudy

SPACE = {
    "walk.p": {"type": "categorical", "choices": [0.25, 0.5, 1.0, 2.0, 4.0]},
    "embed.learning_rate": {"type": "float", "low": 0.01, "high": 0.2, "log": True},
}
OBJECTIVES: list[list[object]] = [["evaluate.macro_f1", True]]


def spec(sampler: str = "tpe", **more: object) -> StudySpec:
    """A study of two parameters."""
    return StudySpec("node2vec", {}, {}, SPACE, OBJECTIVES, sampler, "none", seed=3, **more)  # type: ignore[arg-type]


def value(params: dict[str, float]) -> float:
    """Objective of the trials."""
    return -((params["walk.p"] - 0.5) ** 2) - params["embed.learning_rate"]


def work(url: str, name: str, trials: int, seconds: float) -> None:
    """Run trials until the study has as many as wanted."""
    study = SweepStudy.create(StudyStorage(url), name, spec(), frozenset())
    while sum(trial.state.is_finished() for trial in study.trials()) < trials:
        study.reconcile()
        claim = study.claim(trials)
        if claim is None:
            time.sleep(0.05)
            continue
        sys.stdout.write(f"claimed {claim.number}\n")
        sys.stdout.flush()
        time.sleep(seconds)
        study.finish(claim, TrialState.COMPLETE, [value(claim.params)], {"paid_usd": 1.0}, {})


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
