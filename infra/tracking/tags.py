"""Tags of recorded runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from superworkflow.infra.storage.safe_names import is_digest

SUPERWORKFLOW_TAG, STAGE_TAG = "superworkflow.name", "superworkflow.stage"
"""Tags of a run: its superworkflow; and of a run of a stage: the stage."""


PARENT_TAG, NAME_TAG, DESCRIPTION_TAG = "mlflow.parentRunId", "mlflow.runName", "mlflow.note.content"
AUTHOR_TAG, SOURCE_TAG, ROLE_TAG = "mlflow.user", "mlflow.source.name", "mlflow.data.context"
"""Tags of MLflow's own: of runs, and the last one of data that a run has read."""
EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag by which MLflow lists an experiment as one of model training."""


STORE_TAG = "superworkflow.store"
"""Tag of a run: URI of the store with its datasets."""


ERROR_TAG = "superworkflow.error"
"""Tag of a run: why it did not end well."""


OUTCOME_TAG = "superworkflow.outcome"
"""Tag of a run: what became of its model (`infra.tracking.decision.Verdict`), or `unchanged`."""


UNCHANGED = "unchanged"


TIMES_TAG, LAST_TAG = "superworkflow.times", "superworkflow.last"
"""Tags that count a day's runs with nothing to do, and name the time of the last."""


DEPLOYMENT_TAG, DEPLOYMENT_ID_TAG = "superworkflow.deployment", "superworkflow.deployment_id"
"""Tags of a run: name and id of the deployment that it is of."""


BEHIND = "superworkflow.behind"
"""Tag of a run with nothing to do: in which way the model in use is behind."""


SHORT = {DEPLOYMENT_TAG: "deployment", OUTCOME_TAG: "outcome", "superworkflow.decision": "decision",
         "superworkflow.model": "model", BEHIND: "behind"}  # fmt: skip
"""Further names of the tags that people look for: MLflow's pages cut long names, and show tags as they were set."""
IN_PROGRESS = "in progress"
"""Outcome, under its short name, of a run that has not ended: so that it is the first tag of all."""


def with_short(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags, first those under their short names."""
    return {**{SHORT[name]: text for name, text in tags.items() if name in SHORT}, **tags}


INPUTS_TAG = "superworkflow.inputs"
"""Tag of a run of a deployment with its own parameters: digest of all that its datasets and its promotion rest on."""


DATASETS_TAG = "superworkflow.datasets"
"""Tag of a model's version: digests by node of the datasets with which it can be scored again, and later ones
compared. Also of a run whose superworkflow declares drift: of the datasets that the next one is compared with."""


DATA_TAG = "superworkflow.data"
"""Tag of a model's version: digests by name of the sources that it was made from."""


DIGEST_TAG, STATE_TAG = "superworkflow.digest", "superworkflow.state"
"""Tags of a stage's run: digest of its dataset, and `ran`, `cached` or `failed`.
A model's version has the first too."""


PANELS, PANELS_TAG = "panels", "superworkflow.panels"
"""Folder of a run's artifacts that has its panels, and the tag that names them: titles by name."""


DRAWN_TAG = "superworkflow.drawn"
"""Tag of a run: keys of what its pictures and panels show, by their paths among its artifacts."""


LOGS = "logs"
"""Folder of a run's artifacts that has the logs of its stages, `<node>.txt`."""


CHANGED_TAG = "superworkflow.changed"
"""Tag of a run: dotted names of the parameters that are not the defaults."""


NOTE_TAG = "superworkflow.note"
"""Tag of a run: a person's note."""


def read_mapping(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a tag, which anyone may have written; empty where it holds none."""
    found = _parsed(text)
    return found if isinstance(found, dict) else {}


def read_texts(text: str) -> dict[str, str]:
    """The texts by name in a tag, which anyone may have written; none where it holds no such thing."""
    return {name: value for name, value in read_mapping(text).items() if isinstance(value, str)}


def read_times(tags: Mapping[str, str]) -> int:
    """Number of runs with nothing to do that a record stands for."""
    text = tags.get(TIMES_TAG, "1")
    return int(text) if text.isdecimal() else 1


def read_names(text: str) -> list[str] | None:
    """The names in a tag; None where it holds no list."""
    found = _parsed(text)
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else None


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_datasets(text: str) -> dict[str, str]:
    """The digests in a tag, which anyone may have written; none where it holds no such thing."""
    return {name: digest for name, digest in read_texts(text).items() if is_digest(digest)}
