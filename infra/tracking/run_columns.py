"""Saved views of MLflow's page of an experiment: which columns its list of runs has.

A view is a tag of the experiment (MLflow 3: `mlflow.sharedViewState.ID`): JSON of a name, two times, and the page's
state, itself JSON in a text. The page lists views in its menu *Views*, and `…/runs?viewStateShareKey=ID` opens one. Its
fields are those of `experimentPageUIState` and `experimentPageSearchFacets` in MLflow's own source.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from superworkflow.infra.contract.metrics import headlines
from superworkflow.infra.tracking.metric_keys import TOTALS, metric_key, quality_keys
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.infra.tracking.tags import DEPLOYMENT_TAG, OUTCOME_TAG, SHORT, SUPERWORKFLOW_TAG

VIEW_TAG = "mlflow.sharedViewState."
_FIRST = ("attributes.`Dataset`", f"tags.`{SHORT[DEPLOYMENT_TAG]}`", f"tags.`{SHORT[OUTCOME_TAG]}`")
_LAST = tuple(f"metrics.`{TOTALS[name]}`" for name in ("cost_usd", "saved_by_cache_usd", "wall_seconds"))


def view_key(superworkflow: str) -> str:
    """Id of the view of a superworkflow's runs."""
    return f"superworkflow-{superworkflow}"


def view_tag(superworkflow: str) -> str:
    """Tag of the experiment that has this view."""
    return f"{VIEW_TAG}{view_key(superworkflow)}"


def new_view(existing: str, run: RunRecord) -> str | None:
    """The view of a superworkflow's runs: data, deployment, outcome, quality, cost and runtime; None if it stays.

    Figures that a later run has besides are added. A view that somebody has changed on the page stays as it is.

    Args:
        existing: the tag; empty if there is none.
        run: a finished one.
    """
    quality = quality_keys({each.name: each.value for each in headlines(run.metrics, run.declared)})
    columns = [f"metrics.`{metric_key(key)}`" for key in quality]
    earlier = _ours(existing)
    if existing and (earlier is None or set(columns) <= set(earlier)):
        return None
    return _view(run.superworkflow, list(dict.fromkeys([*(earlier or ()), *columns])))


def _view(superworkflow: str, quality: Sequence[str]) -> str:
    now = int(time.time() * 1000)
    state = {
        "searchFilter": f"tags.`{SUPERWORKFLOW_TAG}` = '{superworkflow}'",
        "orderByKey": "attributes.start_time", "orderByAsc": False,
        "selectedColumns": [*_FIRST, *quality, *_LAST],
    }  # fmt: skip
    return json.dumps({"name": superworkflow, "createdAt": now, "updatedAt": now, "state": json.dumps(state)})


def _ours(text: str) -> list[str] | None:
    """Columns of quality of a view that nobody has changed; None where somebody has, or it is none."""
    try:
        view: Any = json.loads(text)
        columns = json.loads(view["state"])["selectedColumns"]
        first, last = len(_FIRST), len(columns) - len(_LAST)
        ours = view["createdAt"] == view["updatedAt"] and tuple(columns[:first]) == _FIRST
        return [str(each) for each in columns[first:last]] if ours and tuple(columns[last:]) == _LAST else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
