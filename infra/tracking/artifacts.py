"""Artifacts of recorded runs, read back."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.utils.uri import is_local_uri

# Through MLflow's server. It offers addresses of its bucket, which answer where the server runs, and perhaps not here:
# MLflow then tries each for minutes.
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "false")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a line for each file, also in notebooks


def read_artifact(client: MlflowClient, run_id: str, path: str, root: str = "") -> bytes | None:
    """A file among a run's artifacts; None where there is none.

    Args:
        client: of the records.
        run_id: of the run.
        path: below `root`.
        root: URI of the run's artifacts; asked for where it is empty.
    """
    if root and is_local_uri(root):  # type: ignore[no-untyped-call]
        with suppress(MlflowException, OSError):
            file = LocalArtifactRepository(root).download_artifacts(path)  # type: ignore[no-untyped-call]
            return Path(file).read_bytes()
        return None
    with tempfile.TemporaryDirectory(prefix="superworkflow-file-") as folder:
        try:
            return Path(client.download_artifacts(run_id, path, folder)).read_bytes()
        except (MlflowException, OSError):
            return None
