"""Flows as deployments run them: `superworkflow.deployed.NAME` is the flow of the superworkflow NAME.

A deployment names this import path, so that the image or the machine that runs it holds all the code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from superworkflow import __version__
from superworkflow.flows import load_superworkflow, superworkflow_names

if TYPE_CHECKING:
    from prefect import Flow

    from superworkflow.infra.request import Request
    from superworkflow.infra.tracking.base import Tracker


def entrypoint(superworkflow: str) -> str:
    """Import path of a superworkflow's flow."""
    return f"{__name__}.{superworkflow}"


PULL_STEP = f"{__name__}.installed"


def installed() -> dict[str, str]:
    """What Prefect runs to get the code: it is there already; the answer says which."""
    return {"version": __version__}


def __getattr__(name: str) -> Flow[..., Any]:
    if name not in superworkflow_names():
        raise AttributeError(name)
    from superworkflow.dashboards.report import attach_pictures
    from superworkflow.infra.orchestration.flow import make_flow

    found = load_superworkflow(name)
    return make_flow(found, tracker=_tracker, finish=partial(attach_pictures, pictures=found.pictures))


def _tracker(request: Request) -> Tracker:
    from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker, default_tracking_uri

    return MlflowTracker(default_tracking_uri(request.store.root))
