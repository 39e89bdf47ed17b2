"""Records that are kept, what they refer to, and the removal of all others from MLflow."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.pruning import NotRemoved
from superworkflow.infra.tracking.database_checks import check_experiment
from superworkflow.infra.tracking.dead_runs import close_dead_runs
from superworkflow.infra.tracking.mlflow_tracker import open_client
from superworkflow.infra.tracking.model_versions import CURRENT, Version
from superworkflow.infra.tracking.models import ModelRegistry, rollback_target
from superworkflow.infra.tracking.records import DIGEST_LENGTH
from superworkflow.infra.tracking.registry import local_folder, process_tracking_uri
from superworkflow.infra.tracking.run_tracker import error_line
from superworkflow.infra.tracking.search_pages import all_pages
from superworkflow.infra.tracking.sweeps import SWEEP_TAG
from superworkflow.infra.tracking.tags import (
    DATASETS_TAG,
    DEPLOYMENT_ID_TAG,
    DIGEST_TAG,
    INPUTS_TAG,
    OUTCOME_TAG,
    STAGE_TAG,
    STORE_TAG,
    SUPERWORKFLOW_TAG,
    UNCHANGED,
    read_datasets,
)
from superworkflow.infra.tracking.uris import EXPERIMENT, sqlite_path

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PAGE = 1000


@dataclass(frozen=True)
class Keep:
    """Records that stay besides living runs, champions, rollback targets, holds and the last run of each deployment.

    Args:
        seconds: age of runs and versions up to which they stay.
        versions: every version of every model stays.
    """

    seconds: float = 0.0
    versions: bool = False

    @classmethod
    def parse(cls, text: str) -> Keep:
        """From the text of `--keep`, such as `champions,30d`.

        Raises:
            UserError: a word that is none of `champions`, `versions` and a duration.
        """
        seconds, versions, words = 0.0, False, [word.strip() for word in text.split(",")]
        for word in words:
            if word[:-1].isdecimal() and word[-1] in _UNITS:
                seconds = max(seconds, float(word[:-1]) * _UNITS[word[-1]])
            elif word == "versions":
                versions = True
            elif word != "champions":
                raise UserError("neither `champions`, `versions` nor a duration", where="--keep", value=word,
                                remedy="Write --keep champions,30d")  # fmt: skip
        return cls(seconds, versions)


@dataclass
class References:
    """Everything that the records that stay refer to, and the records that go.

    Args:
        runs: ids of the runs that stay.
        digests: of datasets, and the first characters of sums of sources.
        old_runs: those that go, oldest first.
        other_runs: those that would go if they were of this store.
        versions: how many versions of models stay.
        old_versions: those that go.
    """

    runs: set[str] = field(default_factory=set)
    digests: set[str] = field(default_factory=set)
    old_runs: list[Run] = field(default_factory=list)
    other_runs: list[Run] = field(default_factory=list)
    versions: int = 0
    old_versions: list[Version] = field(default_factory=list)


class RecordPruner:
    """Finds and removes old records of one tracking store.

    Args:
        uri: tracking URI.
        store: URI of the store that is pruned; records of runs on others stay.

    Raises:
        UserError: it cannot be reached, or belongs to a copied or moved store.
    """

    def __init__(self, uri: str, store: str):
        self.uri, self._store = uri, store
        database = sqlite_path(uri)
        self._client: MlflowClient | None = None
        self._experiment = ""
        if database is not None and not database.exists():
            return  # nothing is recorded yet
        self._client = open_client(uri)
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            check_experiment(found, uri)  # records of a copied store name the artifacts of the original
            self._experiment = found.experiment_id

    def references(self, keep: Keep) -> References:
        """Decide on all records."""
        found = References()
        if self._client is None or not self._experiment:
            return found
        close_dead_runs(self._client, self._experiment)
        oldest_ms = (time.time() - keep.seconds) * 1000
        runs = [*self._search(f"tags.`{SUPERWORKFLOW_TAG}` != ''"), *self._search(f"tags.`{SWEEP_TAG}` != ''")]
        others = {run.info.run_id for run in runs if run.data.tags.get(STORE_TAG, self._store) != self._store}
        for versions in ModelRegistry(self.uri).listed().values():
            self._split(versions, keep, oldest_ms, others, found)
        last = set[tuple[str, bool]]()
        for run in runs:  # newest first
            mark = _of_deployment(run)
            newest = mark is not None and run.info.status == "FINISHED" and mark not in last
            if newest and mark is not None:
                last.add(mark)
            if newest or run.info.status in ("RUNNING", "SCHEDULED") or run.info.start_time >= oldest_ms:
                found.runs.add(run.info.run_id)
        parents = {run.info.run_id: run.data.tags.get(MLFLOW_PARENT_RUN_ID, "") for run in runs}
        found.runs |= {parents[run] for run in found.runs if parents.get(run)}
        living = {run.info.run_id for run in runs if run.info.status == "RUNNING"}
        found.runs |= {run for run, parent in parents.items() if parent in living}
        for run in runs:
            if run.info.run_id in found.runs:
                found.digests |= self._of_run(run)
            else:
                (found.other_runs if run.info.run_id in others else found.old_runs).insert(0, run)
        return found

    def mention(self, digests: Collection[str], references: References) -> bool:
        """True if a record, kept or not, refers to one of these datasets."""
        named = {*references.digests, *(each.digest for each in references.old_versions)}
        return not named.isdisjoint(digests) or any(
            not self._of_run(run).isdisjoint(digests) for run in reversed(references.other_runs + references.old_runs)
        )

    def used_since(self, began: float, apart_from: Collection[Run] = ()) -> set[str]:
        """Digests that runs have recorded that began since then, in seconds since 1970."""
        if self._client is None or not self._experiment:
            return set()
        which = f"attributes.start_time >= {int(began * 1000)} and tags.`{SUPERWORKFLOW_TAG}` != ''"
        others = {run.info.run_id for run in apart_from}
        return {digest for run in self._search(which) if run.info.run_id not in others for digest in self._of_run(run)}

    def _split(
        self, versions: list[Version], keep: Keep, oldest_ms: float, others: Collection[str], found: References
    ) -> None:
        """Sort the versions of one model into those that stay, as those of other stores' runs do, and those that go."""
        champion = next((each for each in versions if CURRENT in each.aliases), None)
        hold = ModelRegistry(self.uri).hold(versions[0].name) if versions else None
        named = {rollback_target(champion) if champion is not None else None}
        named |= {hold.version, hold.previous} if hold is not None else set()
        for each in versions:
            stays = (
                keep.versions or bool(each.aliases) or each.version in named or not each.digest or each.run_id in others
            )
            if stays or each.created.timestamp() * 1000 >= oldest_ms:
                found.versions += 1
                found.runs.add(each.run_id)
                found.digests |= {each.digest, *each.datasets.values()}
                found.digests |= {digest[:DIGEST_LENGTH] for digest in each.data.values()}
            else:
                found.old_versions.append(each)

    def _of_run(self, run: Run) -> set[str]:
        """Digests that a run refers to: datasets of its stages, those to compare the next with, and its sources."""
        digests = set(read_datasets(run.data.tags.get(DATASETS_TAG, "")).values())
        for each in [run, *self._stages(run.info.run_id)]:
            digests.add(each.data.tags.get(DIGEST_TAG, ""))
            given = each.inputs.dataset_inputs if each.inputs is not None else ()
            digests |= {one.dataset.digest[:DIGEST_LENGTH] for one in given}
        return digests

    def _stages(self, run_id: str) -> list[Run]:
        return self._search(f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{run_id}' and tags.`{STAGE_TAG}` != ''")

    def _search(self, which: str) -> list[Run]:
        """All runs that pass a filter, newest first."""
        assert self._client is not None
        search, order = self._client.search_runs, ["attributes.start_time DESC"]
        return list(all_pages(
            lambda token: search([self._experiment], which, ViewType.ACTIVE_ONLY, _PAGE, order, token)
        ))  # fmt: skip

    def run_bytes(self, run: Run) -> int:
        """Bytes of a run's artifacts."""
        return _size_of(run.info.artifact_uri) if _is_ours(run.info.artifact_uri, run.info.run_id) else 0

    def version_bytes(self, version: Version) -> int:
        """Bytes of the files of a model's version."""
        logged = self._logged(version)
        return _size_of(logged.artifact_location) if logged is not None else 0

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Artifacts behind a server are found through the process's own tracking URI."""
        with process_tracking_uri(self.uri):
            yield

    def remove_run(self, run: Run) -> None:
        """Remove a run with its stages and their artifacts; the run itself last, so that it is found again."""
        for each in [*self._stages(run.info.run_id), run]:
            with _removing(f"run {each.info.run_id}"):
                if _is_ours(each.info.artifact_uri, each.info.run_id):
                    _remove_artifacts(each.info.artifact_uri)
                self._forget(each.info.run_id)

    def _forget(self, run_id: str) -> None:
        """Remove the rows of a run; on a server, which allows no more, mark it as deleted."""
        assert self._client is not None
        store = self._client._tracking_client.store
        if hasattr(store, "_hard_delete_run"):
            store._hard_delete_run(run_id)
        else:
            self._client.delete_run(run_id)

    @property
    def forgets(self) -> bool:
        """True if rows are removed from the database; a server only marks them, until `mlflow gc`."""
        return self._client is None or hasattr(self._client._tracking_client.store, "_hard_delete_run")

    def remove_version(self, version: Version) -> None:
        """Remove a version of a model with its files, unless it has got an alias in the meantime."""
        with _removing(f"version {version.version} of {version.name}"):
            self._remove_version(version)

    def _remove_version(self, version: Version) -> None:
        assert self._client is not None
        if ModelRegistry(self.uri).version(version.name, version.version).aliases:
            return
        logged = self._logged(version)
        others = f"source_path = 'models:/{logged.model_id}'" if logged is not None else ""
        shared = logged is not None and len(self._client.search_model_versions(others)) > 1
        self._client.delete_model_version(version.name, str(version.version))
        if logged is None or shared:
            return
        _remove_artifacts(logged.artifact_location)
        store = self._client._tracking_client.store
        if hasattr(store, "_hard_delete_logged_model"):
            store._hard_delete_logged_model(logged.model_id)
        else:
            self._client.delete_logged_model(logged.model_id)

    def _logged(self, version: Version) -> Any:
        """The logged model of a version, if its files are where MLflow puts them."""
        assert self._client is not None
        try:
            source = self._client.get_model_version(version.name, str(version.version)).source or ""
            logged = self._client.get_logged_model(source.removeprefix("models:/"))
        except MlflowException:
            return None
        return logged if _is_ours(logged.artifact_location, logged.model_id) else None


@contextlib.contextmanager
def _removing(what: str) -> Iterator[None]:
    """Errors are the reason why it stays; what is gone already is none."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise NotRemoved(f"{what}: cannot be removed: {error_line(error)}") from None
    except OSError as error:  # of files, and of requests
        raise NotRemoved(f"{what}: cannot be removed: {error_line(error)}") from None


def _of_deployment(run: Run) -> tuple[str, bool] | None:
    """Deployment of a run with its own parameters, and whether there was nothing to do: the last of either stays."""
    tags: Mapping[str, str] = run.data.tags
    deployment = tags.get(DEPLOYMENT_ID_TAG, "")
    if not deployment or not tags.get(INPUTS_TAG):
        return None
    return deployment, tags.get(OUTCOME_TAG) == UNCHANGED


def _is_ours(uri: str | None, name: str) -> bool:
    """True if this is the folder that MLflow has made for a run or logged model."""
    return bool(uri) and str(uri).rstrip("/").endswith(f"/{name}/artifacts")


def _size_of(uri: str) -> int:
    if (folder := local_folder(uri)) is not None:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.stat().st_nlink == 1)
    repository = get_artifact_repository(uri)

    def below(path: str | None) -> int:
        found = repository.list_artifacts(path)
        return sum(below(each.path) if each.is_dir else int(each.file_size or 0) for each in found)

    return below(None)


def _remove_artifacts(uri: str) -> None:
    if (folder := local_folder(uri)) is not None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        with contextlib.suppress(OSError):
            Path(folder).parent.rmdir()
    else:
        get_artifact_repository(uri).delete_artifacts()  # type: ignore[no-untyped-call]
