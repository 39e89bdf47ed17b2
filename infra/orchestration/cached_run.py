"""A run whose datasets are all in the store, on a machine where no Prefect server is named: without Prefect.

It starts no stage, so there is nothing to orchestrate, and a temporary server with Prefect's imports takes three
quarters of its time. Its record is in MLflow, as of every run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from superworkflow.infra.config.request import Request
from superworkflow.infra.launch.base import Event, Launcher
from superworkflow.infra.orchestration.run_node import run_node, used_datasets
from superworkflow.infra.orchestration.run_record import begin_record, close_record, name_outputs
from superworkflow.infra.storage.holds import holding
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

_log = logging.getLogger(__name__)


def needs_no_flow(request: Request) -> bool:
    """True if all datasets exist, no model is registered, and no setting of Prefect may name a server."""
    return not request.registration.name and request.is_complete() and not _may_name_server()


def _may_name_server() -> bool:
    """Ask Prefect if this process has imported it, else read its sources of settings."""
    if "prefect" in sys.modules:
        from superworkflow.infra.orchestration.server import page

        return bool(page(""))
    if "PREFECT_API_URL" in os.environ:
        return bool(os.environ["PREFECT_API_URL"])  # set and empty means unset
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    try:
        if "PREFECT_PROFILE" in os.environ or Path("prefect.toml").exists():
            return True
        words = ((Path(".env"), "PREFECT_API"), (Path("pyproject.toml"), "[tool.prefect"))
        if any(path.exists() and word in path.read_text().replace(" ", "") for path, word in words):
            return True
        found = tomllib.loads(profiles.read_text()) if profiles.exists() else {}
        return "PREFECT_API_URL" in found.get("profiles", {}).get(found.get("active", ""), {})
    except (OSError, ValueError, AttributeError):
        return True


def run_cached(
    request: Request,
    tracker: Tracker,
    launcher: Launcher,
    listener: Callable[[str, Event], None],
    finish: Callable[[RunRecord, Tracker], None],
    name: str | None,
) -> RunRecord:
    """Record a run of cached stages; a dataset that is removed during it is made again.

    Args:
        request: of the run.
        tracker: that keeps its record.
        launcher: prepared.
        listener: follows the run; see `infra.orchestration.flow.Listener`.
        finish: last step, after all stages.
        name: of the run; by default that of the superworkflow with the time.
    """
    started, now = time.monotonic(), datetime.now(UTC)
    run = begin_record(request, tracker, name or f"{request.superworkflow.name} {now:%Y-%m-%d %H:%M:%S}")
    nodes = list(request.diagram.nodes.values())
    with holding(request.store.root, run.run_id or uuid4().hex) as hold:
        try:
            hold.add(used_datasets(nodes))
            tracker.sources(run.sources)
            try:
                for node in nodes:
                    listener(node.name, {"event": "begin"})
                    record = run_node(node, request, launcher, partial(listener, node.name), {})
                    run.stages.append(record)
                    listener(node.name, {"event": "end", "record": record})
            finally:
                tracker.stages(run.stages)
            name_outputs(request, run, _log.warning)
            run.close(request.prices, time.monotonic() - started)
            finish(run, tracker)
            tracker.finish(run)
        except BaseException as error:
            launcher.cancel()
            run.close(request.prices, time.monotonic() - started)
            close_record(tracker, run, error, _log.warning)
            raise
    return run
