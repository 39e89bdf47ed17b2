"""Runs as MLflow keeps them: one for each execution, a nested one for each stage. Imports nothing of MLflow."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from superworkflow.infra.base.errors import SuperworkflowError
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
    course_key,
    drift_keys,
    metric_key,
    quality_keys,
    stage_keys,
    total_keys,
)
from superworkflow.infra.tracking.records import DIGEST_LENGTH, RunRecord, StageRecord, Used
from superworkflow.infra.tracking.run_description import description
from superworkflow.infra.tracking.tags import (
    AUTHOR_TAG,
    DESCRIPTION_TAG,
    DIGEST_TAG,
    DRAWN_TAG,
    ERROR_TAG,
    IN_PROGRESS,
    LOGS,
    OUTCOME_TAG,
    PANELS,
    PANELS_TAG,
    PARENT_TAG,
    SHORT,
    SOURCE_TAG,
    STAGE_TAG,
    STATE_TAG,
    STORE_TAG,
    SUPERWORKFLOW_TAG,
    read_texts,
    with_short,
)

if TYPE_CHECKING:
    from superworkflow.infra.tracking.models import ModelRegistry
    from superworkflow.infra.tracking.registry import RegisteredModel

P = ParamSpec("P")
T = TypeVar("T")
Recorder = TypeVar("Recorder", bound="RunTracker")
Figure = tuple[str, float, int]
"""Key, value and step of a metric."""
Attached = tuple[str, Callable[[str], bytes | None]]
"""A run's tag of what it has drawn, and what reads a file among its artifacts."""
_NO_CAUSE = "(raised as a result of"
"""SQLAlchemy's first line of some errors; the cause is in the next one."""
_LONGEST = 5000
"""Characters of a tag or parameter; MLflow's databases keep some more."""


def error_line(error: Exception) -> str:
    """First line of a client's error. Masked before it is cut: half a URL is not recognised as one."""
    lines = [line for line in masked(str(error)).strip().splitlines() if not line.startswith(_NO_CAUSE)]
    return lines[0][:300] if lines else type(error).__name__


def errors_explained(work: Callable[Concatenate[Recorder, P], T]) -> Callable[Concatenate[Recorder, P], T]:
    """Decorator: errors of the database or server become one sentence."""

    @functools.wraps(work)
    def method(self: Recorder, /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return work(self, *given, **named)
        except SuperworkflowError:
            raise
        except Exception as error:  # SQLite, SQLAlchemy, requests and MLflow each raise their own
            raise SuperworkflowError(f"{self.uri}: MLflow cannot record this run: {error_line(error)}") from None

    return method


class RunTracker(Tracker):
    """Records runs and stages as MLflow shows them; subclasses write what it says.

    Args:
        uri: tracking URI.
        experiment_id: of the experiment of all runs.
        parent: id of the run below which this one is, such as a sweep's.
    """

    def __init__(self, uri: str, experiment_id: str, parent: str | None = None):
        self.uri, self._experiment_id, self._parent = uri, experiment_id, parent
        self._run_id = ""
        self._cached: list[str] = []
        self._turn = threading.RLock()
        self._heart: Heartbeat | None = None

    @abstractmethod
    def _create(self, name: str, tags: Mapping[str, str], began_ms: int | None = None) -> str:
        """Add a run that has begun now or then, and return its id."""

    @abstractmethod
    def _log(
        self, run_id: str, params: Mapping[str, str] = {}, figures: Sequence[Figure] = (), tags: Mapping[str, str] = {}
    ) -> None:
        """Add to a run."""

    @abstractmethod
    def _log_inputs(self, run_id: str, given: Sequence[tuple[Used, str]]) -> None:
        """Add data to a run, each with its role."""

    @abstractmethod
    def _terminate(self, run_id: str, status: str, ended_ms: int | None = None) -> None:
        """Close a run that ended now or then."""

    @abstractmethod
    def _attach(self, source: Path | str, path: str) -> None:
        """Add an artifact to the run: a file or a text.

        Args:
            source: a file, or the text.
            path: among the run's artifacts.
        """

    @abstractmethod
    def _drew(self, key: str) -> Iterator[Attached]:
        """The newest run that has this key in its tag, if any has."""

    @abstractmethod
    def _show_columns(self, run: RunRecord) -> None:
        """Make the view of the superworkflow's runs; see `infra.tracking.run_columns`."""

    @abstractmethod
    def _give_sign(self) -> None:
        """Record a heartbeat of the run, and reopen it where another run has closed it as dead."""

    @abstractmethod
    def _close_dead(self) -> None:
        """Close what dead processes have left running."""

    def _at_once(self) -> AbstractContextManager[None]:
        """Block whose writes may be made together."""
        return contextlib.nullcontext()

    @property
    def run_id(self) -> str:
        return self._run_id

    @errors_explained
    def begin(self, name: str, superworkflow: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Open the parent run; see `Tracker`."""
        own = {SUPERWORKFLOW_TAG: superworkflow, **author_tags(superworkflow), **signature()}
        if self._parent:
            own[PARENT_TAG] = self._parent
        first = {SHORT[OUTCOME_TAG]: IN_PROGRESS}
        with self._at_once():
            self._run_id = self._create(name, first | with_short({**tags, **own}))
            self._log(self._run_id, _texts(params))
        # The trials of a sweep need not all look for dead runs.
        self._heart = Heartbeat(self._give_sign, *(() if self._parent else (self._close_dead,)))
        return self._run_id

    @errors_explained
    def sources(self, given: Sequence[Used]) -> None:
        """Record the run's sources as MLflow's datasets; see `Tracker`."""
        self._log_inputs(self._run_id, [(each, "source") for each in given])

    @errors_explained
    def stage(self, record: StageRecord) -> None:
        """Record one stage as a nested run, and its runtime and cost on the parent; see `Tracker`."""
        self._stage(record)

    @errors_explained
    def stages(self, records: Sequence[StageRecord]) -> None:
        """Record them together where that takes less time; see `Tracker`."""
        with self._turn, self._at_once():
            for each in records:
                self._stage(each)

    def _stage(self, record: StageRecord) -> None:
        tags = {
            PARENT_TAG: self._run_id,
            STAGE_TAG: record.name,
            STATE_TAG: record.state,
            DIGEST_TAG: record.digest,
            "superworkflow.output": record.output,
            **({"superworkflow.image": record.image} if record.image else {}),
            **({ERROR_TAG: record.error} if record.error else {}),
            **({"superworkflow.attempts": json.dumps(record.attempts)} if record.attempts else {}),
            **{f"superworkflow.{WARNING_PREFIX}{number}": text for number, text in enumerate(record.warnings, 1)},
        }
        start = int((record.ended - record.runtime_s - record.compile_s) * 1000)
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
        cancelled = bool(record.attempts) and record.attempts[-1]["reason"] == Reason.CANCELLED.value
        status = "FINISHED" if record.state != "failed" else "KILLED" if cancelled else "FAILED"
        with self._turn, self._at_once():  # stages end side by side
            nested = self._create(record.name, tags, start)
            own = [*_figures(figures), *_course(record.course, "")]
            self._log(nested, _texts({**record.params, **resources}), own)
            self._log_inputs(nested, [*((each, "input") for each in record.inputs), *_output(record)])
            self._terminate(nested, status, int(record.ended * 1000))
            # On the parent as well: MLflow compares and charts top-level runs.
            whole = _course(record.course, course_key(record.name, ""))
            named: dict[str, str] = {}
            if record.state == "cached":
                self._cached.append(record.name)
                named = {CACHED_TAG: json.dumps(sorted(self._cached))}
            if record.state != "cached" or record.runtime_s:  # one that waited for another run has cost all the same
                whole += _figures(stage_keys(record.name, record.took))
            self._log(self._run_id, figures=whole, tags=named)
        if record.log:
            self._attach("\n".join(record.log) + "\n", f"{LOGS}/{record.name}.txt")

    @errors_explained
    def picture(self, path: Path) -> None:
        """Attach a picture; see `Tracker`."""
        self._attach(path, f"pictures/{path.name}")

    @errors_explained
    def panels(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Attach each as `panels/<name>.json`, and name them in a tag; see `Tracker`."""
        for each in documents:
            self._attach(json.dumps(each), f"{PANELS}/{each['name']}.json")
        if documents:
            self._log(self._run_id, tags={PANELS_TAG: json.dumps({each["name"]: each["title"] for each in documents})})

    @errors_explained
    def drew(self, keys: Mapping[str, str]) -> None:
        """Keys in a tag; see `Tracker`."""
        if keys and len(text := json.dumps(keys)) <= _LONGEST:
            self._log(self._run_id, tags={DRAWN_TAG: text})

    @errors_explained
    def drawn(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        """From the newest runs with the keys in their tag; see `Tracker`."""
        found, left = dict[str, bytes](), dict(keys)
        while left:
            path, key = left.popitem()
            for tag, read in self._drew(key):
                theirs = {text: place for place, text in read_texts(tag).items()}
                for own, text in {path: key, **left}.items():
                    content = read(theirs[text]) if text in theirs else None
                    if content is not None:
                        found[own] = content
                        left.pop(own, None)
        return found

    @errors_explained
    def report(self, path: Path) -> None:
        """Attach a page; see `Tracker`."""
        self._attach(path, path.name)

    def model(self, dataset: Dataset, model: Model, name: str, tags: Mapping[str, str]) -> RegisteredModel:
        """Register the dataset as a model of this run; see `Tracker`."""
        from superworkflow.infra.tracking.registry import register

        return register(dataset, model, name=name, run_id=self._run_id, tracking_uri=self.uri, tags=tags)

    def registry(self) -> ModelRegistry:
        """The registry of the same server or database; see `Tracker`."""
        from superworkflow.infra.tracking.models import ModelRegistry

        return ModelRegistry(self.uri)

    @errors_explained
    def decided(self, decision: Decision) -> None:
        """Tags and figures on the run; see `Tracker`."""
        tags = {OUTCOME_TAG: decision.verdict, "superworkflow.decision": str(decision), "superworkflow.model": (
            f"{decision.name}/{decision.version}")}  # fmt: skip
        figures = {f"promotion/{name}": value for name, value in decision.figures.items() if math.isfinite(value)}
        self._log(self._run_id, figures=_figures(figures), tags=with_short(tags))

    @errors_explained
    def finish(self, run: RunRecord) -> None:
        """Totals and quality on the parent; see `Tracker`."""
        self._end("FINISHED", run=run)
        self._show_columns(run)

    @errors_explained
    def fail(self, message: str, run: RunRecord | None = None) -> None:
        """Close the parent as failed; see `Tracker`."""
        self._end("FAILED", message, run)

    @errors_explained
    def stop(self, message: str, run: RunRecord | None = None) -> None:
        """Close the parent as killed, which MLflow's pages show unlike failed; see `Tracker`."""
        self._end("KILLED", message, run)

    def _end(self, status: str, message: str = "", run: RunRecord | None = None) -> None:
        if self._heart is not None:
            self._heart.stop()
        if not self._run_id:
            return
        tags, figures = dict[str, str](), dict[str, float]()
        if message:
            tags[ERROR_TAG] = message
        if run is None or not run.decisions:
            tags[SHORT[OUTCOME_TAG]] = status.lower()
        if run is not None:
            figures = total_keys(run.totals()) | quality_keys(run.metrics) | drift_keys(run.drift)
            tags |= {"superworkflow.flow_run_id": run.flow_run_id, STORE_TAG: run.store}
            tags[DESCRIPTION_TAG] = description(run, message)
            if run.declared:  # those of a champion that was scored again are known only now
                tags[METRICS_TAG] = metrics_text(run.declared)
        with self._at_once():
            self._log(self._run_id, figures=_figures(figures), tags=tags)
            self._terminate(self._run_id, status)

    def url(self) -> str | None:
        """Address of the run's page; see `Tracker`."""
        return page_of_run(self.uri, self._experiment_id, self._run_id)


def page_of_run(uri: str, experiment: str, run: str) -> str:
    """Address of a run's page, on the configured server or on a local one at its usual port."""
    base = without_user(uri) if uri.startswith("http") else "http://127.0.0.1:5000"
    base = without_user(os.environ.get(MLFLOW_VARIABLE, "")) or base
    # Without the last part MLflow's pages show what is for prompts and traces, until somebody has switched them.
    return f"{base.rstrip('/')}/#/experiments/{experiment}/runs/{run}?workflowType=machine_learning"


def author_tags(source: str) -> dict[str, str]:
    """Tags by which MLflow's pages show who ran what."""
    return {AUTHOR_TAG: user_name(), SOURCE_TAG: source}


def cut(values: Mapping[str, str]) -> dict[str, str]:
    """Texts of tags or parameters as long as MLflow's databases keep them."""
    return {name: text[:_LONGEST] for name, text in values.items()}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _figures(values: Mapping[str, float | int]) -> list[Figure]:
    return [(metric_key(name), float(value), 0) for name, value in values.items()]


def _course(course: Mapping[str, Sequence[tuple[int, float]]], begin: str) -> list[Figure]:
    """Figures by step."""
    return [
        (metric_key(f"{begin}{name}"), float(value), step) for name, points in course.items() for step, value in points
    ]


def _output(record: StageRecord) -> list[tuple[Used, str]]:
    """The dataset of a stage, so that a search for its digest finds who made it as well as who read it."""
    if record.state == "failed":
        return []
    facts = {"rows": record.rows, "bytes": record.bytes}
    return [(Used(record.stage, record.digest, record.output, facts), "output")]


def dataset_columns(used: Used) -> tuple[str, str, str, str, str | None]:
    """Name, digest, type, source and profile of data as MLflow keeps them."""
    profile = json.dumps(dict(used.facts)) if used.facts else None
    source = json.dumps({"uri": without_user(used.uri)})
    return used.name, used.digest[:DIGEST_LENGTH], "superworkflow", source, profile
