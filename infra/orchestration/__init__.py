"""Orchestration of a superworkflow: nodes of its diagram as tasks of a Prefect flow.

Prefect reads its settings when it is imported, so they are set here, before any module of this package imports it.
People see the run's own display; Prefect's server gets the full log.
"""

import os

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
os.environ.setdefault("DO_NOT_TRACK", "1")

SERVER_RETRIES = {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504"}
"""Answers of Prefect's server after which its client asks again, besides 408, 429, 502, 503 and broken connections."""
DEPLOYED_RETRIES = {**SERVER_RETRIES, "PREFECT_CLIENT_MAX_RETRIES": "8", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "8"}
"""Environment of deployed runs, which retry for up to six minutes: a server that is restarted ends none."""
for _name, _value in SERVER_RETRIES.items():
    os.environ.setdefault(_name, _value)
