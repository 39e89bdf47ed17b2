"""Records as MLflow's own entities."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow.entities import Dataset as MlflowDataset
from mlflow.entities import DatasetInput, InputTag, Metric, Param
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from superworkflow.infra.base.masking import without_user
from superworkflow.infra.tracking.metric_keys import metric_key
from superworkflow.infra.tracking.records import StageRecord, Used

DIGEST_LENGTH = 32
"""Characters of a dataset's digest; MLflow's databases keep 36."""
BATCH = 1000
"""Most metrics of one call."""


def as_inputs(given: Sequence[Used], context: str) -> list[DatasetInput]:
    """As MLflow lists them."""
    return [
        DatasetInput(
            MlflowDataset(
                each.name, each.digest[:DIGEST_LENGTH], "superworkflow", json.dumps({"uri": without_user(each.uri)}),
                profile=json.dumps(dict(each.facts)) if each.facts else None,
            ),
            [InputTag(MLFLOW_DATASET_CONTEXT, context)],
        )
        for each in given
    ]  # fmt: skip


def as_outputs(record: StageRecord) -> list[DatasetInput]:
    """The dataset of a stage, so that a search for its digest finds who made it as well as who read it."""
    if record.state == "failed":
        return []
    facts = {"rows": record.rows, "bytes": record.bytes}
    return as_inputs([Used(record.stage, record.digest, record.output, facts)], "output")


def as_params(values: Mapping[str, Any]) -> list[Param]:
    return [Param(name, str(value)[:5000]) for name, value in values.items()]


def course_metrics(course: Mapping[str, Sequence[tuple[int, float]]], begin: str) -> list[Metric]:
    """Figures by step."""
    now = int(time.time() * 1000)
    return [
        Metric(metric_key(f"{begin}{name}"), value, now, step)
        for name, points in course.items()
        for step, value in points
    ]


def as_metrics(values: Mapping[str, float | int]) -> list[Metric]:
    now = int(time.time() * 1000)
    return [Metric(metric_key(name), float(value), now, 0) for name, value in values.items()]
