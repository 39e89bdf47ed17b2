"""Links to a run's pages, made without asking any server."""

from __future__ import annotations

import os

from superworkflow.infra.base.masking import without_user

DASHBOARD_VARIABLE = "SUPERWORKFLOW_DASHBOARD_URL"
"""Address of the dashboard that a team has."""
DASHBOARD_PORT = 8060
MLFLOW_VARIABLE = "SUPERWORKFLOW_MLFLOW_URL"
"""Address at which people find MLflow, where runs reach it by another one, as containers do."""


def dashboard_page(run_id: str) -> str:
    """Address of a run's page on the dashboard that is named, or on one of this machine."""
    base = os.environ.get(DASHBOARD_VARIABLE) or f"http://127.0.0.1:{DASHBOARD_PORT}"
    return f"{without_user(base).rstrip('/')}/run/{run_id}"
