"""Recorded runs in full, for pages: all figures, tags and stages, read from MLflow."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import LifecycleStage, ViewType
from mlflow.exceptions import MlflowException

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.resources import GROUPS
from superworkflow.infra.storage.manifest import WARNING_PREFIX, warnings_of
from superworkflow.infra.storage.safe_names import is_digest
from superworkflow.infra.tracking.artifacts import read_artifact
from superworkflow.infra.tracking.history import find_run, recorded_run
from superworkflow.infra.tracking.metric_keys import course_key
from superworkflow.infra.tracking.mlflow_tracker import open_client
from superworkflow.infra.tracking.model_versions import Version
from superworkflow.infra.tracking.models import ModelRegistry
from superworkflow.infra.tracking.run_details import Datum, DetailedRun, RecordedStageRun
from superworkflow.infra.tracking.run_filter import RunFilter
from superworkflow.infra.tracking.run_tracker import page_of_run
from superworkflow.infra.tracking.sqlite_runs import can_read, read_runs
from superworkflow.infra.tracking.tags import (
    DIGEST_TAG,
    ERROR_TAG,
    PARENT_TAG,
    ROLE_TAG,
    STAGE_TAG,
    STATE_TAG,
    SUPERWORKFLOW_TAG,
    read_texts,
)
from superworkflow.infra.tracking.uris import EXPERIMENT, check_recorded, sqlite_path

_RUN_ID = re.compile(r"[0-9a-f]{32}")


class RunReader:
    """Reads what runs have recorded, and changes nothing.

    Args:
        uri: tracking URI.

    Raises:
        UserError: it cannot be reached, or its database does not exist.
    """

    def __init__(self, uri: str):
        check_recorded(uri)
        self.uri, self.client, self.registry = uri, open_client(uri), ModelRegistry(uri)

    def runs(self, limit: int) -> list[DetailedRun]:
        """Runs, newest first, trials of sweeps among them."""
        return next(self.pages(limit), [])

    def pages(self, size: int) -> Iterator[list[DetailedRun]]:
        """All runs, newest first, some at a time; of SQLite without MLflow's slow search."""
        database = sqlite_path(self.uri)
        if database is not None and can_read(database):
            runs = map(self._detailed, read_runs(database, size, RunFilter()))
            while found := list(islice(runs, size)):
                yield found
            return
        found, token = self.page(size)
        yield found
        while token is not None:
            found, token = self.page(size, token)
            yield found

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
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return [], None
        which = f"tags.`{SUPERWORKFLOW_TAG}` != ''"
        order = "start_time"
        if running:
            which += " and attributes.status = 'RUNNING'"
        if ended_since is not None:
            which += f" and attributes.end_time >= {int(ended_since.timestamp() * 1000)}"
            order = "end_time"
        found = self.client.search_runs(
            [experiment.experiment_id], which, ViewType.ACTIVE_ONLY, limit,
            order_by=[f"attributes.{order} DESC"], page_token=token,
        )  # fmt: skip
        return [self._detailed(run) for run in found], found.token or None

    def run(self, run_id: str) -> DetailedRun | None:
        """The run of this id; None where there is none, it is marked as deleted, or is none of a superworkflow."""
        if not _RUN_ID.fullmatch(run_id):
            return None
        try:
            found = self.client.get_run(run_id)
        except MlflowException:
            return None
        is_shown = found.info.lifecycle_stage == LifecycleStage.ACTIVE and found.data.tags.get(SUPERWORKFLOW_TAG)
        return self._detailed(found) if is_shown else None

    def named(self, name: str) -> DetailedRun:
        """A run by its id, the beginning of its id, or its name; see `find_run`."""
        found = self.run(find_run(self.uri, name).run_id)
        assert found is not None
        return found

    def stages(self, run: DetailedRun) -> list[RecordedStageRun]:
        """Stages of a run in the order of their beginnings."""
        experiment = self.client.get_run(run.run_id).info.experiment_id
        which = f"tags.`{PARENT_TAG}` = '{run.run_id}' and tags.`{STAGE_TAG}` != ''"
        found = self.client.search_runs([experiment], which, ViewType.ACTIVE_ONLY, 1000)
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
                    figures = self.client.get_run(parent).data.metrics
                    own = {key for key in figures if key.startswith(course_key(node, ""))}
                    made = self._courses(parent, own)
                    found |= {f"{stage.name}.{name.removeprefix(f'{node}.')}": points for name, points in made.items()}
        return found

    def _courses(self, run_id: str, keys: Collection[str]) -> dict[str, list[tuple[int, float]]]:
        begin = course_key("", "").removesuffix(".")
        found = {}
        for key in sorted(each for each in keys if each.startswith(begin)):
            history = self.client.get_metric_history(run_id, key)
            found[key.removeprefix(begin)] = sorted((each.step, each.value) for each in history)
        return found

    def _makers(self, run_id: str, digest: str) -> list[tuple[str, str]]:
        """Parent run and node that made a dataset; at most one."""
        if not is_digest(digest):
            return []
        experiment = self.client.get_run(run_id).info.experiment_id
        which = f"tags.`{DIGEST_TAG}` = '{digest}' and tags.`{STATE_TAG}` = 'ran'"
        found = self.client.search_runs([experiment], which, ViewType.ACTIVE_ONLY, 1)
        return [(each.data.tags.get(PARENT_TAG, ""), each.info.run_name) for each in found]

    def file(self, run_id: str, path: str) -> bytes | None:
        """A file among a run's artifacts; None where there is none."""
        return read_artifact(self.client, run_id, path) if _RUN_ID.fullmatch(run_id) else None

    def files(self, run_id: str, folder: str) -> list[str]:
        """Names of the files in a folder of a run's artifacts."""
        try:
            return [Path(each.path).name for each in self.client.list_artifacts(run_id, folder) if not each.is_dir]
        except (MlflowException, OSError):
            return []

    def versions(self) -> list[Version]:
        """All versions of all registered models that runs of superworkflows have made."""
        return [each for versions in self.registry.listed().values() for each in versions if each.digest]

    def _detailed(self, run: Any) -> DetailedRun:
        ended = datetime.fromtimestamp(run.info.end_time / 1000, UTC) if run.info.end_time else None
        return DetailedRun(
            **vars(recorded_run(run)), ended=ended, figures=dict(run.data.metrics),
            page=page_of_run(self.uri, run.info.experiment_id, run.info.run_id),
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
        role = next((tag.value for tag in each.tags if tag.key == ROLE_TAG), "")
        uri = read_texts(each.dataset.source or "").get("uri", "")
        found.append(Datum(role, each.dataset.name, each.dataset.digest, uri))
    return tuple(found)


def _number(text: str | None) -> float:
    """A number that somebody may have edited."""
    try:
        return min(max(float(text or 0), 0.0), 1e18)
    except ValueError:
        return 0.0
