"""Figures of sweeps, of studies that are made here."""

import math

import optuna
import pytest

from superworkflow.dashboards.web.figures import COLOURS
from superworkflow.dashboards.web.sweep_figures import Chart, sweep_figures


@pytest.fixture(scope="module")
def figures() -> dict[str, Chart]:
    """Figures of a grid over a rate within two decades, whose best trials are those of the lowest rate and highest."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(directions=["maximize", "minimize"])
    rate = optuna.distributions.FloatDistribution(0.004, 0.2, log=True)
    window = optuna.distributions.IntDistribution(1, 9)
    rates = (0.004, 0.02, 0.1, 0.2)
    study.add_trials([
        optuna.trial.create_trial(
            params={"rate": value, "window": place % 3 + 1}, distributions={"rate": rate, "window": window},
            values=[value + 0.05 * (value == 0.1), 10.0 * (value > 0.004) + place],
        )
        for place, value in enumerate((*rates, *rates))
    ])  # fmt: skip
    report = {
        "objectives": [{"name": "f1", "direction": "maximize"}, {"name": "cost", "direction": "minimize"}],
        "trials": [{"number": trial.number, "paid_usd": 1.0, "reused_usd": 0.0} for trial in study.trials],
    }
    return {title: made for title, _, made in sweep_figures(study, report)}


def test_trials_on_the_front_have_a_colour_of_their_own(figures: dict[str, Chart]) -> None:
    found = {trace["name"]: trace for trace in figures["Pareto front"]["data"]}
    assert sorted(zip(found["on the front"]["x"], found["on the front"]["y"], strict=True)) == [
        (0.004, 0.0), (0.02, 11.0), (pytest.approx(0.15), 12.0), (0.2, 13.0)
    ]  # fmt: skip
    assert len(found["others"]["x"]) == 4
    assert found["on the front"]["marker"]["color"] == COLOURS[1]
    assert not any("colorbar" in trace["marker"] for trace in found.values())


def test_logarithmic_axes_have_whole_numbers(figures: dict[str, Chart]) -> None:
    axis = figures["Heat map"]["layout"]["xaxis"]
    low, high = axis["range"]
    assert axis["ticktext"] == ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]
    assert all(low <= math.log10(tick) <= high for tick in axis["tickvals"])


def test_figures_next_to_bars_are_inside(figures: dict[str, Chart]) -> None:
    made = figures["Importance"]
    assert made["layout"]["xaxis"]["range"][1] > max(made["data"][0]["x"])
    assert not any(trace.get("marker", {}).get("showscale", True) for trace in figures["Parallel coordinates"]["data"])
