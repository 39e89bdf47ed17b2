"""Artifacts of recorded runs: read back, and found by what they show."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.utils.uri import is_local_uri

from superworkflow.infra.tracking.tags import DRAWN_TAG, read_texts

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


def find_drawn(client: MlflowClient, experiment: str, keys: Mapping[str, str]) -> dict[str, bytes]:
    """Pictures and panels as the newest runs that have the keys attached them.

    Args:
        client: of the records.
        experiment: its id.
        keys: by path.

    Returns:
        Content by path, of those that were found.
    """
    found, left = dict[str, bytes](), dict(keys)
    while left:
        path, key = left.popitem()
        which = f"tags.`{DRAWN_TAG}` LIKE '%{key}%'"
        for run in client.search_runs([experiment], which, ViewType.ACTIVE_ONLY, 1, ["attributes.start_time DESC"]):
            theirs = {text: place for place, text in read_texts(run.data.tags.get(DRAWN_TAG, "")).items()}
            for own, text in {path: key, **left}.items():
                if text not in theirs:
                    continue
                content = read_artifact(client, run.info.run_id, theirs[text], run.info.artifact_uri)
                if content is not None:
                    found[own] = content
                    left.pop(own, None)
    return found
