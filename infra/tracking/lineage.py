"""Lineage: which runs and stages made and read a source or dataset, and which models rest on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mlflow.entities import ViewType
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.tracking.model_versions import Version
from superworkflow.infra.tracking.records import DIGEST_LENGTH
from superworkflow.infra.tracking.run_details import Datum
from superworkflow.infra.tracking.run_reader import data_of
from superworkflow.infra.tracking.tags import STAGE_TAG, STATE_TAG
from superworkflow.infra.tracking.uris import EXPERIMENT

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_USES = 500
"""Latest runs and stages that are looked at."""


@dataclass(frozen=True)
class Use:
    """One run or stage that read or wrote the data.

    Args:
        run_id: of the run; of a stage's the run that it is part of.
        stage: empty for the run itself.
        state: `ran`, `cached` or `failed`; empty for a run.
        role: `source`, `input` or `output`.
        data: all that it read and wrote.
    """

    run_id: str
    stage: str
    state: str
    role: str
    started: datetime
    data: tuple[Datum, ...]

    @property
    def inputs(self) -> list[Datum]:
        return [each for each in self.data if each.role == "input"]

    @property
    def outputs(self) -> list[Datum]:
        return [each for each in self.data if each.role == "output"]


@dataclass(frozen=True)
class Lineage:
    """A source or dataset with its neighbours.

    Args:
        digest: as records have it.
        datum: its name and place, by the latest record.
        makers: stages that have it as their dataset, those that computed it first.
        readers: stages that read it.
        runs: runs that were given it as a source.
        models: versions of models that were made from it, or are it.
    """

    digest: str
    datum: Datum
    makers: tuple[Use, ...]
    readers: tuple[Use, ...]
    runs: tuple[Use, ...]
    models: tuple[Version, ...]


def lineage(client: MlflowClient, digest: str, versions: Iterable[Version]) -> Lineage | None:
    """Lineage of the data with this digest; None where no record has it."""
    if not is_digest(digest) and not _is_short(digest):
        return None
    key, experiment = digest[:DIGEST_LENGTH], client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return None
    found = client.search_runs(
        [experiment.experiment_id], f"dataset.digest = '{key}'", ViewType.ACTIVE_ONLY, MOST_USES,
        order_by=["attributes.start_time DESC"],
    )  # fmt: skip
    uses = [_use(run, key) for run in found]
    if not uses:
        return None
    datum = next(each for use in uses for each in use.data if each.digest == key)
    made = [each for each in uses if each.role == "output"]
    return Lineage(
        key, datum, makers=tuple(sorted(made, key=lambda each: each.state != "ran")),
        readers=tuple(each for each in uses if each.role == "input"),
        runs=tuple(each for each in uses if each.role == "source"),
        models=tuple(each for each in versions if _rests_on(each, key)),
    )  # fmt: skip


def _is_short(digest: str) -> bool:
    return len(digest) == DIGEST_LENGTH and set(digest) <= set("0123456789abcdef")


def _use(run: Any, key: str) -> Use:
    tags, data = run.data.tags, data_of(run)
    roles: Sequence[str] = [each.role for each in data if each.digest == key]
    return Use(
        run_id=tags.get(MLFLOW_PARENT_RUN_ID, run.info.run_id) if STAGE_TAG in tags else run.info.run_id,
        stage=tags.get(STAGE_TAG, ""), state=tags.get(STATE_TAG, ""), role=roles[0] if roles else "",
        started=datetime.fromtimestamp(run.info.start_time / 1000, UTC), data=data,
    )  # fmt: skip


def _rests_on(version: Version, key: str) -> bool:
    digests = (version.digest, *version.data.values(), *version.datasets.values())
    return any(each[:DIGEST_LENGTH] == key for each in digests)
