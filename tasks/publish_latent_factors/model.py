"""The factors as a model: what its registry and its users read of it. `tasks.publish.serving` answers them."""

from __future__ import annotations

from superworkflow.infra.contract.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.model_bundle import facts_of


def card(bundle: Dataset) -> ModelCard:
    """The card of a bundle.

    Raises:
        UserError: the dataset is none.
    """
    facts, user = facts_of(bundle, "publish_latent_factors", "user_")
    _, item = facts_of(bundle, "publish_latent_factors", "item_")
    text = {"type": "string", "required": False}
    return ModelCard(
        kind="ratings",
        columns=({"name": "user", "type": "string", "required": True}, {"name": "item", **text}),
        options={"task": "rating", "k": 10, "rated": False},
        example=({"user": user, "item": item},),
        facts={key: facts[key] for key in ("users", "items", "factors")},
        answer=(
            {"name": "user", **text},
            {"name": "item", **text},
            {"name": "rating", "type": "double", "required": False},
            {"name": "items", "type": "array", "items": {"type": "string"}, "required": False},
            {"name": "ratings", "type": "array", "items": {"type": "double"}, "required": False},
            {"name": "error", "type": "string", "required": True},
        ),
    )
