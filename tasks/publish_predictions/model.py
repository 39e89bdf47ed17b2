"""The bundle as a model: what its registry and its users read of it. `serving` answers them."""

from __future__ import annotations

from superworkflow.infra.errors import UserError
from superworkflow.infra.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset


def card(bundle: Dataset) -> ModelCard:
    """The card of a bundle.

    Raises:
        UserError: the dataset is none.
    """
    if "bundle.json" not in bundle:
        raise UserError(
            "not a bundle that can be registered (no bundle.json)", where=bundle.uri,
            remedy="Give a dataset that the publish_predictions stage made",
        )  # fmt: skip
    facts = bundle.json("bundle.json")
    text, offsets = bundle.array("nodes.npy"), bundle.array("node_offsets.npy")
    first = bytes(text[offsets[0] : offsets[1]]).decode("utf-8")
    return ModelCard(
        kind="classification",
        columns=({"name": "node", "type": "string", "required": True},),
        example=({"node": first},),
        facts={"nodes": facts["nodes"], "classes": len(facts["classes"])},
        metadata={"metrics": facts["metrics"]},
    )
