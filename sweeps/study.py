"""A study: search space, objectives and trials, shared by any number of processes.

Trials change state under the study's lock:

- A trial is `RUNNING` with one owner, and only its owner finishes it.
- If its owner dies or releases it, a trial becomes `WAITING` again and keeps its number, its parameters and its cost.
  A study of N trials therefore has exactly N, whichever processes died.
- A new trial is made only while there are fewer than requested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.identity import ProcessIdentity
from superworkflow.infra.storage.digest import canonical_json, json_sha256
from superworkflow.sweeps.objective import SweepObjective
from superworkflow.sweeps.owner import Watch
from superworkflow.sweeps.sampling import STEPS, make_pruner, make_sampler, trial_seed
from superworkflow.sweeps.space import Dimension, Space
from superworkflow.sweeps.storage import StudyStorage

T = TypeVar("T")

MOST_ATTEMPTS = 3
"""Attempts after which a trial whose process died each time fails."""

SPEC, OWNER, BEAT, ATTEMPTS, LOST, OUTCOME, TARGET = (
    "spec", "owner", "beat", "attempts", "lost_usd", "outcome", "trials",
)  # fmt: skip
RUN = "tracking_run"


@dataclass(frozen=True)
class StudySpec:
    """Definition of a study; the same for every process that takes part.

    Args:
        superworkflow: name of the pipeline.
        sources: digest of each source by name, and of the user's file that defines the superworkflow as `code`.
        params: parameters by prefix, without those that are searched.
        space: see `Space.document`.
        objectives: (name, maximize) of each.
        sampler: one of `sweeps.names.SAMPLERS`.
        pruner: one of `sweeps.names.PRUNERS`.
        seed: of the sampler.
        shared: dotted names that the trials of a group share; none for trials that are not grouped.
        group: trials in a group.
        trial_budget_usd: constraint on what a trial's configuration costs.
        launch: how to start the sweep again: sources' URIs, profile, store, prices.
        steps: the most intermediate values that a trial reports; 0 in studies that did not record it.
        defaults: values of the first trial, unless a grid is searched, by dotted name; the sampler draws the others.
    """

    superworkflow: str
    sources: dict[str, str]
    params: dict[str, dict[str, Any]]
    space: dict[str, dict[str, Any]]
    objectives: list[list[Any]]
    sampler: str
    pruner: str
    seed: int
    shared: list[str] = field(default_factory=list)
    group: int = 1
    trial_budget_usd: float | None = None
    launch: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    defaults: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Identity of a search, however it is sampled or started."""
        keys = ("superworkflow", "sources", "params", "space", "objectives", "shared", "group", "trial_budget_usd")
        return {key: value for key, value in asdict(self).items() if key in keys}

    def name(self) -> str:
        """Name of the study when the user gives none: the same command finds it again."""
        return f"{self.superworkflow}-{json_sha256(self.identity())[:8]}"

    def parsed_objectives(self) -> list[SweepObjective]:
        return [SweepObjective(str(name), bool(maximize)) for name, maximize in self.objectives]


@dataclass(frozen=True)
class ClaimedTrial:
    """A trial that this process runs.

    Args:
        number: of the trial in its study.
        params: its parameters, by dotted name.
        trial: Optuna's own.
        lost_usd: what earlier attempts at it cost.
        attempt: 1 for the first.
    """

    number: int
    params: dict[str, Any]
    trial: Trial
    lost_usd: float
    attempt: int


class SweepStudy:
    """One study in one storage.

    Args:
        storage: where it is.
        name: its name.
        spec: its definition.
        watch: judges owners.
    """

    def __init__(self, storage: StudyStorage, name: str, spec: StudySpec, watch: Watch | None = None):
        self.storage, self.name, self.spec = storage, name, spec
        self.watch = watch or Watch(ProcessIdentity.here())
        self.owner = str(self.watch.own)
        self.objectives = spec.parsed_objectives()
        self.space = Space.from_document(spec.space)
        self._grid = self.space.grid() if spec.sampler == "grid" else None
        self._mine: set[int] = set()

    @classmethod
    def open(cls, storage: StudyStorage, name: str) -> SweepStudy:
        """A study that exists.

        Raises:
            UserError: no study has this name, or it was not made by a sweep of this project.
        """
        names = storage.patiently(lambda: optuna.get_all_study_names(storage.optuna))
        if name not in names:
            shown = ", ".join(names) or "none"
            raise UserError("no such study", where=str(storage), value=name, remedy=f"Studies there: {shown}")
        spec = storage.patiently(lambda: _attributes(storage, name).get(SPEC))
        if spec is None:
            raise UserError("not made by a sweep of this project", where=str(storage), value=name)
        return cls(storage, name, StudySpec(**spec))

    @classmethod
    def create(cls, storage: StudyStorage, name: str, spec: StudySpec, given: frozenset[str]) -> SweepStudy:
        """The study of this definition, made if it does not exist.

        Args:
            storage: where it is or will be.
            name: its name.
            spec: its definition.
            given: those of sampler, pruner and seed that the user gave; an existing study keeps its own of the others.

        Raises:
            UserError: a study of this name searches something else.
        """

        def make() -> StudySpec:
            with storage.lock(name):
                directions = [objective.direction for objective in spec.parsed_objectives()]
                study = optuna.create_study(
                    study_name=name, storage=storage.optuna, directions=directions, load_if_exists=True
                )
                found = study.user_attrs.get(SPEC)
                if found is None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                        study.set_metric_names([objective.name for objective in spec.parsed_objectives()])
                    study.set_user_attr(SPEC, asdict(spec))
                    return spec
                return StudySpec(**found)

        found = storage.patiently(make)
        _check_same(name, found, spec, given)
        return cls(storage, name, found)

    @property
    def optuna(self) -> Study:
        """Optuna's own study, to look at."""
        return self._study()

    def attributes(self) -> dict[str, Any]:
        """User attributes of the study."""
        return self.storage.patiently(lambda: _attributes(self.storage, self.name))

    def once(self, key: str, make: Callable[[], T]) -> T:
        """The study's attribute of this name, made by the first process that reads it."""

        def get() -> T:
            with self.storage.lock(self.name):
                study = self._study()
                found: T | None = study.user_attrs.get(key)
                if found is None:
                    found = make()
                    study.set_user_attr(key, found)
                return found

        return self.storage.patiently(get)

    def set_target(self, trials: int) -> int:
        """Raise the number of trials to this, which a grid bounds; returns the bounded number. It never falls."""
        wanted = min(trials, len(self._grid)) if self._grid is not None else trials

        def put() -> int:
            with self.storage.lock(self.name):
                study = self._study()
                if study.user_attrs.get(TARGET, 0) < wanted:
                    study.set_user_attr(TARGET, wanted)
            return wanted

        return self.storage.patiently(put)

    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        return self.storage.patiently(lambda: self._study().get_trials(deepcopy=False))

    def reconcile(self) -> list[int]:
        """Put the trials of dead owners back into the queue, each once; returns their numbers."""

        def work() -> list[int]:
            freed = []
            with self.storage.lock(self.name):
                for trial in self._study().get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                    if not self._is_held(trial):
                        self._free(trial)
                        freed.append(trial.number)
            return freed

        return self.storage.patiently(work)

    def claim(self, target: int) -> ClaimedTrial | None:
        """The next trial for this process: a waiting one, else a new one; None when none is left."""

        def work() -> ClaimedTrial | None:
            with self.storage.lock(self.name):
                trials = self._study().get_trials(deepcopy=False)
                number = next((trial.number for trial in trials if trial.state == TrialState.WAITING), len(trials))
                if number < len(trials):
                    self._set(number, OWNER, self.owner)
                elif number < target:
                    self._study().enqueue_trial(self._fixed(number, trials), user_attrs={OWNER: self.owner})
                else:
                    return None
                return self._begin(number)

        claimed = self.storage.patiently(work)
        if claimed is not None:
            self._mine.add(claimed.number)
        return claimed

    def beat(self, claim: ClaimedTrial, count: int, spent_usd: float) -> bool:
        """Record a trial's heartbeat and what this attempt has cost; False if another process owns the trial now."""

        def work() -> bool:
            if not self._runs(claim):
                return False
            self._set(claim.number, BEAT, [count, spent_usd])
            return True

        return self.storage.patiently(work)

    def should_prune(self, claim: ClaimedTrial, step: int, steps: int, value: float) -> bool:
        """Record the value (larger is better) after one of a trial's steps, and ask the pruner."""
        if len(self.objectives) > 1:
            return False
        signed = value if self.objectives[0].maximize else -value

        def work() -> bool:
            if claim.trial.user_attrs.get(STEPS) != steps:
                claim.trial.set_user_attr(STEPS, steps)
            if step not in self._trial(claim.number).intermediate_values:  # an earlier attempt reported it
                claim.trial.report(signed, step)
            return claim.trial.should_prune()

        return self.storage.patiently(work)

    def finish(
        self,
        claim: ClaimedTrial,
        state: TrialState,
        values: Sequence[float] | None,
        outcome: Mapping[str, Any],
        constraints: Mapping[str, float],
    ) -> bool:
        """End a trial; False if another process has taken it over, so that this attempt does not count."""

        def work() -> bool:
            with self.storage.lock(self.name):
                found = self._trial(claim.number)
                if found.state.is_finished():
                    return found.user_attrs.get(OWNER) == self.owner
                if not self._runs(claim):
                    return False
                self._set(claim.number, OUTCOME, dict(outcome))
                for name, value in constraints.items():
                    if name not in found.constraints:  # set already before an outage
                        claim.trial.set_constraint(name, value)
                claim.trial.study.tell(claim.trial, values, state)
                return True

        try:
            return self.storage.patiently(work)
        finally:
            self._mine.discard(claim.number)

    def release(self, claim: ClaimedTrial, spent_usd: float) -> None:
        """Release an unfinished trial, which the next free process continues."""

        def work() -> None:
            with self.storage.lock(self.name):
                if self._runs(claim):
                    self._set(claim.number, LOST, claim.lost_usd + spent_usd)
                    self._set(claim.number, BEAT, None)
                    self.storage.set_state(self.name, claim.number, TrialState.WAITING)

        self.storage.patiently(work)
        self._mine.discard(claim.number)

    def _study(self, sampler_seed: int = 0) -> Study:
        return optuna.load_study(
            study_name=self.name, storage=self.storage.optuna, sampler=make_sampler(self.spec.sampler, sampler_seed),
            pruner=make_pruner(self.spec.pruner, self.spec.steps),
        )  # fmt: skip

    def _trial(self, number: int) -> FrozenTrial:
        return self.storage.trial(self.name, number)

    def _runs(self, claim: ClaimedTrial) -> bool:
        """True if this process still owns the trial that it claimed."""
        found = self._trial(claim.number)
        return found.state == TrialState.RUNNING and found.user_attrs.get(OWNER) == self.owner

    def _set(self, number: int, key: str, value: Any) -> None:
        self.storage.set_attribute(self.name, number, key, value)

    def _is_held(self, trial: FrozenTrial) -> bool:
        owner = trial.user_attrs.get(OWNER, "")
        if owner == self.owner:
            return trial.number in self._mine  # else the database went away while this process claimed it
        return self.watch.alive(trial.number, owner, trial.user_attrs.get(BEAT))

    def _free(self, trial: FrozenTrial) -> None:
        attempts, lost = trial.user_attrs.get(ATTEMPTS, 0) + 1, spent_usd(trial)
        self._set(trial.number, ATTEMPTS, attempts)
        self._set(trial.number, LOST, lost)
        self._set(trial.number, BEAT, None)
        if attempts < MOST_ATTEMPTS:
            self.storage.set_state(self.name, trial.number, TrialState.WAITING)
            return
        reason = f"its sweep process died {attempts} times"
        self._set(trial.number, OUTCOME, {"reason": reason, "paid_usd": lost})
        self.storage.set_state(self.name, trial.number, TrialState.FAIL)

    def _fixed(self, number: int, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        """Parameters fixed before sampling: a grid's point, defaults, or those that a group shares."""
        if self._grid is not None:
            return self._grid[number]
        leader = number - number % self.spec.group
        if leader == number:
            return {} if number else self.spec.defaults
        return {name: trials[leader].params[name] for name in self.spec.shared if name in trials[leader].params}

    def _begin(self, number: int) -> ClaimedTrial:
        """Begin the trial of this number, the first waiting one."""
        searched = {dimension.name: distribution(dimension) for dimension in self.space.dimensions}
        trial = self._study(trial_seed(self.spec.seed, number)).ask(searched)
        attributes = trial.user_attrs
        return ClaimedTrial(number, trial.params, trial, attributes.get(LOST, 0.0), attributes.get(ATTEMPTS, 0) + 1)


def spent_usd(trial: FrozenTrial) -> float:
    """Cost of all attempts at a trial that has not ended, as far as its heartbeats say."""
    beat = trial.user_attrs.get(BEAT)
    return float(trial.user_attrs.get(LOST, 0.0) + (beat[1] if beat else 0.0))


def _attributes(storage: StudyStorage, name: str) -> dict[str, Any]:
    database = storage.optuna
    return database.get_study_user_attrs(database.get_study_id_from_name(name))


def distribution(dimension: Dimension) -> BaseDistribution:
    """The dimension in Optuna's terms."""
    if dimension.kind == "categorical":
        return CategoricalDistribution(dimension.choices)
    low, high, step = dimension.low, dimension.high, dimension.step
    assert low is not None
    assert high is not None
    if dimension.kind == "int":
        return IntDistribution(int(low), int(high), log=dimension.log, step=int(step or 1))
    return FloatDistribution(low, high, log=dimension.log, step=step)


def _check_same(name: str, found: StudySpec, spec: StudySpec, given: frozenset[str]) -> None:
    remedy = "Give the settings that it was started with, or another name with --study"
    old, new = found.identity(), spec.identity()
    for key in old:
        if canonical_json(old[key]) != canonical_json(new[key]):
            raise UserError(
                f"this study exists and searches something else: {_difference(key, old[key], new[key])}",
                where=f"study {name}", remedy=remedy,
            )  # fmt: skip
    for key in given & {"sampler", "pruner", "seed"}:
        if getattr(found, key) != getattr(spec, key):
            raise UserError(
                f"this study exists with {key} {getattr(found, key)}", where=f"study {name}",
                value=getattr(spec, key), remedy=remedy,
            )  # fmt: skip


def _difference(key: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *new]:
            if old.get(name) != new.get(name):
                return _difference(f"{key}.{name}", old.get(name), new.get(name))
    return f"{key} is {old}, not {new}"
