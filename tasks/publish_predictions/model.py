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
    facts, first = facts_of(bundle, "publish_predictions")
    if facts.get("task") == "link_prediction":
        own = "target_nodes.npy" in bundle
        text, offsets = (bundle.array(f"{'target_' * own}{name}.npy") for name in ("nodes", "node_offsets"))
        last = bytes(text[offsets[-2] : offsets[-1]]).decode("utf-8")
        return ModelCard(
            kind="link prediction",
            columns=tuple({"name": name, "type": "string", "required": True} for name in ("source", "target")),
            example=({"source": first, "target": last},),
            facts={"nodes": facts["nodes"]},
            metadata={"metrics": facts["metrics"]},
        )
    return ModelCard(
        kind="classification",
        columns=({"name": "node", "type": "string", "required": True},),
        example=({"node": first},),
        facts={"nodes": facts["nodes"], "classes": len(facts["classes"])},
        metadata={"metrics": facts["metrics"]},
    )
