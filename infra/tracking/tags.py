"""Tags of recorded runs."""

from __future__ import annotations

import json

from superworkflow.infra.storage.safe_names import is_digest

OUTCOME_TAG = "superworkflow.outcome"
"""Tag of a run: what became of its model (`infra.tracking.decision.Verdict`), or `unchanged`."""


UNCHANGED = "unchanged"


DEPLOYMENT_TAG, DEPLOYMENT_ID_TAG = "superworkflow.deployment", "superworkflow.deployment_id"
"""Tags of a run: name and id of the deployment that it is of."""


INPUTS_TAG = "superworkflow.inputs"
"""Tag of a run of a deployment with its own parameters: digest of all that its datasets and its promotion rest on."""


DATASETS_TAG = "superworkflow.datasets"
"""Tag of a model's version: digests by node of the datasets with which it can be scored again, and later ones
compared. Also of a run whose superworkflow declares drift: of the datasets that the next one is compared with."""


DATA_TAG = "superworkflow.data"
"""Tag of a model's version: digests by name of the sources that it was made from."""


def read_datasets(text: str) -> dict[str, str]:
    """The digests in a tag, which anyone may have written; none where it holds no such thing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: digest for name, digest in found.items() if isinstance(digest, str) and is_digest(digest)}
