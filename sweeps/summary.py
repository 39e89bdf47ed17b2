"""Summary of a study: its trials as plain rows, their cost, and the savings of reuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from superworkflow.sweeps.objective import SweepObjective
from superworkflow.sweeps.study import OUTCOME, RUN, TARGET, SweepStudy, spent_usd

STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "running", TrialState.WAITING: "waiting",
}  # fmt: skip


@dataclass(frozen=True)
class TrialRow:
    """One trial, as shown in tables and figures.

    Args:
        paid_usd: its cost, attempts that died included.
        reused_usd: cost of the datasets that it took from the store.
        feasible: within the constraints.
    """

    number: int
    state: str
    params: dict[str, Any]
    values: tuple[float, ...] | None
    paid_usd: float
    reused_usd: float
    paid_s: float
    reused_s: float
    reason: str
    feasible: bool
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    run_id: str = ""


def trial_row(trial: FrozenTrial) -> TrialRow:
    """Optuna's trial as a row."""
    outcome = trial.user_attrs.get(OUTCOME, {})
    return TrialRow(
        number=trial.number, state=STATES[trial.state], params=dict(trial.params),
        values=tuple(trial.values) if trial.state == TrialState.COMPLETE and trial.values else None,
        paid_usd=outcome.get("paid_usd", spent_usd(trial)), reused_usd=outcome.get("reused_usd", 0.0),
        paid_s=outcome.get("paid_s", 0.0), reused_s=outcome.get("reused_s", 0.0), reason=outcome.get("reason", ""),
        feasible=all(value <= 0 for value in trial.constraints.values()), stages=outcome.get("stages", {}),
        metrics=outcome.get("metrics", {}), run_id=outcome.get("run_id", ""),
    )  # fmt: skip


def best_rows(rows: Sequence[TrialRow], objectives: Sequence[SweepObjective]) -> list[TrialRow]:
    """The best feasible trial, or the Pareto front ordered by the first objective; of equal ones the earlier."""
    done = [row for row in rows if row.values is not None and row.feasible]

    def gain(row: TrialRow) -> tuple[float, ...]:
        assert row.values is not None
        return tuple(v if o.maximize else -v for v, o in zip(row.values, objectives, strict=True))

    if len(objectives) == 1:
        return [max(done, key=lambda row: (gain(row), -row.number))] if done else []
    front = [
        row
        for row in done
        if not any(
            all(a >= b for a, b in zip(gain(other), gain(row), strict=True))
            and (gain(other) != gain(row) or other.number < row.number)
            for other in done
            if other is not row
        )
    ]
    return sorted(front, key=gain, reverse=True)


@dataclass(frozen=True)
class SweepReport:
    """Summary of a study.

    Args:
        study: its name.
        target: trials that were asked for.
        objectives: name and direction of each.
        counts: trials by state.
        paid_usd: what all trials cost.
        without_reuse_usd: what they would have cost if each had computed all it used.
        best: the best trial, or the Pareto front.
        computed: datasets made by stage.
        reused: datasets taken from the store, by stage.
        note: why it stopped before its target.
    """

    study: str
    storage: str
    target: int
    objectives: list[dict[str, str]]
    sampler: str
    pruner: str
    counts: dict[str, int]
    paid_usd: float
    without_reuse_usd: float
    paid_s: float
    without_reuse_s: float
    best: list[TrialRow]
    computed: dict[str, int]
    reused: dict[str, int]
    trials: list[TrialRow]
    run_id: str = ""
    note: str = ""
    model: str = ""

    @property
    def saved_usd(self) -> float:
        return self.without_reuse_usd - self.paid_usd

    @property
    def finished(self) -> int:
        """Trials that have ended."""
        return sum(self.counts.get(state, 0) for state in ("complete", "pruned", "failed"))

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "saved_usd": self.saved_usd, "finished": self.finished}


def report(study: SweepStudy, note: str = "", model: str = "") -> SweepReport:
    """The report of a study as it is now."""
    rows = [trial_row(trial) for trial in study.trials()]
    attributes = study.attributes()
    stages = [(name, stage["state"]) for row in rows for name, stage in row.stages.items()]
    paid, paid_s = sum(row.paid_usd for row in rows), sum(row.paid_s for row in rows)
    return SweepReport(
        study=study.name, storage=str(study.storage), target=attributes.get(TARGET, len(rows)),
        objectives=[{"name": each.name, "direction": each.direction} for each in study.objectives],
        sampler=study.spec.sampler, pruner=study.spec.pruner,
        counts=dict(Counter(row.state for row in rows)), paid_usd=paid,
        without_reuse_usd=paid + sum(row.reused_usd for row in rows),
        paid_s=paid_s, without_reuse_s=paid_s + sum(row.reused_s for row in rows),
        best=best_rows(rows, study.objectives),
        computed=dict(Counter(name for name, state in stages if state == "ran")),
        reused=dict(Counter(name for name, state in stages if state == "cached")),
        trials=rows, run_id=attributes.get(RUN, ""), note=note, model=model,
    )  # fmt: skip
