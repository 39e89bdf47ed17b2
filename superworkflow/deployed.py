"""Flows as deployments run them: `superworkflow.deployed.NAME` is the flow of the superworkflow NAME.

A deployment names this import path, so that the image or the machine that runs it holds all the code. That of a user's
file names the file as well, by its SHA-256 and its copy in the store, in the environment of its runs.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from superworkflow.flows import load_superworkflow, superworkflow_names
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.code_file import VARIABLE
from superworkflow.version import __version__

if TYPE_CHECKING:
    from prefect import Flow

    from superworkflow.infra.config.request import Request
    from superworkflow.infra.contract.superworkflow import Superworkflow
    from superworkflow.infra.tracking.base import Tracker
    from superworkflow.infra.tracking.records import RunRecord

EXPORTS = "SUPERWORKFLOW_EXPORTS"
"""Environment variable of a deployment's runs: what they export, one a line."""


def entrypoint(superworkflow: str) -> str:
    """Import path of a superworkflow's flow.

    Raises:
        UserError: something else has that path.
    """
    if superworkflow in globals():
        raise UserError("a deployed superworkflow cannot have this name", where=superworkflow,
                        remedy="Give it another name")  # fmt: skip
    return f"{__name__}.{superworkflow}"


_WATCHER = "watch_"


def watcher(superworkflow: str) -> str:
    """Import path of the flow that watches the sources of a superworkflow's deployments."""
    return f"{__name__}.{_WATCHER}{superworkflow}"


PULL_STEP = f"{__name__}.installed"


PRUNING = f"{__name__}.prune_store"
"""Import path of the flow that prunes a store."""


def installed() -> dict[str, str]:
    """Pull step of Prefect: the code is installed already; the result names its version."""
    return {"version": __version__}


def __getattr__(name: str) -> Flow[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    if name == PRUNING.rpartition(".")[2]:
        from superworkflow.infra.orchestration.pruning_flow import make_pruning_flow

        return make_pruning_flow()
    file = os.environ.get(VARIABLE)
    found = load_superworkflow(file) if file else None
    title = name
    if (found is None or found.name != name) and name not in superworkflow_names():
        title = name.removeprefix(_WATCHER)
    if found is None or found.name != title:
        if title not in superworkflow_names():
            raise AttributeError(name)
        found = load_superworkflow(title)
    if title != name:
        from superworkflow.infra.orchestration.source_trigger import make_watching_flow

        return make_watching_flow(found)
    from superworkflow.infra.orchestration.flow import make_flow

    return make_flow(found, tracker=_tracker, finish=partial(finish, found))


def finish(superworkflow: Superworkflow, run: RunRecord, tracker: Tracker) -> None:
    """Last step of a deployed run: its pictures, and its exports unless its model was rejected.

    Raises:
        UserError: a table cannot be written.
    """
    from superworkflow.dashboards.report import attach_pictures
    from superworkflow.infra.orchestration.export import export_all

    attach_pictures(run, tracker, superworkflow.outcomes)
    if not any(each.verdict == "rejected" for each in run.decisions):
        export_all(superworkflow, os.environ.get(EXPORTS, "").splitlines(), run)


def _tracker(request: Request) -> Tracker:
    from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
    from superworkflow.infra.tracking.uris import default_tracking_uri

    return MlflowTracker(default_tracking_uri(request.store.root))
