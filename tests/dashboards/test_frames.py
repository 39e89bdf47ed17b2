"""Frames are what the records say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from mlflow import MlflowClient

from superworkflow.dashboards.web import frames
from superworkflow.dashboards.web.stages import fits, profile_lines, shipped_prices, timeline
from superworkflow.infra.profile import load_profile
from superworkflow.infra.records import RunRecord
from superworkflow.infra.tracking.details import StageRun
from tests.dashboards.conftest import GATE, Recorded


def test_costs_add_up_to_what_mlflow_has(recorded: Recorded) -> None:
    client = MlflowClient(recorded.reader.uri)
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    found = client.search_runs([experiment.experiment_id], "tags.`superworkflow.name` != ''")
    paid = sum(run.data.metrics["cost/total_usd"] for run in found)
    saved = sum(run.data.metrics["cost/saved_by_cache_usd"] for run in found)
    runs, costs = frames.runs_frame(recorded.runs), frames.costs_frame(recorded.runs)
    assert len(runs) == len(found) == 6
    assert paid > 0
    assert costs["cost_usd"].sum() == pytest.approx(paid)
    together = frames.summary(runs)
    assert (together.cost_usd, together.saved_usd) == (pytest.approx(paid), pytest.approx(saved))
    assert (together.ended_well, together.failed, together.success) == (6, 0, 1.0)
    today = recorded.runs[0].started.date()
    for of in ("superworkflow", "stage"):
        table = frames.by_day(costs, of, 30, today)
        assert len(table) == 30
        assert table.to_numpy().sum() == pytest.approx(paid)
        assert set(table.columns) == set(costs[of])
    assert frames.since(recorded.runs, 1, today + timedelta(days=40)) == []


def test_a_month_ends_at_its_mean(recorded: Recorded) -> None:
    runs = frames.runs_frame(recorded.runs)
    first = min(runs["day"])
    month = frames.month(runs, first + timedelta(days=1)) if first.day < 28 else frames.month(runs, first)
    days = 2 if first.day < 28 else 1
    assert month.daily_usd == pytest.approx(month.spent_usd / days)
    left = (month.last - month.days[-1][0]).days
    assert month.forecast_usd == pytest.approx(month.spent_usd * (1 + left / days))


def test_nothing_recorded_is_no_error() -> None:
    today = frames.today()
    assert frames.summary(frames.runs_frame([])).success is None
    assert frames.by_day(frames.costs_frame([]), "stage", 7, today).shape == (7, 0)
    assert frames.month(frames.runs_frame([]), today).forecast_usd == 0


def test_a_deployment_by_its_nights(recorded: Recorded) -> None:
    (history,) = frames.deployments(recorded.runs, recorded.reader.versions())
    assert (history.id, history.name) == (recorded.deployment, "node2vec/nightly")
    first, second = history.runs
    assert first.run.run_id == recorded.nightly[0].run_id
    assert first.champion is None
    assert second.champion == second.run.figures["promotion/champion_quality"]
    assert second.quality == second.run.figures["promotion/quality"]
    assert first.gates == second.gates == ((GATE, True),)
    assert [str(gate) for gate in history.limits] == [GATE]
    assert history.drift.empty or set(history.drift.columns)


def test_runs_side_by_side(recorded: Recorded) -> None:
    trials = [run for run in recorded.runs if run.is_trial]
    table = frames.differing(trials)
    assert set(table.index) == {"embed.window", "embed.epochs"}
    for run in trials:
        assert table.at["embed.window", run.run_id] == run.params["embed.window"]
    first, second = recorded.nightly
    assert list(frames.differing([first, second]).index) == ["source edges"]
    figures = frames.qualities([first])
    heads = figures[figures["headline"]]
    assert heads["value"].iloc[0] == first.metrics[heads["metric"].iloc[0]]
    assert heads["spread"].iloc[0] == first.metrics[heads["metric"].iloc[0].replace("macro_f1", "macro_f1_std")]


def test_phases_of_stages(recorded: Recorded) -> None:
    run = recorded.nightly[0]
    phases = {each.stage.name: each for each in timeline(recorded.stages(run), run.started)}
    assert set(phases) == set(run.stages)
    wall = run.totals["wall_seconds"]
    for each in phases.values():
        assert 0 <= each.ready <= each.began <= each.ended <= wall + 1
        assert each.running_s == pytest.approx(each.stage.seconds + each.stage.compile_s, abs=0.01)
    for before, after in (("index", "walk"), ("walk", "prepare"), ("prepare", "embed"), ("embed", "evaluate")):
        assert phases[after].ready >= phases[before].ended - 0.01


def test_a_run_that_ends_is_described_as_it_is_read_later(recorded: Recorded) -> None:
    """The report, which is written before the run is closed, has the figures of the page."""
    run = recorded.nightly[0]
    read = recorded.stages(run)
    assert all(each.cpu > 0 and each.memory > 0 for each in read)
    assert RunRecord("", "", "", "", "").totals().keys() == run.totals.keys()


def _stage(name: str, **given: float) -> StageRun:
    values = {"seconds": 3600.0, "cpu_s": 3600.0, "memory_bytes": 1 << 30, "cpu": 4.0, "memory": 8 << 30, **given}
    return StageRun(name=name, state="ran", ended=datetime.now(UTC), compile_s=0, rows=1, cost_usd=0.1, saved_usd=0,
                    **values)  # type: ignore[arg-type]  # fmt: skip


def test_lines_that_fit_better_are_a_profile(tmp_path: pytest.TempPathFactory) -> None:
    prices = shipped_prices("../../etc/passwd")
    assert prices is not None
    found = fits(
        [_stage("wide"), _stage("tight", memory_bytes=int(7.9 * (1 << 30)), cpu_s=4 * 3600),
         _stage("right", cpu_s=3.5 * 3600, memory_bytes=int(6.9 * (1 << 30)))], prices,
    )  # fmt: skip
    wide, tight, right = found
    assert (wide.cpu, wide.memory) == (1.5, 1280 << 20)
    assert wide.saves_usd == pytest.approx(2.5 * prices.vcpu_hour + 6.75 * prices.gib_hour)
    assert tight.cpu is None
    assert tight.memory is not None
    assert tight.memory > 9 << 30
    assert tight.saves_usd is not None
    assert tight.saves_usd < 0
    assert not right.better
    path = tmp_path / "mine.yaml"  # type: ignore[operator]
    path.write_text(profile_lines(found))
    placement = load_profile(str(path)).placement("wide", "wide")
    assert (placement.resources.cpu, placement.resources.memory) == (1.5, 1280 << 20)
