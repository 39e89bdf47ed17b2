"""The contract of trackers: where runs are recorded so that they can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superworkflow.infra.contract.outcomes import Model
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.tracking.decision import Decision
from superworkflow.infra.tracking.records import RunRecord, StageRecord, Used

if TYPE_CHECKING:
    from superworkflow.infra.tracking.models import ModelRegistry
    from superworkflow.infra.tracking.registry import RegisteredModel


class Tracker:
    """Keeps no record; the base of those that do.

    The calls come in this order: `begin`, `sources`, `stage` for each stage as it ends, `picture` and `model` any
    number of times, then `finish`, `fail` or `stop`.
    """

    @property
    def run_id(self) -> str:
        """Identifier of the run, once `begin` has opened it."""
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

    def stages(self, records: Sequence[StageRecord]) -> None:
        """Record several stages, as `stage` does each."""
        for each in records:
            self.stage(each)

    def picture(self, path: Path) -> None:
        """Attach a picture to the run."""

    def panels(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Attach panels to the run: their documents, in the order of the page."""

    def drew(self, keys: Mapping[str, str]) -> None:
        """Record what the attached pictures and panels show, as keys by path among the run's artifacts."""

    def drawn(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        """Pictures and panels that earlier runs attached with these keys, `drew`: content by path, if there is any."""
        return {}

    def report(self, path: Path) -> None:
        """Attach a page about the run."""

    def model(self, dataset: Dataset, model: Model, name: str, tags: Mapping[str, str]) -> RegisteredModel | None:
        """Register a dataset as a version of a model, with these tags where it is a new one."""
        return None

    def registry(self) -> ModelRegistry | None:
        """Registry of the models that `model` registers."""
        return None

    def decided(self, decision: Decision) -> None:
        """Record what became of a model of this run."""

    def last_inputs(self, deployment: str) -> str:
        """Digest of all inputs of the last run of a deployment that finished; empty where none did.

        Args:
            deployment: its id.
        """
        return ""

    def last_datasets(self, deployment: str) -> dict[str, str]:
        """Digests by node of the datasets of the last run of a deployment that finished, to compare the next one with.

        Args:
            deployment: its id.
        """
        return {}

    def spent(self, deployment: str, since: datetime) -> float:
        """USD that runs of a deployment have cost that began since then.

        Args:
            deployment: its id.
            since: with a time zone.
        """
        return 0.0

    def unchanged(self, name: str, superworkflow: str, tags: Mapping[str, str]) -> None:
        """Record, without `begin`, that a run had nothing to do; at most one run a day for each deployment."""

    def finish(self, run: RunRecord) -> None:
        """Record totals and quality, and close the run."""

    def fail(self, message: str, run: RunRecord | None = None) -> None:
        """Close the run as failed, with the totals of what it has done."""

    def stop(self, message: str, run: RunRecord | None = None) -> None:
        """Close the run as ended on purpose before its end: interrupted, cancelled or pruned; as `fail`."""

    def url(self) -> str | None:
        """Address of the run's page."""
        return None
