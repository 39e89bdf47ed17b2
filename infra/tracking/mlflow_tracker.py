"""Runs in MLflow: one for each execution, a nested one for each stage."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import requests

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.tracking.metric_keys import TOTALS
from superworkflow.infra.tracking.records import RunRecord, Used
from superworkflow.infra.tracking.run_columns import new_view, view_tag
from superworkflow.infra.tracking.run_tracker import (
    Attached,
    Figure,
    RunTracker,
    author_tags,
    cut,
    dataset_columns,
    error_line,
    errors_explained,
)
from superworkflow.infra.tracking.tables import making_tables
from superworkflow.infra.tracking.tags import (
    BEHIND,
    DATASETS_TAG,
    DEPLOYMENT_ID_TAG,
    DRAWN_TAG,
    EXPERIMENT_KIND,
    INPUTS_TAG,
    LAST_TAG,
    OUTCOME_TAG,
    ROLE_TAG,
    SUPERWORKFLOW_TAG,
    TIMES_TAG,
    UNCHANGED,
    read_datasets,
    read_times,
    with_short,
)
from superworkflow.infra.tracking.uris import EXPERIMENT, artifact_folder, sqlite_path

# Set before MLflow is imported: it reads them then.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# A run prints its own addresses, once; MLflow would print two lines as each stage ends.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow import MlflowClient
from mlflow.entities import Dataset as MlflowDataset
from mlflow.entities import DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from superworkflow.infra.tracking.artifacts import read_artifact
from superworkflow.infra.tracking.concurrent_writes import among_rivals
from superworkflow.infra.tracking.database_checks import check_database, check_experiment, older_schema
from superworkflow.infra.tracking.dead_runs import close_dead_runs, give_sign
from superworkflow.infra.tracking.search_pages import all_pages

# The creation of a new database's tables is not worth a line; errors of a database are raised as well as logged.
logging.getLogger("alembic").setLevel(logging.WARNING)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)

_BATCH = 1000
"""Most metrics of one call."""
_RETRIES = "5"
"""Retries of a run that someone starts; deployed runs and other settings have other numbers."""


def open_client(uri: str) -> MlflowClient:
    """A client of this tracking URI.

    Raises:
        UserError: the database or server cannot be reached.
    """
    # A minute of waiting in all: a server that starts anew in the middle of a run is no failure of the run. MLflow asks
    # again after 408, 429, 500, 502, 503, 504 and connections that break.
    retries = os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", _RETRIES)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    try:
        if retries == _RETRIES:  # a server that is down at the beginning is reported at once, but to deployed runs
            _check_listens(uri)
        check_database(uri)
        with making_tables(uri):
            client = MlflowClient(uri)
            client.search_experiments(max_results=1)
    except UserError:
        raise
    except Exception as error:  # SQLAlchemy, requests and MLflow each raise their own
        raise older_schema(uri, error) or UserError(
            f"MLflow cannot be reached: {error_line(error)}",
            where=uri,
            remedy="Start the server, correct MLFLOW_TRACKING_URI, free space, or run with --no-tracking",
        ) from None
    return client


class MlflowTracker(RunTracker):
    """Records in MLflow through its client, without global state, so that one process can have several runs.

    Args:
        uri: tracking URI.
        parent: id of the run below which this one is, such as a sweep's.
    """

    def __init__(self, uri: str, parent: str | None = None):
        self.uri = uri
        self._client = open_client(uri)
        super().__init__(uri, self._experiment(), parent)

    def handle(self) -> tuple[MlflowClient, str]:
        """The client and the id of the experiment."""
        return self._client, self._experiment_id

    def _create(self, name: str, tags: Mapping[str, str], began_ms: int | None = None) -> str:
        made = self._client.create_run(self._experiment_id, run_name=name, start_time=began_ms, tags=cut(tags))
        return str(made.info.run_id)

    def _log(
        self, run_id: str, params: Mapping[str, str] = {}, figures: Sequence[Figure] = (), tags: Mapping[str, str] = {}
    ) -> None:
        first, rest = _as_metrics(figures[:_BATCH]), figures[_BATCH:]
        named = [Param(name, text) for name, text in cut(params).items()]
        self._client.log_batch(run_id, first, named, [RunTag(name, text) for name, text in cut(tags).items()])
        for begin in range(0, len(rest), _BATCH):
            self._client.log_batch(run_id, _as_metrics(rest[begin : begin + _BATCH]))

    def _log_inputs(self, run_id: str, given: Sequence[tuple[Used, str]]) -> None:
        among_rivals(lambda: self._client.log_inputs(run_id, _as_inputs(given)))

    def _terminate(self, run_id: str, status: str, ended_ms: int | None = None) -> None:
        self._client.set_terminated(run_id, status, ended_ms)

    def _attach(self, source: Path | str, path: str) -> None:
        if isinstance(source, str):
            self._client.log_text(self._run_id, source, path)
        else:
            self._client.log_artifact(self._run_id, str(source), str(Path(path).parent) if "/" in path else None)

    def _drew(self, key: str) -> Iterator[Attached]:
        which, order = f"tags.`{DRAWN_TAG}` LIKE '%{key}%'", ["attributes.start_time DESC"]
        for run in self._client.search_runs([self._experiment_id], which, max_results=1, order_by=order):
            read = functools.partial(read_artifact, self._client, run.info.run_id, root=run.info.artifact_uri or "")
            yield run.data.tags.get(DRAWN_TAG, ""), read

    def _show_columns(self, run: RunRecord) -> None:
        tag = view_tag(run.superworkflow)

        def show() -> None:
            text = new_view(self._client.get_experiment(self._experiment_id).tags.get(tag, ""), run)
            if text is not None:
                self._client.set_experiment_tag(self._experiment_id, tag, text)

        among_rivals(show)

    def _give_sign(self) -> None:
        give_sign(self._client, self._run_id)

    def _close_dead(self) -> None:
        close_dead_runs(self._client, self._experiment_id)

    @errors_explained
    def last_inputs(self, deployment: str) -> str:
        """From the newest finished run with the deployment's tag; see `Tracker`."""
        found = self._newest("attributes.status = 'FINISHED'", deployment)
        return str(found.data.tags.get(INPUTS_TAG, "")) if found else ""

    @errors_explained
    def last_datasets(self, deployment: str) -> dict[str, str]:
        """From the newest finished run with the deployment's tag that has them; see `Tracker`."""
        found = self._newest(f"attributes.status = 'FINISHED' and tags.`{DATASETS_TAG}` != ''", deployment)
        return read_datasets(found.data.tags.get(DATASETS_TAG, "")) if found else {}

    @errors_explained
    def unchanged(self, name: str, superworkflow: str, tags: Mapping[str, str]) -> None:
        """A run of no length, or that of the last night once more, if it was today and unchanged too; see `Tracker`."""
        now = datetime.now(UTC)
        today = int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
        found = self._newest(f"attributes.start_time >= {today}", tags[DEPLOYMENT_ID_TAG])
        if found is not None and found.data.tags.get(OUTCOME_TAG) == UNCHANGED:
            run_id, times = found.info.run_id, read_times(found.data.tags) + 1
            late = with_short({BEHIND: tags[BEHIND]} if BEHIND in tags else {})
            self._log(run_id, tags={TIMES_TAG: str(times), LAST_TAG: now.isoformat(timespec="seconds"), **late})
            self._saved(run_id, tags[DEPLOYMENT_ID_TAG], times)
            return
        own = {SUPERWORKFLOW_TAG: superworkflow, OUTCOME_TAG: UNCHANGED, TIMES_TAG: "1", **author_tags(superworkflow)}
        run = self._client.create_run(self._experiment_id, run_name=name, tags=with_short({**own, **tags}))
        self._saved(run.info.run_id, tags[DEPLOYMENT_ID_TAG], 1)
        self._client.set_terminated(run.info.run_id)

    @errors_explained
    def spent(self, deployment: str, since: datetime) -> float:
        """Sum of the costs on its runs; see `Tracker`."""
        which = f"attributes.start_time >= {int(since.timestamp() * 1000)} "
        which += f"and tags.`{DEPLOYMENT_ID_TAG}` = '{UUID(deployment)}'"
        runs = all_pages(lambda token: self._client.search_runs([self._experiment_id], which, page_token=token))
        return float(sum(run.data.metrics.get(TOTALS["cost_usd"], 0.0) for run in runs))

    def _saved(self, run_id: str, deployment: str, times: int) -> None:
        """Record the cost that runs with nothing to do have saved: each time that of the last one with work to do."""
        last = self._newest(f"attributes.status = 'FINISHED' and metrics.`{TOTALS['cost_usd']}` >= 0", deployment)
        if last is not None:
            costs = (last.data.metrics.get(TOTALS[name], 0.0) for name in ("cost_usd", "saved_by_cache_usd"))
            saved = {TOTALS["saved_by_cache_usd"]: times * sum(costs)}
            self._log(run_id, figures=[(key, value, 0) for key, value in saved.items()])

    def _newest(self, which: str, deployment: str) -> Run | None:
        """Newest run of a deployment with its own parameters that passes this filter."""
        which += f" and tags.`{DEPLOYMENT_ID_TAG}` = '{UUID(deployment)}' and tags.`{INPUTS_TAG}` != ''"
        order = ["attributes.start_time DESC"]
        found = self._client.search_runs([self._experiment_id], which, max_results=1, order_by=order)
        return found[0] if found else None

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            check_experiment(found, self.uri)
            if not EXPERIMENT_KIND.keys() & found.tags.keys():  # made by an earlier version
                for key, value in EXPERIMENT_KIND.items():
                    among_rivals(functools.partial(self._client.set_experiment_tag, found.experiment_id, key, value))
            return str(found.experiment_id)
        path = sqlite_path(self.uri)
        artifacts = None if path is None else artifact_folder(path)
        try:
            made = self._client.create_experiment(EXPERIMENT, artifact_location=artifacts, tags=EXPERIMENT_KIND)
            return str(made)
        except MlflowException:  # another run made it between the two calls
            found = self._client.get_experiment_by_name(EXPERIMENT)
            if found is None:
                raise
            return str(found.experiment_id)


def _check_listens(uri: str) -> None:
    """Raise where no server listens, before the client, which would wait for one; its answers are left to it."""
    if not uri.startswith(("http://", "https://")):
        return
    for left in (1, 0):
        try:
            requests.get(f"{uri.rstrip('/')}/health", timeout=20, stream=True).close()
        except requests.exceptions.SSLError:  # the client knows which certificates to trust
            return
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout):
            if not left:
                raise
        else:
            return


def _as_inputs(given: Sequence[tuple[Used, str]]) -> list[DatasetInput]:
    found = []
    for each, role in given:
        name, digest, kind, source, profile = dataset_columns(each)
        dataset = MlflowDataset(name, digest, kind, source, profile=profile)
        found.append(DatasetInput(dataset, [InputTag(ROLE_TAG, role)]))
    return found


def _as_metrics(figures: Sequence[Figure]) -> list[Metric]:
    now = int(time.time() * 1000)
    return [Metric(key, value, now, step) for key, value, step in figures]
