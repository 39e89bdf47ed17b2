"""Artifacts of recorded runs, read back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from superworkflow.infra.tracking.registry import local_folder, read_below

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
    if root and (below := local_folder(root)) is not None:
        return read_below(below, path)
    with tempfile.TemporaryDirectory(prefix="superworkflow-file-") as folder:
        try:
            return Path(client.download_artifacts(run_id, path, folder)).read_bytes()
        except (MlflowException, OSError):
            return None
