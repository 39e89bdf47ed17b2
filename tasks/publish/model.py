"""The bundle as a model: what its registry and its users read of it. `serving` answers them."""

from __future__ import annotations

from superworkflow.infra.contract.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.model_bundle import facts_of


def card(bundle: Dataset) -> ModelCard:
    """The card of a bundle.

    Raises:
        UserError: the dataset is none.
    """
    facts, first = facts_of(bundle, "publish")
    return ModelCard(
        kind="embeddings",
        columns=(
            {"name": "node", "type": "string", "required": False},
            {"name": "vector", "type": "array", "items": {"type": "double"}, "required": False},
        ),
        options={"task": "vector", "k": 10},
        example=({"node": first},),
        example_options={"task": "neighbors", "k": 5},
        facts={key: facts[key] for key in ("nodes", "dimensions", "metric")},
        metadata={"metrics": facts["metrics"]},
        answer=(
            {"name": "node", "type": "string", "required": False},
            {"name": "vector", "type": "array", "items": {"type": "double"}, "required": False},
            {"name": "neighbors", "type": "array", "items": {"type": "string"}, "required": False},
            {"name": "scores", "type": "array", "items": {"type": "double"}, "required": False},
            {"name": "error", "type": "string", "required": True},
        ),
    )
