"""A dataset as a model in MLflow: logged under its run, and a version of a registered name.

Which version is in use is not said here but in `infra.tracking.models`.

MLflow's own `log_model` copies artifacts three times and imports the model to guess what it needs. Here the model's
folder is laid out as MLflow does it, and the dataset's files go straight to the artifact root: linked where that is on
the same file system, uploaded one by one otherwise. What serves it is the code that the superworkflow declares.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.import_strings import imported, module_file
from superworkflow.infra.contract.outcomes import Model, ModelCard
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive
from superworkflow.infra.storage.store import Place
from superworkflow.infra.tracking.tags import DIGEST_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

CODE_TAG = "superworkflow.code"
"""Tag of a model version: SHA-256 of the code that serves it."""

MODEL_FILE = Path(__file__).with_name("served_model.py")
_ARTIFACTS, _CODE = "artifacts/dataset", "artifacts/code"
_TYPES = {bool: "boolean", int: "long", float: "double", str: "string"}


@dataclass(frozen=True)
class RegisteredModel:
    """One version of a registered model.

    Args:
        name: registered name.
        version: number under that name.
        uri: what `mlflow.pyfunc.load_model` takes.
        model_id: MLflow's id of the logged model.
        digest: digest of the dataset.
        reused: the dataset had been registered under this name before.
        seconds: wall time of the calls to MLflow.
    """

    name: str
    version: int
    uri: str
    model_id: str
    digest: str
    reused: bool
    seconds: float


def register(
    dataset: Dataset,
    model: Model,
    *,
    name: str,
    run_id: str,
    tracking_uri: str,
    tags: Mapping[str, str] | None = None,
) -> RegisteredModel:
    """Log a dataset as a model of a run and register it.

    A dataset that is registered under this name with the same code already is not registered again.

    Args:
        dataset: what is served.
        model: how it is served.
        name: name to register under; made when it does not exist.
        run_id: run that the model belongs to.
        tracking_uri: of the tracking store, which is the registry too.
        tags: further ones of a new version.

    Raises:
        UserError: the dataset is not what the model's code serves, or MLflow refuses.
        SuperworkflowError: the model's card fails.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    started = time.perf_counter()
    card, code = _card(dataset, model), _code(model)
    marks = {DIGEST_TAG: dataset.digest, CODE_TAG: _sum(code)}
    try:
        # The store resolves models:/… URIs against the process's tracking URI, whatever the client's is.
        with process_tracking_uri(tracking_uri), exclusive(_turn(dataset, name)):
            client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
            found = _registered(client, name, marks)
            number, model_id = found or _log(dataset, card, code, name, run_id, {**(tags or {}), **marks}, client)
    except MlflowException as error:
        raise UserError(
            f"MLflow did not register the model: {error.message}", where=name,
            remedy="Check its name, and that the tracking server can be written",
        ) from error  # fmt: skip
    return RegisteredModel(
        name=name, version=number, uri=f"models:/{name}/{number}", model_id=model_id, digest=dataset.digest,
        reused=found is not None, seconds=time.perf_counter() - started,
    )  # fmt: skip


@contextmanager
def process_tracking_uri(uri: str) -> Iterator[None]:
    """Make this the tracking URI of the whole process within the block.

    MLflow sets `MLFLOW_TRACKING_URI` with it, which whatever runs afterwards would take for the user's.
    """
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
        os.environ.pop("MLFLOW_TRACKING_URI", None)  # within another such block it is still there
        if before is not None:
            os.environ["MLFLOW_TRACKING_URI"] = before


def _turn(dataset: Dataset, name: str) -> Location:
    """Place in the store whose lock the registration under a name holds: runs that end at once make one version."""
    folder = Place.of(dataset.uri).store.join(".models")
    folder.make()
    return folder.join(name)


def _card(dataset: Dataset, model: Model) -> ModelCard:
    try:
        card = imported(model.card)(dataset)
    except SuperworkflowError:
        raise
    except Exception as error:
        raise SuperworkflowError(f"{model.card} failed for {dataset.uri}: {type(error).__name__}: {error}") from error
    if not isinstance(card, ModelCard):
        raise SuperworkflowError(f"{model.card} returned {type(card).__name__}, not a ModelCard")
    return card


def _code(model: Model) -> Path:
    path = module_file(model.code)
    if path is None:
        raise UserError("no such module", where=f"model {model.title}", value=model.code)
    return path.parent if path.name == "__init__.py" else path


def _modules(code: Path) -> list[Path]:
    """Files of the code: a module, or those of a package, by name."""
    return sorted(code.glob("*.py")) if code.is_dir() else [code]


def _sum(code: Path) -> str:
    if not code.is_dir():
        return hashlib.sha256(code.read_bytes()).hexdigest()
    sums = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in _modules(code)]
    return hashlib.sha256("".join(sums).encode()).hexdigest()


def _registered(client: MlflowClient, name: str, tags: Mapping[str, str]) -> tuple[int, str] | None:
    """Version and model id of a dataset that was registered before, with the same code, and is still whole."""
    from mlflow.entities import LoggedModelStatus
    from mlflow.exceptions import MlflowException

    for found in client.search_model_versions(f"name = '{name}' and tag.`{DIGEST_TAG}` = '{tags[DIGEST_TAG]}'"):
        if found.tags.get(CODE_TAG) != tags[CODE_TAG]:
            continue
        model_id = (found.source or "").removeprefix("models:/")
        try:
            logged = client.get_logged_model(model_id)
        except MlflowException:  # deleted since
            continue
        root = local_folder(logged.artifact_location)
        if logged.status == LoggedModelStatus.READY and (root is None or (root / "MLmodel").is_file()):
            return int(found.version), model_id
    return None


def _log(
    dataset: Dataset, card: ModelCard, code: Path, name: str, run_id: str, tags: dict[str, str], client: MlflowClient
) -> tuple[int, str]:
    """Log the model under the run and register it: its version and id."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.exceptions import MlflowException

    run = client.get_run(run_id)
    logged = client.create_logged_model(
        run.info.experiment_id, name=name, source_run_id=run_id, model_type=card.kind,
        tags=tags, params={key: str(value) for key, value in card.facts.items()},
    )  # fmt: skip
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            _save(folder, dataset, card, code, logged.model_id, run_id)
            client.log_model_artifacts(logged.model_id, str(folder))
        _place(dataset, logged.artifact_location, logged.model_id, client)
    except BaseException:
        client.finalize_logged_model(logged.model_id, LoggedModelStatus.FAILED)
        raise
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    made = client.create_model_version(
        name, source=f"models:/{logged.model_id}", run_id=run_id, tags=tags, model_id=logged.model_id
    )
    return int(made.version), str(logged.model_id)


def _save(folder: Path, dataset: Dataset, card: ModelCard, code: Path, model_id: str, run_id: str) -> None:
    """Lay out the model without the dataset's files, but with their place in it."""
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model as LoggedModel
    from mlflow.models.model import MLMODEL_FILE_NAME

    columns = [dict(column) for column in card.columns]
    metadata = {"digest": dataset.digest, "columns": columns, **card.facts, **card.metadata}
    model = LoggedModel(run_id=run_id, model_id=model_id, model_uuid=model_id, metadata=metadata)
    with _quiet("mlflow.pyfunc"):
        mlflow.pyfunc.save_model(
            path=folder, mlflow_model=model, python_model=str(MODEL_FILE), signature=_signature(card),
            input_example=(pd.DataFrame([dict(row) for row in card.example]), dict(card.example_options)),
            model_config={"columns": [column["name"] for column in columns]},
            pip_requirements=[f"{package}=={version(package)}" for package in ("mlflow", *card.requirements)],
        )  # fmt: skip
    place = f"{_CODE}/{code.name}"
    for path in _modules(code):
        copy = folder / place / path.name if code.is_dir() else folder / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    model.flavors["python_function"]["artifacts"] = {
        "dataset": {"path": _ARTIFACTS, "uri": dataset.uri}, "code": {"path": place, "uri": place},
    }  # fmt: skip
    model.model_size_bytes = dataset.manifest.bytes
    model.save(folder / MLMODEL_FILE_NAME)


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Keep a library's progress notes out of the run's output; its warnings stay."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)


def _signature(card: ModelCard) -> Any:
    """Columns of an answer and options of a request; False, so that MLflow infers nothing, where there are none.

    The columns of a request are in the model's metadata instead: MLflow would refuse values of another type than the
    column's, such as whole numbers where names of nodes are text, and all lists, which have no names of columns.
    """
    from mlflow.models import ModelSignature

    options = [{"name": name, "default": value, "type": _TYPES[type(value)]} for name, value in card.options.items()]
    declared = {"params": options, "outputs": [dict(column) for column in card.answer]}
    found = {name: json.dumps(each) for name, each in declared.items() if each}
    return ModelSignature.from_dict(found) if found else False


def _place(dataset: Dataset, artifact_location: str, model_id: str, client: MlflowClient) -> None:
    """Put the dataset's files into the logged model."""
    root = local_folder(artifact_location)
    for name in dataset.files():
        source = dataset.local(name)
        if root is not None:
            _link(source, root / _ARTIFACTS / name)
        else:
            client.log_model_artifact(model_id, str(source), _ARTIFACTS)
            dataset.release(name)


def local_folder(uri: str) -> Path | None:
    """The folder that a URI of artifacts names on this machine; None for any other."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None if parsed.scheme else Path(uri)


def read_below(folder: Path, path: str) -> bytes | None:
    """A file among a run's artifacts, which a tag names that anyone may have written; None where there is none."""
    try:
        target = (folder / path).resolve(strict=True)
        return target.read_bytes() if target.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):
        return None


def _link(source: Path, target: Path) -> None:
    """Another name of the same file where the file system allows it: datasets never change."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
