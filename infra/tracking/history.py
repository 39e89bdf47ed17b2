"""Recorded runs, read back from MLflow."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.metrics import METRICS_TAG, Metric, read_metrics
from superworkflow.infra.storage.location import Location
from superworkflow.infra.tracking.metric_keys import read_cached, read_keys
from superworkflow.infra.tracking.run_filter import RunFilter, own_tags, parse_tag
from superworkflow.infra.tracking.sqlite_runs import can_read, has_dead, read_runs
from superworkflow.infra.tracking.tags import NOTE_TAG, OUTCOME_TAG, SHORT, SUPERWORKFLOW_TAG, read_times
from superworkflow.infra.tracking.uris import EXPERIMENT, check_recorded, default_tracking_uri, sqlite_path

if TYPE_CHECKING:
    from superworkflow.infra.tracking.models import ModelRegistry

_PAGE = 200
"""Runs read at a time where a filter has conditions that MLflow cannot check."""


@dataclass(frozen=True)
class RecordedRun:
    """One run as recorded.

    Args:
        status: `FINISHED`, `FAILED`, `RUNNING` or `KILLED`.
        metrics: quality by node, under the names that runs report (`evaluate.f1@0.5`).
        declared: which metrics judge it.
        stages: `seconds`, `cost_usd`, `peak_memory_bytes` and `cached` of each stage by its name.
        totals: totals of the run by name.
        sources: digest of each source by its name, as far as MLflow keeps it.
        outcome: what became of its model, or `unchanged`; empty where it registered none.
        tags: by name.
    """

    run_id: str
    name: str
    superworkflow: str
    status: str
    started: datetime
    params: dict[str, str]
    metrics: dict[str, float]
    stages: dict[str, dict[str, float]]
    totals: dict[str, float]
    declared: tuple[Metric, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    outcome: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def times(self) -> int:
        """Number of runs of a day that had nothing to do, which are recorded as one."""
        return read_times(self.tags)

    @property
    def note(self) -> str:
        return self.tags.get(NOTE_TAG, "")

    @property
    def own_tags(self) -> dict[str, str]:
        """Tags that people have given."""
        return own_tags(self.tags)


def open_registry(store: Location | str) -> ModelRegistry:
    """The registry of the runs that are recorded for a store.

    Raises:
        UserError: it cannot be reached, or its database does not exist.
    """
    from superworkflow.infra.tracking.mlflow_tracker import open_client
    from superworkflow.infra.tracking.models import ModelRegistry

    uri = default_tracking_uri(store)
    check_recorded(uri)
    open_client(uri)
    return ModelRegistry(uri)


def recorded_runs(uri: str, limit: int = 50, which: RunFilter | None = None) -> list[RecordedRun]:
    """Runs that pass the filter, newest first.

    Runs whose processes have died are closed first, where the records can be written.

    Raises:
        UserError: the tracker cannot be reached, or its database does not exist.
    """
    which = which or RunFilter()
    check_recorded(uri)
    which.query()  # refuses what MLflow's search cannot take, also where it does not read
    if limit <= 0:
        return []
    database = sqlite_path(uri)
    try:
        found: Iterator[RecordedRun]
        if database is not None and can_read(database) and not has_dead(database):
            found = map(recorded_run, read_runs(database, limit, which, limit))
        else:
            found = _read_by_mlflow(uri, limit, which)
        return list(islice(found, limit))
    except sqlite3.Error as error:
        raise UserError(f"the database cannot be read: {error}", where=uri, remedy="Try again") from None


def _read_by_mlflow(uri: str, limit: int, which: RunFilter) -> Iterator[RecordedRun]:
    from mlflow.entities import ViewType

    from superworkflow.infra.tracking.dead_runs import close_dead_runs
    from superworkflow.infra.tracking.mlflow_tracker import open_client
    from superworkflow.infra.tracking.search_pages import all_pages

    client = open_client(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return
    with contextlib.suppress(Exception):  # who may only read the records sees them as they are
        close_dead_runs(client, experiment.experiment_id)
    query = " and ".join(filter(None, [f"tags.`{SUPERWORKFLOW_TAG}` != ''", which.query()]))
    size, order = limit if not which else max(limit, _PAGE), ["attributes.start_time DESC"]
    found = all_pages(lambda token: client.search_runs(
        [experiment.experiment_id], query, ViewType.ACTIVE_ONLY, size, order, token
    ))  # fmt: skip
    yield from filter(which.matches, map(recorded_run, found))


def annotate(
    uri: str, run_id: str, note: str | None, tags: Sequence[str] = (), removed: Sequence[str] = ()
) -> tuple[str, dict[str, str]]:
    """Set the note and tags of a run; its note and own tags then.

    Args:
        uri: tracking URI.
        run_id: of the run.
        note: None leaves it, an empty one removes it.
        tags: to set, `NAME` or `NAME=VALUE`.
        removed: names of tags to remove.

    Raises:
        UserError: a tag that is not the user's.
    """
    from superworkflow.infra.tracking.mlflow_tracker import open_client

    client, added = open_client(uri), dict(map(parse_tag, tags))
    gone = [parse_tag(name)[0] for name in removed]
    for name in {*added, *gone} & {*SHORT.values()}:
        raise UserError("a tag that runs set themselves", where="--tag", value=name, remedy="Choose another name")
    for name, value in added.items():
        client.set_tag(run_id, name, value)
    existing = client.get_run(run_id).data.tags
    for name in gone:
        if name in existing:
            client.delete_tag(run_id, name)
    if note:
        client.set_tag(run_id, NOTE_TAG, note[:5000])
    elif note is not None and NOTE_TAG in existing:
        client.delete_tag(run_id, NOTE_TAG)
    now = client.get_run(run_id).data.tags
    return now.get(NOTE_TAG, ""), own_tags(now)


def find_run(uri: str, name: str) -> RecordedRun:
    """A run by its id, the beginning of its id, or its name (the newest of that name).

    Raises:
        UserError: none, or several ids begin so.
    """
    runs = recorded_runs(uri, limit=1000)
    matches = [run for run in runs if run.run_id == name] or [run for run in runs if run.name == name][:1]
    matches = matches or [run for run in runs if run.run_id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    problem = "no such run" if not matches else f"{len(matches)} runs have an id that begins so"
    raise UserError(problem, where=uri, value=name, remedy="`superworkflow runs` lists them")


def recorded_run(run: Any) -> RecordedRun:
    """A run of MLflow's as it was recorded."""
    metrics, stages, totals = read_keys(run.data.metrics, read_cached(run.data.tags))
    return RecordedRun(
        run_id=run.info.run_id,
        name=run.info.run_name,
        superworkflow=run.data.tags.get(SUPERWORKFLOW_TAG, ""),
        status=run.info.status,
        started=datetime.fromtimestamp(run.info.start_time / 1000, UTC),
        params=dict(run.data.params),
        metrics=metrics,
        stages=stages,
        totals=totals,
        declared=read_metrics(run.data.tags.get(METRICS_TAG, "")),
        sources={each.dataset.name: each.dataset.digest for each in run.inputs.dataset_inputs},
        outcome=run.data.tags.get(OUTCOME_TAG, ""),
        tags=dict(run.data.tags),
    )
