"""Sweeps in MLflow: a run for each sweep, below which the runs of its trials are."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException

from superworkflow.infra.process.heartbeat import Heartbeat
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.dead_runs import close_dead_runs, give_sign
from superworkflow.infra.tracking.mlflow_tracker import MlflowTracker
from superworkflow.infra.tracking.run_tracker import author_tags, page_of_run
from superworkflow.infra.tracking.sqlite_tracker import open_tracker
from superworkflow.infra.tracking.tags import ERROR_TAG

SWEEP_TAG = "superworkflow.sweep"
BEST_TAG = "superworkflow.best"


class SweepRecord:
    """Keeps no record; the base of the one that does."""

    run_id = ""

    def begin(self, name: str, params: Mapping[str, Any]) -> str:
        """Open the sweep's run; returns its id."""
        return ""

    def resume(self) -> None:
        """Open the sweep's run again where an earlier process has closed it, and say that this one is at it."""

    def trial(self) -> Tracker:
        """A tracker for one trial."""
        return Tracker()

    def annotate(self, run_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Add figures and tags to a trial's run, also to one that has ended."""

    def stopped(self, run_id: str, reason: str) -> None:
        """Say that a trial's run did not fail but was stopped."""

    def stop(self, reason: str) -> None:
        """Close the sweep's run before its end; another process, or the same command again, opens it again."""

    def finish(self, metrics: Mapping[str, float], pages: list[Path], *, complete: bool) -> None:
        """Record the sweep's totals and pages; close its run when it is complete."""

    def url(self) -> str | None:
        """Address of its page."""
        return None


class MlflowSweepRecord(SweepRecord):
    """Records in MLflow.

    Args:
        uri: tracking URI.

    Raises:
        UserError: the tracker cannot be reached.
    """

    def __init__(self, uri: str):
        self.uri, self.run_id = uri, ""
        self._client, self._experiment = MlflowTracker(uri).handle()
        self._heart: Heartbeat | None = None

    def begin(self, name: str, params: Mapping[str, Any]) -> str:
        """Open the sweep's run; see `SweepRecord`."""
        run = self._client.create_run(self._experiment, run_name=name, tags={SWEEP_TAG: name, **author_tags(name)})
        self.run_id = str(run.info.run_id)
        for key, value in params.items():
            self._client.log_param(self.run_id, key, str(value)[:5000])
        return self.run_id

    def trial(self) -> Tracker:
        """A tracker below the sweep's run; see `SweepRecord`."""
        return open_tracker(self.uri, self.run_id)

    def annotate(self, run_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Add figures and tags; see `SweepRecord`."""
        for name, value in metrics.items():
            self._client.log_metric(run_id, name, value)
        for name, text in tags.items():
            self._client.set_tag(run_id, name, text[:5000])

    def stopped(self, run_id: str, reason: str) -> None:
        """End it as killed, which MLflow's pages show unlike failed; see `SweepRecord`."""
        self._client.set_tag(run_id, ERROR_TAG, reason[:5000])
        self._client.set_terminated(run_id, status="KILLED")

    def stop(self, reason: str) -> None:
        """End it as killed; see `SweepRecord`."""
        if self._heart is not None:
            self._heart.stop()
        self.stopped(self.run_id, reason)

    def resume(self) -> None:
        """Open the sweep's run again; see `SweepRecord`."""
        if self._client.get_run(self.run_id).info.status != "RUNNING":
            self._client.update_run(self.run_id, status="RUNNING")
            with contextlib.suppress(MlflowException):  # it had none
                self._client.delete_tag(self.run_id, ERROR_TAG)
        # No owner: several processes may be at it, and any of them keeps it alive.
        give_sign(self._client, self.run_id)

        def first() -> None:
            close_dead_runs(self._client, self._experiment)

        self._heart = Heartbeat(lambda: give_sign(self._client, self.run_id), first)

    def finish(self, metrics: Mapping[str, float], pages: list[Path], *, complete: bool) -> None:
        """Totals and pages; see `SweepRecord`."""
        if self._heart is not None:
            self._heart.stop()
        self.annotate(self.run_id, metrics, {})
        for path in pages:
            self._client.log_artifact(self.run_id, str(path))
        if complete:
            self._client.set_terminated(self.run_id)

    def url(self) -> str | None:
        """Address of the run's page."""
        return page_of_run(self.uri, self._experiment, self.run_id)
