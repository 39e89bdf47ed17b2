"""Records as MLflow's own entities."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mlflow.entities import Dataset as MlflowDataset
from mlflow.entities import DatasetInput, InputTag, Metric

from superworkflow.infra.tracking.records import Used
from superworkflow.infra.tracking.run_tracker import Figure, dataset_columns
from superworkflow.infra.tracking.tags import ROLE_TAG


def as_inputs(given: Sequence[tuple[Used, str]]) -> list[DatasetInput]:
    """As MLflow lists them."""
    found = []
    for each, role in given:
        name, digest, kind, source, profile = dataset_columns(each)
        found.append(
            DatasetInput(MlflowDataset(name, digest, kind, source, profile=profile), [InputTag(ROLE_TAG, role)])
        )
    return found


def as_metrics(figures: Sequence[Figure]) -> list[Metric]:
    now = int(time.time() * 1000)
    return [Metric(key, value, now, step) for key, value, step in figures]
