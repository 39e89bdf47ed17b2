"""Sweeps end to end: real stages, a real MLflow store, a real Prefect server process, and processes that are killed."""

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient

from superworkflow.__main__ import main
from superworkflow.infra.config.prices import load_prices
from superworkflow.sweeps.storage import StudyStorage, default_storage_url
from superworkflow.sweeps.study import SweepStudy
from tests.flows.command_line import Answer, stages_at
from tests.sweeps.commands import SweepCommands
from tests.sweeps.conftest import Postgres

GRID = "walk: {p: [0.5, 2]}\nembed: {window: [2, 4]}\n"
STAGES = {"index", "label", "walk", "prepare", "embed", "evaluate"}


@pytest.fixture(scope="session")
def grid(sweeps: SweepCommands) -> Answer:
    """Two walk configurations with two windows each, two trials at once, on an empty store."""
    space = sweeps.space(GRID)
    return sweeps(
        "node2vec", "--space", space, "--sampler", "grid", "--parallel", "2", "--study", "grid", "--publish", "best",
        "--json",
    )  # fmt: skip


def _study(sweeps: SweepCommands, name: str) -> SweepStudy:
    from superworkflow.infra.storage.location import Location

    return SweepStudy.open(StudyStorage(default_storage_url(Location.of(sweeps.store))), name)


def _api(sweeps: SweepCommands, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{sweeps.environment['PREFECT_API_URL']}/{path}", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_each_dataset_is_made_once(grid: Answer) -> None:
    document = grid.document
    assert document["counts"] == {"complete": 4}, grid.err[-4000:]
    assert document["computed"] == {"index": 1, "label": 1, "walk": 2, "prepare": 2, "embed": 4, "evaluate": 4}
    digests: dict[str, list[str]] = {}
    for trial in document["trials"]:
        assert set(trial["stages"]) == STAGES, "what the objective does not need is not run"
        for name, stage in trial["stages"].items():
            if stage["state"] == "ran":
                digests.setdefault(name, []).append(stage["digest"])
    assert {name: len(set(found)) for name, found in digests.items()} == document["computed"]
    paid = sum(trial["paid_usd"] for trial in document["trials"])
    reused = sum(trial["reused_usd"] for trial in document["trials"])
    assert document["paid_usd"] == pytest.approx(paid)
    assert document["without_reuse_usd"] == pytest.approx(paid + reused)
    assert 0 < document["paid_usd"] < document["without_reuse_usd"]
    best = max(document["trials"], key=lambda trial: trial["values"][0])
    assert document["best"][0]["values"] == best["values"]


def test_records_in_mlflow(sweeps: SweepCommands, grid: Answer) -> None:
    client = MlflowClient(f"sqlite:///{sweeps.store}/mlflow/mlflow.db")
    sweep = client.get_run(grid.document["run_id"])
    assert sweep.info.status == "FINISHED"
    assert sweep.data.metrics["sweep/saved_usd"] == pytest.approx(grid.document["saved_usd"])
    below = f"tags.mlflow.parentRunId = '{sweep.info.run_id}'"
    trials = client.search_runs([sweep.info.experiment_id], below)
    assert {run.info.run_id for run in trials} == {trial["run_id"] for trial in grid.document["trials"]}
    best = [run.info.run_id for run in trials if run.data.tags["superworkflow.best"] == "true"]
    assert best == [grid.document["best"][0]["run_id"]]
    stages = client.search_runs([sweep.info.experiment_id], f"tags.mlflow.parentRunId = '{best[0]}'")
    assert {run.info.run_name for run in stages} == STAGES
    assert [file.path for file in client.list_artifacts(sweep.info.run_id)] == ["sweep.html"]
    assert grid.document["model"] == "models:/node2vec-embeddings@current"


def test_trials_are_subflow_runs(sweeps: SweepCommands, grid: Answer) -> None:
    latest = {"flow_runs": {"name": {"any_": ["grid"]}}, "sort": "START_TIME_DESC", "limit": 1}
    (parent,) = _api(sweeps, "flow_runs/filter", latest)
    assert parent["state"]["type"] == "COMPLETED"
    runs = _api(sweeps, "flow_runs/filter", {"flow_runs": {"parent_flow_run_id": {"any_": [parent["id"]]}}})
    names = {run["name"] for run in runs}
    assert {f"grid-{number:04d}" for number in range(4)} <= names
    (table,) = _api(sweeps, "artifacts/latest/filter", {"artifacts": {"key": {"any_": ["sweep-grid"]}}})
    assert len(json.loads(table["data"])) == 4
    assert "4 of 4 trials" in table["description"]


def test_same_command_again_has_nothing_to_do(alone: SweepCommands, grid: Answer) -> None:
    again = alone(
        "node2vec", "--space", alone.space(GRID), "--sampler", "grid", "--study", "grid", "--no-tracking", "--json"
    )  # fmt: skip
    assert again.document["trials"] == grid.document["trials"]


def test_looking_at_a_study(
    sweeps: SweepCommands, grid: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["grid", "--store", str(sweeps.store)]
    assert main(["sweep", "status", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == grid.document["trials"]
    assert main(["sweep", "status", *where]) == 0
    shown = capsys.readouterr().out
    assert "4 of 4 trials ended" in shown
    assert "walk 2/2" in shown
    assert main(["sweep", "best", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == grid.document["best"]
    assert main(["sweep", "plot", *where, "--out", str(tmp_path / "made")]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == tmp_path / "made" / "sweep.html"
    titles = set(re.findall(r"<h2>(.*?)</h2>", page.read_text()))
    assert titles == {"History", "Importance", "Parallel coordinates", "Heat map", "Cost", "Trials"}
    assert main(["sweep", "best", "gird", "--store", str(sweeps.store)]) == 2
    assert "Studies there: grid" in capsys.readouterr().err


@pytest.mark.slow
def test_same_seed_same_trials(alone: SweepCommands, grid: Answer) -> None:
    space = alone.space("walk: {p: [0.5, 2]}\nembed: {window: [2, 4, 6], learning_rate: {low: 0.05, high: 0.06}}\n")
    arguments = ["--space", space, "--sampler", "tpe", "--seed", "5", "--trials", "2", "--no-tracking", "--json"]
    first, second = (alone("node2vec", *arguments, "--study", name).document for name in ("first", "second"))
    for key in ("params", "values", "metrics"):
        assert [trial[key] for trial in first["trials"]] == [trial[key] for trial in second["trials"]]
    assert set(second["computed"]) == set(), "all is cached"
    assert second["paid_usd"] == 0
    assert second["without_reuse_usd"] > 0


@pytest.mark.slow
def test_quality_and_cost(alone: SweepCommands, grid: Answer) -> None:
    limit = sorted(trial["paid_usd"] + trial["reused_usd"] for trial in grid.document["trials"])[1]
    found = alone(
        "node2vec", "--space", alone.space(GRID), "--sampler", "grid", "--objectives", "quality,cost", "--parallel",
        "2", "--trial-budget-usd", str(limit), "--no-tracking", "--json",
    ).document  # fmt: skip
    assert [each["direction"] for each in found["objectives"]] == ["maximize", "minimize"]
    for trial in found["trials"]:
        # Trials share this machine: what counts is what was computed, not how long the others made it wait.
        made = [next(alone.store.glob(f"*/{stage['digest']}/manifest.json")) for stage in trial["stages"].values()]
        cpu_s = sum(json.loads(manifest.read_text())["measured"]["cpu_s"] for manifest in made)
        assert trial["values"][1] == pytest.approx(cpu_s / 3600 * load_prices().vcpu_hour)
        assert trial["feasible"] == (trial["paid_usd"] + trial["reused_usd"] <= limit)
    assert found["best"]
    assert all(trial["feasible"] for trial in found["best"])


@pytest.mark.slow
@pytest.mark.parametrize(("server", "first"), [("sweeps", 0.05), ("alone", 0.06)])
def test_pruned_trial_stops_its_process(
    server: str, first: float, grid: Answer, request: pytest.FixtureRequest
) -> None:
    commands: SweepCommands = request.getfixturevalue(server)
    rates = ", ".join(f"{first + place / 1000:g}" for place in range(5))
    space = commands.space(f"embed: {{epochs: [40], learning_rate: [{rates}, {first / 5000}]}}")
    name = f"pruned-{server}"
    answer = commands(
        "node2vec", "--space", space, "--sampler", "grid", "--pruner", "median", "--study", name, "--no-tracking",
        "--json",
    )  # fmt: skip
    assert answer.document["counts"] == {"complete": 5, "pruned": 1}
    last = answer.document["trials"][-1]
    assert last["state"] == "pruned"
    assert "after step 1 of 40 of embed" in last["reason"]
    assert "embed" not in last["stages"]
    assert last["paid_usd"] > 0
    trial = _study(commands, name).trials()[-1]
    assert list(trial.intermediate_values) == [1]
    assert not stages_at(commands.store)
    if server == "alone":
        return
    (run,) = _api(commands, "flow_runs/filter", {"flow_runs": {"name": {"any_": [f"{name}-{last['number']:04d}"]}}})
    assert (run["state"]["type"], run["state"]["message"]) == ("CANCELLED", last["reason"])


@pytest.mark.slow
def test_budget_stops_the_sweep_and_more_money_goes_on(alone: SweepCommands, grid: Answer) -> None:
    space = alone.space("walk: {p: [0.7, 0.8]}")
    stopped = alone(
        "node2vec", "--space", space, "--sampler", "grid", "--study", "poor", "--budget-usd", "0.00002",
        "--no-tracking", "--json", expect=1,
    )  # fmt: skip
    document = stopped.document
    assert "budget of $2e-05 is spent" in document["note"]
    assert document["finished"] < 2
    assert document["paid_usd"] >= 0.00002
    assert "running" not in document["counts"]
    assert "superworkflow sweep resume poor" in stopped.err
    assert not stages_at(alone.store)
    rich = alone("resume", "poor", "--no-tracking", "--json").document
    assert rich["counts"] == {"complete": 2}
    assert [trial["params"] for trial in rich["trials"]] == [{"walk.p": p} for p in (0.7, 0.8)]
    assert rich["paid_usd"] > document["paid_usd"]


def test_failures_are_recorded_and_too_many_stop(sweeps: SweepCommands, grid: Answer) -> None:
    space = sweeps.space("embed: {learning_rate: [99, 98, 97, 96], step_bound: [0.0]}")
    answer = sweeps(
        "node2vec", "--space", space, "--sampler", "grid", "--max-failures", "2", "--no-tracking", "--json", expect=1
    )  # fmt: skip
    document = answer.document
    assert document["counts"] == {"failed": 2}
    assert all("diverged" in trial["reason"] for trial in document["trials"])
    assert "2 trials in a row have failed" in document["note"]
    assert "Traceback" not in answer.err


SCORES = """
import numpy as np

from superworkflow import Diagram, Field, Input, Metric, Output, Source, Stage, StageParams, StageRun, Superworkflow


class Params(StageParams):
    value: str = Field(default="0", description="Score to report.")


def score(job: StageRun[Params]) -> Output:
    job.output.array("value.npy", np.array([float(job.params.value)]))
    return Output(rows=1, metrics={"value": float(job.params.value)})


SCORE = Stage("given_score", score, {"edges": Input("any file", file=True)}, Params, metrics=("value",))


def diagram(flow: Diagram, edges: Source) -> None:
    flow.stage(SCORE, edges=edges)


SUPERWORKFLOW = Superworkflow(
    "scores", (SCORE,), {"edges": "any file"}, diagram, outcomes=(Metric("given_score", "value", headline=True),)
)
"""


@pytest.mark.slow
def test_a_metric_that_is_no_number_fails_its_trial_alone(alone: SweepCommands, tmp_path: Path) -> None:
    file = tmp_path / "scores.py"
    file.write_text(SCORES)
    space = alone.space('given_score: {value: ["nan", "1", "inf", "-inf", "2"]}')
    begun = alone(
        str(file), "--edges", str(alone.edges), "--space", space, "--sampler", "grid", "--trials", "2", "--study",
        "scores", "--no-tracking", "--json",
    )  # fmt: skip
    assert begun.document["counts"] == {"complete": 1, "failed": 1}
    document = alone("resume", "scores", "--code", str(file), "--trials", "5", "--no-tracking", "--json").document
    ended = [(trial["params"]["given_score.value"], trial["state"], trial["reason"]) for trial in document["trials"]]
    reason = "given_score.value: the metric is NaN or infinite."
    assert ended == [
        ("nan", "failed", reason), ("1", "complete", ""), ("inf", "failed", reason), ("-inf", "failed", reason),
        ("2", "complete", ""),
    ]  # fmt: skip
    assert document["best"][0]["values"] == [2.0]


def test_killed_sweep_and_its_companion_on_one_database(sweeps: SweepCommands, postgres: Postgres) -> None:
    space = sweeps.space("walk: {p: [0.3]}\nembed: {window: [2, 3, 4, 5]}")
    given = ["node2vec", "--space", space, "--sampler", "grid", "--storage", postgres.url, "--study", "two"]
    given += ["--no-tracking", "--json"]
    victim, companion = (sweeps.start(*given) for _ in range(2))
    storage = StudyStorage(postgres.url)
    owned = f"/{victim.pid}/"
    for _ in range(1200):
        assert victim.poll() is None, victim.communicate()
        try:
            trials = SweepStudy.open(storage, "two").trials()
        except Exception:
            trials = []
        if any(owned in trial.user_attrs.get("owner", "") and trial.state.name == "RUNNING" for trial in trials):
            break
        time.sleep(0.05)
    stages = [child for child in psutil.Process(victim.pid).children(recursive=True) if "--output" in child.cmdline()]
    victim.kill()
    victim.communicate()
    psutil.wait_procs(stages, timeout=20)
    out, err = companion.communicate(timeout=300)
    assert companion.returncode == 0, err
    document = json.loads(out)
    assert document["counts"] == {"complete": 4}
    assert [trial["number"] for trial in document["trials"]] == list(range(4))
    assert len({str(trial["params"]) for trial in document["trials"]}) == 4
    taken = [trial.user_attrs.get("attempts", 0) for trial in SweepStudy.open(storage, "two").trials()]
    assert sum(taken) == 1, "the one trial that the victim was at was taken over once"
