"""Scores of a champion's predictions of nodes, and of a run's own, alike."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import correct, score


def scored_again(
    flow: Diagram, nodes: Mapping[str, Node], found: Node, network: Dataset, graph: Node, seen: Dataset
) -> tuple[Node, Node]:
    """Scores of the champion and of the run's own predictions, on nodes that the champion was not trained on.

    Args:
        flow: of the run.
        nodes: of its diagram; where it corrects predictions, the champion's are corrected too.
        found: what the champion's network predicts.
        network: the champion's network.
        graph: of the run.
        seen: the champion's own predictions, whose training and validation nodes do not count.
    """
    own = nodes["infer"]
    if "correct" in nodes:
        found = flow.stage(correct.STAGE, name="champion-correct", predictions=found, network=network, graph=graph)
        own = nodes["correct"]
    champion = flow.stage(score.STAGE, name="champion-score", predictions=found, seen=seen)
    return champion, flow.stage(score.STAGE, name="challenger-score", predictions=own, seen=seen)
