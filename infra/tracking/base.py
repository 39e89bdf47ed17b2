"""The contract of trackers: where runs are recorded so that they can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from superworkflow.infra.outcomes import Model
from superworkflow.infra.records import RunRecord, StageRecord, Used
from superworkflow.infra.storage.dataset import Dataset


class Tracker:
    """Keeps no record; the base of those that do.

    The calls come in this order: `begin`, `sources`, `stage` for each stage as it ends, `picture` and `model` any
    number of times, then `finish`, `fail` or `stop`.
    """

    @property
    def run_id(self) -> str:
        """Of the run, once `begin` has opened it."""
        return ""

    def begin(self, name: str, superworkflow: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Open a run and return its id.

        Raises:
            UserError: the tracker cannot be reached. It is called before any stage starts.
        """
        return ""

    def sources(self, given: Sequence[Used]) -> None:
        """Record what the run was given from outside."""

    def stage(self, record: StageRecord) -> None:
        """Record a stage that ended, well or not."""

    def picture(self, path: Path) -> None:
        """Attach a picture to the run."""

    def model(self, dataset: Dataset, model: Model, name: str, alias: str) -> str | None:
        """Register a dataset as a model; returns its URI."""
        return None

    def finish(self, run: RunRecord) -> None:
        """Record totals and quality, and close the run."""

    def fail(self, message: str, run: RunRecord | None = None) -> None:
        """Close the run as failed, with the totals of what it has done."""

    def stop(self, message: str, run: RunRecord | None = None) -> None:
        """Close the run as ended on purpose before its end: interrupted, cancelled or pruned; as `fail`."""

    def url(self) -> str | None:
        """Where a person looks at the run."""
        return None
