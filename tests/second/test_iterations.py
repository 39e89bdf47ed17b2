"""Steps that stages declare: pruners plan with their number, whatever the parameter is called that sets it."""

from pathlib import Path

import pytest
from optuna.trial import TrialState

from superworkflow.infra.config.request import build_request
from superworkflow.sweeps.setup import SweepSetup, Wishes, set_up
from superworkflow.sweeps.storage import StudyStorage
from superworkflow.sweeps.study import StudySpec, SweepStudy
from tests.second.conftest import Second
from tests.second.flows.second import SUPERWORKFLOW


def _set_up(graph: Path, *assignments: str, space: str = "", **wishes: object) -> SweepSetup:
    request = build_request(SUPERWORKFLOW, sources={"graph": str(graph)}, assignments=assignments)
    fixed = frozenset(text.partition("=")[0] for text in assignments)
    file = graph.parent / "space.yaml"
    file.write_text(space)
    return set_up(request, Wishes(fixed=fixed, space=str(file) if space else None, **wishes))  # type: ignore[arg-type]


def test_number_of_steps(graph: Path) -> None:
    assert _set_up(graph, "fit.rounds=27").spec.steps == 27, "the first fit is the nearest to the headline"
    assert _set_up(graph, "curved.rounds=9", objectives=["curved.rmse"]).spec.steps == 9
    searched = _set_up(graph, objectives=["curved.rmse"], space="curved: {rounds: {low: 2, high: 40}, degree: [1, 2]}")
    assert searched.spec.steps == 40
    assert (
        _set_up(graph, objectives=["curved.rmse"], space="curved: {rounds: [9, 3, 27], degree: [1]}").spec.steps == 27
    )
    assert _set_up(graph, "fit.rounds=27", objectives=["cost"]).spec.steps == 0, "no step predicts the cost of a trial"


def test_pruner_by_default(graph: Path) -> None:
    assert _set_up(graph).pruner.name == "median"
    assert _set_up(graph, "fit.rounds=1").pruner.name == "none"
    assert _set_up(graph, objectives=["cost"]).pruner.name == "none"


def _pruned_at(folder: Path, steps: int, trials: int) -> list[int]:
    """Steps at which a Hyperband study ends trials of which each is worse than those before it."""
    space = {"fit.penalty": {"type": "float", "low": 0.0, "high": 1.0}}
    spec = StudySpec("second", {}, {}, space, [["choose.rmse", False]], "random", "hyperband", seed=3, steps=steps)
    study = SweepStudy.create(StudyStorage(f"sqlite:///{folder}/studies.db"), f"rungs-{steps}", spec, frozenset())
    ended = []
    for number in range(trials):
        claim = study.claim(trials)
        assert claim is not None
        ends = (step for step in range(1, 9) if study.should_prune(claim, step, 9, -float(number)))
        ended.append(next(ends, 9))
        state = TrialState.PRUNED if ended[-1] < 9 else TrialState.COMPLETE
        study.finish(claim, state, None if ended[-1] < 9 else [float(number)], {}, {})
    return ended


def test_hyperband_has_brackets_for_all_steps(tmp_path: Path) -> None:
    """With 9 steps: one bracket stops trials from step 1, one from step 3, and one lets them run."""
    assert {1, 3, 9} <= set(_pruned_at(tmp_path, 9, 20))


@pytest.mark.slow
def test_a_hyperband_sweep(second: Second, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("curved: {degree: [1], penalty: [0.001, 0.002, 0.003, 50.0, 60.0, 70.0, 80.0, 90.0]}\n")
    document = second(
        "sweep", "--space", str(space), "--sampler", "grid", "--objective", "curved.rmse", "--pruner", "hyperband",
        "--set", "curved.rounds=9", "--no-tracking", "--json",
    ).document  # fmt: skip
    assert document["counts"]["pruned"] >= 1
    reasons = [trial["reason"] for trial in document["trials"] if trial["state"] == "pruned"]
    assert all("of 9 of curved" in reason for reason in reasons)
    assert document["best"][0]["params"]["curved.penalty"] < 1
