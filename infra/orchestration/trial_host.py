"""Process that runs the trials of a sweep, and shows it nowhere: a sweep for which no Prefect server is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from superworkflow.infra.config.request import Request
from superworkflow.infra.launch import prepare_launcher
from superworkflow.infra.launch.base import Launcher
from superworkflow.infra.orchestration.followed_node import Listener
from superworkflow.infra.orchestration.local_run import run_here
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.records import RunRecord

T = TypeVar("T")


class TrialHost:
    """Runs trials in this process."""

    def run_trial(
        self, request: Request, name: str, tracker: Callable[[], Tracker], listener: Listener, launcher: Launcher
    ) -> RunRecord:
        """Run one trial.

        Args:
            request: the trial's request.
            name: of its run.
            tracker: makes the trial's tracker.
            listener: follows the stages; what it raises ends the stage at once.
            launcher: starts the stages.
        """
        prepare_launcher(launcher, request)
        return run_here(request, tracker(), launcher, listener, lambda run, tracker: None, name)

    def in_context(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work` for another thread, as part of the sweep of the calling one."""
        return work

    def table(self, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        """Show the table so far."""

    def link(self, url: str) -> None:
        """Show where the records are."""
