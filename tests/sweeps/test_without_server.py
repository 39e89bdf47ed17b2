"""A sweep for which no Prefect server is named."""

from pathlib import Path

from superworkflow.infra.tracking.run_reader import RunReader
from tests.sweeps.commands import SweepCommands


def test_trials_run_and_are_recorded_without_prefect(tmp_path: Path, graph_files: tuple[Path, Path]) -> None:
    home = tmp_path / "prefect"
    environment = {"PREFECT_API_URL": "", "MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(home)}
    sweeps = SweepCommands(tmp_path / "store", *graph_files, environment)
    space = sweeps.space("walk: {p: [0.5, 2]}")
    answer = sweeps("node2vec", "--space", space, "--sampler", "grid", "--parallel", "2", "--study", "alone", "--json")
    found = answer.document
    assert (found["counts"], found["note"]) == ({"complete": 2}, "")
    assert not (home / "prefect.db").exists(), "no server was started"
    trials = {trial["number"]: trial for trial in found["trials"]}
    walks = [trials[number]["stages"]["walk"]["state"] for number in (0, 1)]
    assert walks == ["ran", "ran"]
    reader = RunReader(f"sqlite:///{sweeps.store}/mlflow/mlflow.db")
    recorded = reader.run(trials[1]["run_id"])
    assert recorded.name == "alone-0001"
    assert recorded.tags["superworkflow.sweep"] == "alone"
    assert recorded.stages["walk"]["cost_usd"] > 0


def test_trials_above_their_budget_are_complete_and_none_is_best(
    tmp_path: Path, graph_files: tuple[Path, Path]
) -> None:
    environment = {"PREFECT_API_URL": "", "PREFECT_HOME": str(tmp_path / "prefect")}
    sweeps = SweepCommands(tmp_path / "store", *graph_files, environment)
    search = ("--space", sweeps.space("walk: {p: [0.5]}"), "--sampler", "grid", "--no-tracking")
    found = sweeps("node2vec", *search, "--trial-budget-usd", "1e-12", expect=1)
    assert "1 complete" in (found.out + found.err)
    assert "No complete trial is within --trial-budget-usd." in (found.out + found.err)
    for budget in ("nan", "inf"):
        refused = sweeps("node2vec", *search, "--budget-usd", budget, expect=2)
        assert f"--budget-usd: must be above 0, and finite (got {budget})" in refused.err
