"""A bundle of embeddings as a model in MLflow: logged under its run, registered under a name with an alias.

MLflow's own `log_model` copies artifacts three times and imports the model to guess what it needs. Here the model's
folder is laid out as MLflow does it, and the bundle's files go straight to the artifact root: linked where that is on
the same file system, uploaded one by one otherwise.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DIGEST_TAG = "superworkflow.digest"
"""Tag of a model version: the digest of the bundle in it."""

MODEL_FILE = Path(__file__).with_name("embedding_model.py")
_ARTIFACTS = "artifacts/bundle"
_REQUIREMENTS = ("mlflow", "numpy", "pandas")


@dataclass(frozen=True)
class RegisteredModel:
    """One version of a registered model.

    Args:
        name: registered name.
        version: number under that name.
        alias: alias that points to it.
        uri: what `mlflow.pyfunc.load_model` takes.
        model_id: MLflow's id of the logged model.
        digest: digest of the bundle.
        reused: the bundle had been registered under this name before, and only the alias moved.
        seconds: wall time of the calls to MLflow.
    """

    name: str
    version: int
    alias: str
    uri: str
    model_id: str
    digest: str
    reused: bool
    seconds: float


def register(bundle: Dataset, *, name: str, alias: str, run_id: str, tracking_uri: str) -> RegisteredModel:
    """Log a bundle as a model of a run and register it.

    A bundle that is registered under this name already is not registered again; the alias moves to its version.

    Args:
        bundle: dataset that the publish stage made.
        name: name to register under; made when it does not exist.
        alias: alias to set.
        run_id: run that the model belongs to.
        tracking_uri: of the tracking store, which is the registry too.

    Raises:
        UserError: the dataset is not a bundle, or MLflow refuses.
    """
    import mlflow
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    if "bundle.json" not in bundle:
        raise UserError(
            "not a bundle that can be registered (no bundle.json)", where=bundle.uri,
            remedy="Give a dataset that the publish stage made",
        )  # fmt: skip
    started = time.perf_counter()
    try:
        # The store resolves models:/… URIs against the process's tracking URI, whatever the client's is.
        mlflow.set_tracking_uri(tracking_uri)
        client = MlflowClient(tracking_uri, registry_uri=tracking_uri)
        found = _registered(client, name, bundle.digest)
        number, model_id = found or _log(bundle, name, run_id, client)
        client.set_registered_model_alias(name, alias, str(number))
    except MlflowException as error:
        raise UserError(
            f"MLflow did not register the model: {error.message}", where=f"{name}@{alias}",
            remedy="Check publish.name and publish.alias, and that the tracking server can be written",
        ) from error  # fmt: skip
    return RegisteredModel(
        name=name, version=number, alias=alias, uri=f"models:/{name}@{alias}", model_id=model_id, digest=bundle.digest,
        reused=found is not None, seconds=time.perf_counter() - started,
    )  # fmt: skip


def _registered(client: MlflowClient, name: str, digest: str) -> tuple[int, str] | None:
    """Version and model id of a bundle that was registered before and is still whole."""
    from mlflow.entities import LoggedModelStatus
    from mlflow.exceptions import MlflowException

    for found in client.search_model_versions(f"name = '{name}' and tag.`{DIGEST_TAG}` = '{digest}'"):
        model_id = (found.source or "").removeprefix("models:/")
        try:
            logged = client.get_logged_model(model_id)
        except MlflowException:  # deleted since
            continue
        root = _local_folder(logged.artifact_location)
        if logged.status == LoggedModelStatus.READY and (root is None or (root / "MLmodel").is_file()):
            return int(found.version), model_id
    return None


def _log(bundle: Dataset, name: str, run_id: str, client: MlflowClient) -> tuple[int, str]:
    """Log the model under the run and register it: its version and id."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.exceptions import MlflowException

    facts = bundle.json("bundle.json")
    tags = {DIGEST_TAG: bundle.digest}
    run = client.get_run(run_id)
    logged = client.create_logged_model(
        run.info.experiment_id, name=name, source_run_id=run_id, model_type="embeddings",
        tags=tags, params={key: str(facts[key]) for key in ("nodes", "dimensions", "metric")},
    )  # fmt: skip
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            _save(folder, bundle, facts, logged.model_id, run_id)
            client.log_model_artifacts(logged.model_id, str(folder))
        _place(bundle, logged.artifact_location, logged.model_id, client)
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


def _save(folder: Path, bundle: Dataset, facts: dict[str, Any], model_id: str, run_id: str) -> None:
    """Lay out the model without the bundle's files, but with their place in it."""
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model
    from mlflow.models.model import MLMODEL_FILE_NAME

    model = Model(run_id=run_id, model_id=model_id, model_uuid=model_id, metadata=_metadata(bundle, facts))
    with _quiet("mlflow.pyfunc"):
        mlflow.pyfunc.save_model(
            path=folder, mlflow_model=model, python_model=str(MODEL_FILE), signature=_signature(),
            input_example=(pd.DataFrame({"node": [_first_node(bundle)]}), {"task": "neighbors", "k": 5}),
            pip_requirements=[f"{package}=={version(package)}" for package in _REQUIREMENTS],
        )  # fmt: skip
    model.flavors["python_function"]["artifacts"] = {"bundle": {"path": _ARTIFACTS, "uri": bundle.uri}}
    model.model_size_bytes = bundle.manifest.bytes
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


def _first_node(bundle: Dataset) -> str:
    text, offsets = bundle.array("nodes.npy"), bundle.array("node_offsets.npy")
    return bytes(text[offsets[0] : offsets[1]]).decode("utf-8")


def _metadata(bundle: Dataset, facts: dict[str, Any]) -> dict[str, Any]:
    return {"digest": bundle.digest, **{key: facts[key] for key in ("nodes", "dimensions", "metric", "metrics")}}


def _signature() -> Any:
    """Columns and parameters of a request; the answer's columns depend on the task."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema

    return ModelSignature(
        inputs=Schema([
            ColSpec(DataType.string, "node", required=False),
            ColSpec(Array(DataType.double), "vector", required=False),
        ]),
        params=ParamSchema([ParamSpec("task", DataType.string, "vector"), ParamSpec("k", DataType.long, 10)]),
    )  # fmt: skip


def _place(bundle: Dataset, artifact_location: str, model_id: str, client: MlflowClient) -> None:
    """Put the bundle's files into the logged model."""
    root = _local_folder(artifact_location)
    for name in bundle.files():
        source = bundle.local(name)
        if root is not None:
            _link(source, root / _ARTIFACTS / name)
        else:
            client.log_model_artifact(model_id, str(source), _ARTIFACTS)
            bundle.release(name)


def _local_folder(uri: str) -> Path | None:
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None if parsed.scheme else Path(uri)


def _link(source: Path, target: Path) -> None:
    """Another name of the same file where the file system allows it: datasets never change."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
