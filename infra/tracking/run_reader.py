"""Recorded runs in full, for pages: all figures, tags and stages, from MLflow or from a run that is just ending."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LifecycleStage, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_PARENT_RUN_ID

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import GROUPS
from superworkflow.infra.storage.manifest import WARNING_PREFIX, warnings_of
from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.tracking.artifacts import read_artifact
from superworkflow.infra.tracking.dead_runs import ERROR_TAG
from superworkflow.infra.tracking.entities import DIGEST_LENGTH
from superworkflow.infra.tracking.history import RecordedRun, recorded_run
from superworkflow.infra.tracking.metric_keys import course_key, drift_keys, quality_keys, total_keys
from superworkflow.infra.tracking.mlflow_tracker import open_client, page_of_run
from superworkflow.infra.tracking.models import ModelRegistry, Move, Version
from superworkflow.infra.tracking.records import RunRecord, StageRecord
from superworkflow.infra.tracking.tags import (
    DEPLOYMENT_ID_TAG,
    DEPLOYMENT_TAG,
    DIGEST_TAG,
    STAGE_TAG,
    STATE_TAG,
    SUPERWORKFLOW_TAG,
    read_texts,
)
from superworkflow.infra.tracking.uris import EXPERIMENT, check_recorded

_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class DetailedRun(RecordedRun):
    """One run with all that is recorded of it.

    Args:
        ended: None while it runs.
        figures: all metrics, by the names that MLflow has.
        page: its address in MLflow.
    """

    ended: datetime | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    page: str = ""

    @property
    def deployment(self) -> str:
        """Name of its deployment; empty where it has none."""
        return self.tags.get(DEPLOYMENT_TAG, "")

    @property
    def deployment_id(self) -> str:
        return self.tags.get(DEPLOYMENT_ID_TAG, "")

    @property
    def is_trial(self) -> bool:
        """True if it is a trial of a sweep."""
        return MLFLOW_PARENT_RUN_ID in self.tags

    @property
    def error(self) -> str:
        """Why it did not end well."""
        return self.tags.get(ERROR_TAG, "")


@dataclass(frozen=True)
class Datum:
    """A source or dataset that a run or stage read, or a dataset that it wrote.

    Args:
        role: `source`, `input` or `output`.
        name: of the input; of an output the stage.
        digest: as far as MLflow keeps it.
    """

    role: str
    name: str
    digest: str
    uri: str = ""


@dataclass(frozen=True)
class RecordedStageRun:
    """One stage of one run.

    Args:
        state: `ran`, `cached` or `failed`.
        ended: when it was recorded.
        seconds: for which resources were held, without compiling.
        cpu: vCPUs that its own process or pod was given.
        memory: bytes that it was given.
        members: whether it had members in addition to its own process.
        queued_s: from when it was its turn until it was given its resources.
        figures: all others by name.
        warnings: warnings about its input.
        digest: of its dataset.
        data: what it read and wrote.
        course: figures by step, of a run that is just ending.
        log: likewise.
    """

    name: str
    state: str
    ended: datetime
    seconds: float
    compile_s: float
    cpu_s: float
    memory_bytes: float
    rows: float
    cost_usd: float
    saved_usd: float
    cpu: float
    memory: int
    members: bool = False
    queued_s: float = 0.0
    error: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    digest: str = ""
    data: tuple[Datum, ...] = ()
    course: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    log: tuple[str, ...] = ()

    @property
    def began(self) -> datetime:
        """When it was given its resources."""
        return self.ended - timedelta(seconds=self.seconds + self.compile_s)


class RunReader:
    """Reads what runs have recorded, and changes nothing.

    Args:
        uri: tracking URI.

    Raises:
        UserError: it cannot be reached, or its database does not exist.
    """

    def __init__(self, uri: str):
        check_recorded(uri)
        self.uri = uri
        self._client = open_client(uri)

    def runs(self, limit: int) -> list[DetailedRun]:
        """Runs, newest first, trials of sweeps among them."""
        return self.page(limit)[0]

    def page(
        self, limit: int, token: str | None = None, *, running: bool = False, ended_since: datetime | None = None
    ) -> tuple[list[DetailedRun], str | None]:
        """Some runs, newest first, and the token of the next ones; None after the last.

        Args:
            limit: number of runs.
            token: of an earlier page.
            running: only runs that have not ended.
            ended_since: only runs that ended then or later, the last to end first.
        """
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return [], None
        which = f"tags.`{SUPERWORKFLOW_TAG}` != ''"
        order = "start_time"
        if running:
            which += " and attributes.status = 'RUNNING'"
        if ended_since is not None:
            which += f" and attributes.end_time >= {int(ended_since.timestamp() * 1000)}"
            order = "end_time"
        found = self._client.search_runs(
            [experiment.experiment_id], which, ViewType.ACTIVE_ONLY, limit,
            order_by=[f"attributes.{order} DESC"], page_token=token,
        )  # fmt: skip
        return [self._detailed(run) for run in found], found.token or None

    def run(self, run_id: str) -> DetailedRun | None:
        """The run of this id; None where there is none, it is marked as deleted, or is none of a superworkflow."""
        if not _RUN_ID.fullmatch(run_id):
            return None
        try:
            found = self._client.get_run(run_id)
        except MlflowException:
            return None
        is_shown = found.info.lifecycle_stage == LifecycleStage.ACTIVE and found.data.tags.get(SUPERWORKFLOW_TAG)
        return self._detailed(found) if is_shown else None

    def stages(self, run: DetailedRun) -> list[RecordedStageRun]:
        """Stages of a run in the order of their beginnings."""
        experiment = self._client.get_run(run.run_id).info.experiment_id
        which = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{run.run_id}' and tags.`{STAGE_TAG}` != ''"
        found = self._client.search_runs([experiment], which, ViewType.ACTIVE_ONLY, 1000)
        return sorted((_stage(each) for each in found), key=lambda each: (each.began, each.ended))

    def made(self, run_id: str, node: str) -> str:
        """Address of the dataset that a stage of a run has made, or found made.

        Raises:
            UserError: there is no such run, or it has no such dataset.
        """
        run = self.run(run_id)
        stages = self.stages(run) if run is not None else []
        made = [each.uri for stage in stages if stage.name == node for each in stage.data if each.role == "output"]
        if not made:
            raise UserError(f"this run has no dataset of stage {node}", where="run", value=run.name if run else run_id,
                            remedy="Choose a run that is complete: `superworkflow runs` lists them")  # fmt: skip
        return made[-1]

    def curves(self, run: DetailedRun, stages: Sequence[RecordedStageRun] = ()) -> dict[str, list[tuple[int, float]]]:
        """Figures by step, by `node.figure`; of a cached stage those of the run that made its dataset."""
        found = self._courses(run.run_id, run.figures)
        for stage in stages:
            if (
                stage.state == "cached"
                and stage.digest
                and not any(name.startswith(f"{stage.name}.") for name in found)
            ):
                for parent, node in self._makers(run.run_id, stage.digest):
                    figures = self._client.get_run(parent).data.metrics
                    own = {key for key in figures if key.startswith(course_key(node, ""))}
                    made = self._courses(parent, own)
                    found |= {f"{stage.name}.{name.removeprefix(f'{node}.')}": points for name, points in made.items()}
        return found

    def _courses(self, run_id: str, keys: Collection[str]) -> dict[str, list[tuple[int, float]]]:
        begin = course_key("", "").removesuffix(".")
        found = {}
        for key in sorted(each for each in keys if each.startswith(begin)):
            history = self._client.get_metric_history(run_id, key)
            found[key.removeprefix(begin)] = sorted((each.step, each.value) for each in history)
        return found

    def _makers(self, run_id: str, digest: str) -> list[tuple[str, str]]:
        """Parent run and node that made a dataset; at most one."""
        if not is_digest(digest):
            return []
        experiment = self._client.get_run(run_id).info.experiment_id
        which = f"tags.`{DIGEST_TAG}` = '{digest}' and tags.`{STATE_TAG}` = 'ran'"
        found = self._client.search_runs([experiment], which, ViewType.ACTIVE_ONLY, 1)
        return [(each.data.tags.get(MLFLOW_PARENT_RUN_ID, ""), each.info.run_name) for each in found]

    def file(self, run_id: str, path: str) -> bytes | None:
        """A file among a run's artifacts; None where there is none."""
        return read_artifact(self._client, run_id, path) if _RUN_ID.fullmatch(run_id) else None

    def files(self, run_id: str, folder: str) -> list[str]:
        """Names of the files in a folder of a run's artifacts."""
        try:
            return [Path(each.path).name for each in self._client.list_artifacts(run_id, folder) if not each.is_dir]
        except (MlflowException, OSError):
            return []

    def versions(self) -> list[Version]:
        """All versions of all registered models that runs of superworkflows have made."""
        return [each for versions in self.models().values() for each in versions if each.digest]

    def models(self) -> dict[str, list[Version]]:
        """Registered models by name, the versions of each newest first."""
        return ModelRegistry(self.uri).listed()

    def hold(self, name: str) -> Move | None:
        """The rollback that holds a model, if one does."""
        return ModelRegistry(self.uri).hold(name)

    @property
    def client(self) -> MlflowClient:
        return self._client

    def _detailed(self, run: Any) -> DetailedRun:
        ended = datetime.fromtimestamp(run.info.end_time / 1000, UTC) if run.info.end_time else None
        return DetailedRun(
            **vars(recorded_run(run)), ended=ended, figures=dict(run.data.metrics),
            page=page_of_run(self.uri, run.info.experiment_id, run.info.run_id),
        )  # fmt: skip


def as_detailed(run: RunRecord, page: str) -> DetailedRun:
    """A closed run that ends well, as it will be read."""
    started = datetime.fromtimestamp(run.began, UTC)
    figures = total_keys(run.totals()) | quality_keys(run.metrics) | drift_keys(run.drift)
    figures |= {f"promotion/{name}": value for each in run.decisions for name, value in each.figures.items()}
    return DetailedRun(
        run_id=run.run_id, name=run.name, superworkflow=run.superworkflow, status="FINISHED",
        started=started,
        params={f"{each.name}.{name}": str(value) for each in run.stages for name, value in each.params.items()},
        metrics=run.metrics, stages={each.name: {**each.took, "cached": float(each.state == "cached")}
                                     for each in run.stages},
        totals=run.totals(), declared=run.declared,
        sources={each.name: each.digest[:DIGEST_LENGTH] for each in run.sources},
        outcome=run.decisions[-1].verdict if run.decisions else "", ended=started + timedelta(seconds=run.wall_s),
        tags={"superworkflow.decision": str(run.decisions[-1])} if run.decisions else {}, figures=figures, page=page,
    )  # fmt: skip


def as_stage(record: StageRecord) -> RecordedStageRun:
    """A stage that has ended, as it will be read."""
    return RecordedStageRun(
        name=record.name, state=record.state, ended=datetime.fromtimestamp(record.ended, UTC),
        seconds=record.runtime_s, compile_s=record.compile_s, cpu_s=record.cpu_s,
        memory_bytes=record.peak_memory_bytes, rows=record.rows, cost_usd=record.cost_usd, saved_usd=record.saved_usd,
        cpu=record.resources.cpu, memory=record.resources.memory, members=bool(record.resources.groups),
        queued_s=record.queued_s, error=record.error, figures=dict(record.figures), warnings=record.warnings,
        digest=record.digest, data=(
            *(Datum("input", each.name, each.digest[:DIGEST_LENGTH], each.uri) for each in record.inputs),
            Datum("output", record.stage, record.digest[:DIGEST_LENGTH], record.output),
        ), course=record.course, log=record.log,
    )  # fmt: skip


def _stage(run: Any) -> RecordedStageRun:
    figures, params, tags = dict(run.data.metrics), run.data.params, run.data.tags

    def take(name: str) -> float:
        return float(figures.pop(name, 0.0))

    return RecordedStageRun(
        name=run.info.run_name, state=tags.get(STATE_TAG, ""),
        ended=datetime.fromtimestamp((run.info.end_time or run.info.start_time) / 1000, UTC),
        seconds=take("seconds"), compile_s=take("compile_seconds"), cpu_s=take("cpu_seconds"),
        memory_bytes=take("peak_memory_bytes"), rows=take("rows"), cost_usd=take("cost_usd"),
        saved_usd=take("saved_usd"), cpu=_number(params.get("resources.cpu")),
        memory=int(_number(params.get("resources.memory"))),
        members=any(params.get(f"resources.{group}", "None") != "None" for group in GROUPS),
        queued_s=take("queued_seconds"), error=tags.get(ERROR_TAG, ""), figures=figures,
        warnings=warnings_of(tags, f"superworkflow.{WARNING_PREFIX}"), digest=tags.get(DIGEST_TAG, ""),
        data=data_of(run),
    )  # fmt: skip


def data_of(run: Any) -> tuple[Datum, ...]:
    """The sources and datasets of a run of MLflow's."""
    found = []
    for each in run.inputs.dataset_inputs:
        role = next((tag.value for tag in each.tags if tag.key == MLFLOW_DATASET_CONTEXT), "")
        uri = read_texts(each.dataset.source or "").get("uri", "")
        found.append(Datum(role, each.dataset.name, each.dataset.digest, uri))
    return tuple(found)


def _number(text: str | None) -> float:
    """A number that somebody may have edited."""
    try:
        return min(max(float(text or 0), 0.0), 1e18)
    except ValueError:
        return 0.0
