"""The bundle as a model: what its registry and its users read of it. `serving` answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from superworkflow.infra.contract.outcomes import ModelCard
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.model_bundle import facts_of


def card(bundle: Dataset) -> ModelCard:
    """The card of a bundle.

    Raises:
        UserError: the dataset is none.
    """
    facts, first = facts_of(bundle, "publish_predictions")
    network = bundle.json("network.json") if "network.json" in bundle else None
    figures: dict[str, int | float | str] = {"nodes": facts["nodes"], "new_nodes": "yes" if network else "no"}
    task = facts.get("task")
    if task in ("link_prediction", "edge_classification", "edge_regression"):
        own = "target_nodes.npy" in bundle
        text, offsets = (bundle.array(f"{'target_' * own}{name}.npy") for name in ("nodes", "node_offsets"))
        last = bytes(text[offsets[-2] : offsets[-1]]).decode("utf-8")
        ends = ("source", "target")
        kinds = facts.get("relations", [])
        columns = (*ends, "relation") if kinds else ends
        more = [column for end in ends for column in describing(network, f"{end}_")]
        return ModelCard(
            kind=str(task).replace("_", " "),
            columns=(*({"name": name, "type": "string", "required": True} for name in columns), *more),
            example=({"source": first, "target": last} | ({"relation": kinds[0]} if kinds else {}),),
            facts=figures | ({"classes": len(facts["classes"])} if facts.get("classes") else {}),
            metadata={"metrics": facts["metrics"]},
            answer=_answer(columns, facts, link=task == "link_prediction"),
        )
    of_numbers = task == "node_regression"
    return ModelCard(
        kind="regression" if of_numbers else "classification",
        columns=({"name": "node", "type": "string", "required": True}, *describing(network)),
        example=({"node": first},),
        facts=figures if of_numbers else figures | {"classes": len(facts["classes"])},
        metadata={"metrics": facts["metrics"]},
        answer=_answer(("node",), facts),
    )


def _answer(question: Sequence[str], facts: Mapping[str, Any], link: bool = False) -> list[dict[str, Any]]:
    """Columns of an answer: the question's, a score of links, or a class or number with its probabilities, an error."""
    number: dict[str, Any] = {"type": "double"}
    several = bool(facts.get("several"))
    if link:
        made = {"score": number, "probability": number}
    elif facts.get("classes"):
        each = {"type": "string"}, number
        one = [{"type": "array", "items": kind} if several else kind for kind in each]
        made = {"predicted": one[0], "probability": one[1], "probabilities": {"type": "map", "values": number}}
    else:
        made = {"predicted": number}
    words = [{"name": name, "type": "string", "required": True} for name in question]
    figures = [{"name": name, **kind, "required": False} for name, kind in made.items()]
    return [*words, *figures, {"name": "error", "type": "string", "required": True}]


def describing(network: Mapping[str, Any] | None, prefix: str = "") -> list[dict[str, Any]]:
    """Columns of a request that describe new nodes, where the bundle has its network."""
    if network is None:
        return []
    columns = {
        "features": {"type": "array", "items": {"type": "double"}},
        "neighbors": {"type": "array", "items": {"type": "string"}},
    }
    return [{"name": f"{prefix}{name}", **kind, "required": False} for name, kind in columns.items()]
