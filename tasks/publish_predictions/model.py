"""The bundle as a model: what its registry and its users read of it. `serving` answers them."""

from __future__ import annotations

from superworkflow.infra.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks._bundle import facts_of


def card(bundle: Dataset) -> ModelCard:
    """The card of a bundle.

    Raises:
        UserError: the dataset is none.
    """
    facts, first = facts_of(bundle, "publish_predictions")
    return ModelCard(
        kind="classification",
        columns=({"name": "node", "type": "string", "required": True},),
        example=({"node": first},),
        facts={"nodes": facts["nodes"], "classes": len(facts["classes"])},
        metadata={"metrics": facts["metrics"]},
    )
