"""Scores of triples: by the vectors of heads and tails, and the factors of relations."""

from __future__ import annotations

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.gnn.link_scores import read_vectors
from superworkflow.tasks.lib.gnn.sampler.triples import HeldOutTriples, Sides, Triples, queries, triple_scores
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.metrics.ranks import Vectors


class TripleScores:
    """Scores of triples by a network of all relations.

    Args:
        graph: of the nodes.
        held_out: what was held out of it.
        predictions: infer dataset of the network.

    Raises:
        UserError: the predictions are of no links.
        DatasetDamaged: they are of other nodes or relations.
    """

    def __init__(self, graph: HeteroGraph, held_out: HeldOutTriples, predictions: Dataset):
        edges = graph.edge_sets[held_out.relations[0]]
        self.heads = read_vectors(predictions, "embeddings.parquet", graph.node_sets[edges.source].count)
        self.tails = self.heads
        if edges.source != edges.target:
            self.tails = read_vectors(predictions, "target_embeddings.parquet", graph.node_sets[edges.target].count)
        if "relations.json" not in predictions:
            raise damaged(predictions, "relations.json", "the predictions are of no relations")
        document: dict[str, object] = dict(predictions.json("relations.json"))
        self._factors: Vectors = predictions.array("factors.npy", mmap=False)
        shape = len(held_out.relations), self.heads.shape[1]
        if self._factors.shape != shape or tuple(document.get("relations") or ()) != held_out.relations:  # type: ignore[arg-type]
            raise damaged(predictions, "factors.npy", "factors of other relations or vectors")
        self._decoder = str(document["decoder"])

    def of(self, triples: Triples) -> Vectors:
        """Scores of triples, float32 [triples]."""
        return triple_scores(self.heads, self.tails, self._factors, self._decoder, triples)

    def sides(self, relation: int) -> Sides:
        """Vectors of a relation, whose products are scores."""
        own = self._factors[relation]
        return (
            (queries(self.heads, own, self._decoder, False), self.tails),
            (queries(self.tails, own, self._decoder, True), self.heads),
        )
