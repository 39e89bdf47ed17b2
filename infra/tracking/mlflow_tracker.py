"""Runs in MLflow: one for each execution, a nested one for each stage."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.masking import masked, without_user
from superworkflow.infra.contract.metrics import METRICS_TAG, metrics_text
from superworkflow.infra.contract.outcomes import Model
from superworkflow.infra.process.exit_status import Reason
from superworkflow.infra.process.heartbeat import Heartbeat, signature
from superworkflow.infra.process.identity import user_name
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import METRIC_PREFIX, WARNING_PREFIX
from superworkflow.infra.tracking.base import Tracker
from superworkflow.infra.tracking.decision import Decision
from superworkflow.infra.tracking.links import MLFLOW_VARIABLE
from superworkflow.infra.tracking.metric_keys import (
    CACHED_TAG,
    TOTALS,
    course_key,
    drift_keys,
    quality_keys,
    stage_keys,
    total_keys,
)
from superworkflow.infra.tracking.reachability import check_listens
from superworkflow.infra.tracking.records import RunRecord, StageRecord, Used
from superworkflow.infra.tracking.run_columns import show_columns
from superworkflow.infra.tracking.run_description import description
from superworkflow.infra.tracking.tables import making_tables
from superworkflow.infra.tracking.tags import (
    BEHIND,
    DATASETS_TAG,
    DEPLOYMENT_ID_TAG,
    DIGEST_TAG,
    DRAWN_TAG,
    IN_PROGRESS,
    INPUTS_TAG,
    LAST_TAG,
    LOGS,
    OUTCOME_TAG,
    PANELS,
    PANELS_TAG,
    SHORT,
    STAGE_TAG,
    STATE_TAG,
    SUPERWORKFLOW_TAG,
    TIMES_TAG,
    UNCHANGED,
    read_datasets,
    with_short,
)
from superworkflow.infra.tracking.uris import EXPERIMENT, sqlite_path

# Set before MLflow is imported: it reads them then.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# A run prints its own addresses, once; MLflow would print two lines as each stage ends.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import (
    MLFLOW_PARENT_RUN_ID,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_USER,
)

from superworkflow.infra.tracking.artifacts import find_drawn
from superworkflow.infra.tracking.concurrent_writes import among_rivals
from superworkflow.infra.tracking.database_checks import check_database, check_experiment, older_schema
from superworkflow.infra.tracking.dead_runs import ERROR_TAG, close_dead_runs, give_sign
from superworkflow.infra.tracking.entities import BATCH, as_inputs, as_metrics, as_outputs, as_params, course_metrics

if TYPE_CHECKING:
    from superworkflow.infra.tracking.models import ModelRegistry
    from superworkflow.infra.tracking.registry import RegisteredModel

# The creation of a new database's tables is not worth a line.
for _name in ("mlflow.store.db.utils", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)

P = ParamSpec("P")
T = TypeVar("T")

_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag by which MLflow lists an experiment as one of model training."""
_NOTE_LENGTH = 5000


def open_client(uri: str) -> MlflowClient:
    """A client of this tracking URI.

    Raises:
        UserError: the database or server cannot be reached.
    """
    # A minute of waiting in all: a server that starts anew in the middle of a run is no failure of the run. MLflow asks
    # again after 408, 429, 500, 502, 503, 504 and connections that break.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    try:
        check_listens(uri)  # a server that is down at the beginning is reported at once
        check_database(uri)
        with making_tables(uri):
            client = MlflowClient(uri)
            client.search_experiments(max_results=1)
    except UserError:
        raise
    except Exception as error:  # SQLAlchemy, requests and MLflow each raise their own
        raise older_schema(uri, error) or UserError(
            f"MLflow cannot be reached: {_detail(error)}",
            where=uri,
            remedy="Start the server, correct MLFLOW_TRACKING_URI, or run with --no-tracking",
        ) from None
    return client


def _detail(error: Exception) -> str:
    """First line of a client's error. Masked before it is cut: half a URL is not recognised as one."""
    words = masked(str(error)).strip()
    return words.splitlines()[0][:300] if words else type(error).__name__


def _errors_explained(work: Callable[Concatenate[MlflowTracker, P], T]) -> Callable[Concatenate[MlflowTracker, P], T]:
    """Decorator: errors of the database or server become one sentence."""

    @functools.wraps(work)
    def method(self: MlflowTracker, /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return work(self, *given, **named)
        except SuperworkflowError:
            raise
        except Exception as error:  # SQLAlchemy, requests and MLflow each raise their own
            raise SuperworkflowError(f"{self.uri}: MLflow cannot record this run: {_detail(error)}") from None

    return method


class MlflowTracker(Tracker):
    """Records in MLflow through its client, without global state, so that one process can have several runs.

    Args:
        uri: tracking URI.
        experiment: name of the experiment; made when missing.
        parent: id of the run below which this one is, such as a sweep's.
    """

    def __init__(self, uri: str, experiment: str = EXPERIMENT, parent: str | None = None):
        self.uri, self.experiment, self._parent = uri, experiment, parent
        self._client = open_client(uri)
        self._experiment_id = self._experiment()
        self._run_id = ""
        self._cached: list[str] = []
        self._turn = threading.Lock()
        self._heart: Heartbeat | None = None

    @property
    def run_id(self) -> str:
        return self._run_id

    def handle(self) -> tuple[MlflowClient, str]:
        """The client and the id of the experiment."""
        return self._client, self._experiment_id

    @_errors_explained
    def begin(self, name: str, superworkflow: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Open the parent run; see `Tracker`."""
        own = {SUPERWORKFLOW_TAG: superworkflow, **author_tags(superworkflow), **signature()}
        if self._parent:
            own[MLFLOW_PARENT_RUN_ID] = self._parent
        first = {SHORT[OUTCOME_TAG]: IN_PROGRESS}
        run = self._client.create_run(self._experiment_id, run_name=name, tags=first | with_short({**tags, **own}))
        self._run_id = str(run.info.run_id)
        self._heart = Heartbeat(lambda: give_sign(self._client, self._run_id), self._close_dead)
        self._client.log_batch(self._run_id, params=as_params(params))
        return self._run_id

    @_errors_explained
    def sources(self, given: Sequence[Used]) -> None:
        """Record the run's sources as MLflow's datasets; see `Tracker`."""
        self._log_inputs(self._run_id, as_inputs(given, "source"))

    def _log_inputs(self, run_id: str, inputs: Sequence[DatasetInput]) -> None:
        among_rivals(lambda: self._client.log_inputs(run_id, inputs))

    def _close_dead(self) -> None:
        if not self._parent:  # a sweep's trials need not all look for them
            close_dead_runs(self._client, self._experiment_id)

    @_errors_explained
    def stage(self, record: StageRecord) -> None:
        """Record one stage as a nested run, and its runtime and cost on the parent; see `Tracker`."""
        tags = {
            MLFLOW_PARENT_RUN_ID: self._run_id,
            STAGE_TAG: record.name,
            STATE_TAG: record.state,
            DIGEST_TAG: record.digest,
            "superworkflow.output": record.output,
            **({"superworkflow.image": record.image} if record.image else {}),
            **({ERROR_TAG: record.error[:5000]} if record.error else {}),
            **({"superworkflow.attempts": json.dumps(record.attempts)[:5000]} if record.attempts else {}),
            **{
                f"superworkflow.{WARNING_PREFIX}{number}": text[:5000] for number, text in enumerate(record.warnings, 1)
            },
        }
        start = int((record.ended - record.runtime_s - record.compile_s) * 1000)
        run = self._client.create_run(self._experiment_id, run_name=record.name, start_time=start, tags=tags)
        stats = {f"stat/{name}": value for name, value in record.stats.items() if not name.startswith(METRIC_PREFIX)}
        figures = {
            "seconds": record.runtime_s,
            "queued_seconds": record.queued_s,
            "cpu_seconds": record.cpu_s,
            "peak_memory_bytes": record.peak_memory_bytes,
            **({"compile_seconds": record.compile_s} if record.compile_s else {}),
            "rows": record.rows,
            "bytes": record.bytes,
            "rows_per_second": record.rows_per_s,
            "cost_usd": record.cost_usd,
            "saved_usd": record.saved_usd,
            **({"attempts": len(record.attempts)} if record.attempts else {}),
            **record.figures,
            **{name: value for name, value in stats.items() if isinstance(value, int | float)},
            **record.metrics,
        }
        resources = {f"resources.{key}": value for key, value in record.resources.model_dump(mode="json").items()}
        self._client.log_batch(
            run.info.run_id, metrics=as_metrics(figures), params=as_params({**record.params, **resources})
        )
        self._log_inputs(run.info.run_id, [*as_inputs(record.inputs, "input"), *as_outputs(record)])
        cancelled = bool(record.attempts) and record.attempts[-1]["reason"] == Reason.CANCELLED.value
        status = "FINISHED" if record.state != "failed" else "KILLED" if cancelled else "FAILED"
        self._client.set_terminated(run.info.run_id, status=status, end_time=int(record.ended * 1000))
        if record.log:
            self._client.log_text(self._run_id, "\n".join(record.log) + "\n", f"{LOGS}/{record.name}.txt")
        # On the parent as well: MLflow compares and charts top-level runs.
        if record.state == "cached":
            with self._turn:  # stages end side by side
                self._cached.append(record.name)
                self._client.set_tag(self._run_id, CACHED_TAG, json.dumps(sorted(self._cached)))
        if record.state != "cached" or record.runtime_s:  # one that waited for another run has cost all the same
            self._client.log_batch(self._run_id, metrics=as_metrics(stage_keys(record.name, record.took)))
        for run_id, begin in ((run.info.run_id, ""), (self._run_id, course_key(record.name, ""))):
            points = course_metrics(record.course, begin)
            for first in range(0, len(points), BATCH):
                self._client.log_batch(run_id, metrics=points[first : first + BATCH])

    @_errors_explained
    def picture(self, path: Path) -> None:
        """Attach a picture; see `Tracker`."""
        self._client.log_artifact(self._run_id, str(path), "pictures")

    @_errors_explained
    def panels(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Attach each as `panels/<name>.json`, and name them in a tag; see `Tracker`."""
        for each in documents:
            self._client.log_text(self._run_id, json.dumps(each), f"{PANELS}/{each['name']}.json")
        if documents:
            named = {each["name"]: each["title"] for each in documents}
            self._client.set_tag(self._run_id, PANELS_TAG, json.dumps(named)[:5000])

    @_errors_explained
    def drew(self, keys: Mapping[str, str]) -> None:
        """Keys in a tag; see `Tracker`."""
        if keys and len(text := json.dumps(keys)) <= 5000:
            self._client.set_tag(self._run_id, DRAWN_TAG, text)

    @_errors_explained
    def drawn(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        """From the newest runs with the keys in their tag; see `Tracker`."""
        return find_drawn(self._client, self._experiment_id, keys)

    @_errors_explained
    def report(self, path: Path) -> None:
        """Attach a page; see `Tracker`."""
        self._client.log_artifact(self._run_id, str(path))

    def model(self, dataset: Dataset, model: Model, name: str, tags: Mapping[str, str]) -> RegisteredModel:
        """Register the dataset as a model of this run; see `Tracker`."""
        from superworkflow.infra.tracking.registry import register

        return register(dataset, model, name=name, run_id=self._run_id, tracking_uri=self.uri, tags=tags)

    def registry(self) -> ModelRegistry:
        """The registry of the same server or database; see `Tracker`."""
        from superworkflow.infra.tracking.models import ModelRegistry

        return ModelRegistry(self.uri)

    @_errors_explained
    def decided(self, decision: Decision) -> None:
        """Tags and figures on the run; see `Tracker`."""
        tags = {OUTCOME_TAG: decision.verdict, "superworkflow.decision": str(decision), "superworkflow.model": (
            f"{decision.name}/{decision.version}")}  # fmt: skip
        figures = {f"promotion/{name}": value for name, value in decision.figures.items() if math.isfinite(value)}
        self._client.log_batch(
            self._run_id,
            metrics=as_metrics(figures),
            tags=[RunTag(name, text[:5000]) for name, text in with_short(tags).items()],
        )

    @_errors_explained
    def last_inputs(self, deployment: str) -> str:
        """From the newest finished run with the deployment's tag; see `Tracker`."""
        found = self._newest("attributes.status = 'FINISHED'", deployment)
        return str(found.data.tags.get(INPUTS_TAG, "")) if found else ""

    @_errors_explained
    def last_datasets(self, deployment: str) -> dict[str, str]:
        """From the newest finished run with the deployment's tag that has them; see `Tracker`."""
        found = self._newest(f"attributes.status = 'FINISHED' and tags.`{DATASETS_TAG}` != ''", deployment)
        return read_datasets(found.data.tags.get(DATASETS_TAG, "")) if found else {}

    @_errors_explained
    def unchanged(self, name: str, superworkflow: str, tags: Mapping[str, str]) -> None:
        """A run of no length, or that of the last night once more, if it was today and unchanged too; see `Tracker`."""
        now = datetime.now(UTC)
        today = int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
        found = self._newest(f"attributes.start_time >= {today}", tags[DEPLOYMENT_ID_TAG])
        if found is not None and found.data.tags.get(OUTCOME_TAG) == UNCHANGED:
            run_id, times = found.info.run_id, found.data.tags.get(TIMES_TAG, "1")
            self._client.set_tag(run_id, TIMES_TAG, str(int(times) + 1 if times.isdecimal() else 2))
            self._client.set_tag(run_id, LAST_TAG, now.isoformat(timespec="seconds"))
            for key, text in with_short({BEHIND: tags[BEHIND]} if BEHIND in tags else {}).items():
                self._client.set_tag(run_id, key, text[:5000])
            self._saved(run_id, tags[DEPLOYMENT_ID_TAG], int(times) + 1 if times.isdecimal() else 2)
            return
        own = {SUPERWORKFLOW_TAG: superworkflow, OUTCOME_TAG: UNCHANGED, TIMES_TAG: "1", **author_tags(superworkflow)}
        run = self._client.create_run(self._experiment_id, run_name=name, tags=with_short({**own, **tags}))
        self._saved(run.info.run_id, tags[DEPLOYMENT_ID_TAG], 1)
        self._client.set_terminated(run.info.run_id)

    @_errors_explained
    def spent(self, deployment: str, since: datetime) -> float:
        """Sum of the costs on its runs; see `Tracker`."""
        which = f"attributes.start_time >= {int(since.timestamp() * 1000)} "
        which += f"and tags.`{DEPLOYMENT_ID_TAG}` = '{UUID(deployment)}'"
        found, token = 0.0, None
        while True:
            part = self._client.search_runs([self._experiment_id], which, page_token=token)
            found += sum(run.data.metrics.get(TOTALS["cost_usd"], 0.0) for run in part)
            if not (token := part.token):
                return found

    def _saved(self, run_id: str, deployment: str, times: int) -> None:
        """Record the cost that runs with nothing to do have saved: each time that of the last one with work to do."""
        last = self._newest(f"attributes.status = 'FINISHED' and metrics.`{TOTALS['cost_usd']}` >= 0", deployment)
        if last is not None:
            costs = (last.data.metrics.get(TOTALS[name], 0.0) for name in ("cost_usd", "saved_by_cache_usd"))
            saved = {TOTALS["saved_by_cache_usd"]: times * sum(costs)}
            self._client.log_batch(run_id, metrics=as_metrics(saved))

    def _newest(self, which: str, deployment: str) -> Run | None:
        """Newest run of a deployment with its own parameters that passes this filter."""
        which += f" and tags.`{DEPLOYMENT_ID_TAG}` = '{UUID(deployment)}' and tags.`{INPUTS_TAG}` != ''"
        order = ["attributes.start_time DESC"]
        found = self._client.search_runs([self._experiment_id], which, max_results=1, order_by=order)
        return found[0] if found else None

    @_errors_explained
    def finish(self, run: RunRecord) -> None:
        """Totals and quality on the parent; see `Tracker`."""
        self._end("FINISHED", run=run)
        among_rivals(lambda: show_columns(self._client, self._experiment_id, run))

    @_errors_explained
    def fail(self, message: str, run: RunRecord | None = None) -> None:
        """Close the parent as failed; see `Tracker`."""
        self._end("FAILED", message, run)

    @_errors_explained
    def stop(self, message: str, run: RunRecord | None = None) -> None:
        """Close the parent as killed, which MLflow's pages show unlike failed; see `Tracker`."""
        self._end("KILLED", message, run)

    def _totals(self, run: RunRecord, error: str) -> None:
        figures = total_keys(run.totals()) | quality_keys(run.metrics) | drift_keys(run.drift)
        tags = [RunTag("superworkflow.flow_run_id", run.flow_run_id), RunTag("superworkflow.store", run.store)]
        tags.append(RunTag(MLFLOW_RUN_NOTE, description(run, error)[:_NOTE_LENGTH]))
        if run.declared:  # those of a champion that was scored again are known only now
            tags.append(RunTag(METRICS_TAG, metrics_text(run.declared)))
        self._client.log_batch(self._run_id, metrics=as_metrics(figures), tags=tags)

    def _end(self, status: str, message: str = "", run: RunRecord | None = None) -> None:
        if self._heart is not None:
            self._heart.stop()
        if self._run_id:
            if message:
                self._client.set_tag(self._run_id, ERROR_TAG, message[:5000])
            if run is None or not run.decisions:
                self._client.set_tag(self._run_id, SHORT[OUTCOME_TAG], status.lower())
            if run is not None:
                self._totals(run, message)
            self._client.set_terminated(self._run_id, status=status)

    def url(self) -> str | None:
        """Address of the run's page; see `Tracker`."""
        return page_of_run(self.uri, self._experiment_id, self._run_id)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is not None:
            check_experiment(found, self.uri)
            if not _KIND.keys() & found.tags.keys():  # made by an earlier version
                for key, value in _KIND.items():
                    among_rivals(functools.partial(self._client.set_experiment_tag, found.experiment_id, key, value))
            return str(found.experiment_id)
        path = sqlite_path(self.uri)
        artifacts = None if path is None else (path.parent / "artifacts").as_uri()
        try:
            made = self._client.create_experiment(self.experiment, artifact_location=artifacts, tags=_KIND)
            return str(made)
        except MlflowException:  # another run made it between the two calls
            found = self._client.get_experiment_by_name(self.experiment)
            if found is None:
                raise
            return str(found.experiment_id)


def page_of_run(uri: str, experiment: str, run: str) -> str:
    """Address of a run's page, on the configured server or on a local one at its usual port."""
    base = without_user(uri) if uri.startswith("http") else "http://127.0.0.1:5000"
    base = without_user(os.environ.get(MLFLOW_VARIABLE, "")) or base
    # Without the last part MLflow's pages show what is for prompts and traces, until somebody has switched them.
    return f"{base.rstrip('/')}/#/experiments/{experiment}/runs/{run}?workflowType=machine_learning"


def author_tags(source: str) -> dict[str, str]:
    """Tags by which MLflow's pages show who ran what."""
    return {MLFLOW_USER: user_name(), MLFLOW_SOURCE_NAME: source}
