"""Charts as data."""

import math

from superworkflow.dashboards.web import figures


def test_axis_of_a_figure_that_never_changes_begins_at_zero() -> None:
    """Such as a constant learning rate: by itself the axis would be from -1 to 1."""
    found = figures.curves(
        {
            "": {
                "train.rate": [(1, 0.01), (2, 0.01)],
                "train.slope": [(1, -2.0), (2, -2.0)],
                "train.loss": [(1, 2.0), (2, 1.0)],
                "train.zero": [(1, 0.0), (2, 0.0)],
                "train.lost": [(1, math.nan), (2, math.nan)],
            }
        }
    )
    ranges = {title: chart["layout"]["yaxis"].get("range") for title, chart in found.items()}
    assert ranges == {
        "train: rate by epoch": [0.0, 0.02],
        "train: slope by epoch": [-4.0, 0.0],
        "train: loss by epoch": None,
        "train: zero by epoch": None,
        "train: lost by epoch": None,
    }


def test_bars_of_many_stages_all_look_different() -> None:
    found = figures.stage_costs({"run": {f"stage-{number}": 1.0 for number in range(24)}})
    looks = {(each["marker"]["color"], each["marker"]["pattern"]["shape"]) for each in found["data"]}
    assert len(looks) == 24
