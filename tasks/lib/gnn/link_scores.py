"""Scores of pairs of nodes: those of a network, and these corrected by short paths and degrees."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.gnn.sampler.links import HeldOut, Pairs, distinct_links, links_of, scores_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.integrity import damaged
from superworkflow.tasks.lib.graph.short_paths import Floats, PathSums, ShortPaths

LINK_CORRECTION = "link-correction.json"
Vectors = NDArray[np.float32]


class LinkCorrection(NamedTuple):
    """A pair's corrected score: `network` times the network's score, plus `two` times log(1 + the worth of its paths of
    two edges / `unit_two`), `three` likewise, `degrees` times the sum of log(1 + degree) of its nodes, and `constant`.

    An inner node of a path is worth 1 / its degree.
    """

    network: float
    two: float
    three: float
    degrees: float
    constant: float
    unit_two: float
    unit_three: float

    def scores(self, given: Vectors, sums: PathSums, log_degrees: Floats) -> Vectors:
        """Corrected scores, float32; `log_degrees`, the sum of both nodes' logarithms. All of one shape."""
        found = self.network * given + self.degrees * log_degrees + self.constant
        for weight, values, unit in ((self.two, sums.two, self.unit_two), (self.three, sums.three, self.unit_three)):
            found += weight * np.log1p(values / unit)
        return found.astype(np.float32)


@dataclass(frozen=True)
class LinkPaths:
    """Paths over the links of an edge set that a network learned from.

    Args:
        paths: of the nodes; those of two sets one after the other.
        shift: number of the first target among them.
    """

    paths: ShortPaths
    shift: int

    @classmethod
    def of(cls, graph: HeteroGraph, held_out: HeldOut, whole: bool = False) -> LinkPaths:
        """Paths over the links that are left in the graph, in either direction, and if `whole` over those held out."""
        edges = graph.edge_sets[held_out.edges]
        one_set = edges.source == edges.target
        sizes = graph.node_sets[edges.source].count, graph.node_sets[edges.target].count
        shift = 0 if one_set else sizes[0]
        links = links_of(graph.rows(edges.name), one_set)
        if whole:
            links = distinct_links(np.concatenate([links, *held_out.links.values()]).astype(np.uint64), one_set)
        return cls(ShortPaths(links + np.array([0, shift]), sizes[0] if one_set else sum(sizes)), shift)

    @cached_property
    def worth(self) -> Floats:
        """Worth of each node as an inner node, 1 / degree: a random walk takes each of its edges as often."""
        return 1 / np.maximum(self.paths.degrees, 1)

    @cached_property
    def log_degrees(self) -> Floats:
        """log(1 + degree) of each node."""
        return np.log1p(self.paths.degrees)

    def numbers(self, pairs: Pairs) -> Pairs:
        """Numbers of the nodes of pairs among those of the paths."""
        found: Pairs = pairs + np.array([0, self.shift])
        return found


class LinkScores:
    """Scores of pairs by the vectors of their nodes.

    Args:
        graph: of the nodes.
        held_out: what was held out of it.
        predictions: infer dataset of a network of its links.
    """

    def __init__(self, graph: HeteroGraph, held_out: HeldOut, predictions: Dataset):
        edges = graph.edge_sets[held_out.edges]
        self.sources = read_vectors(predictions, "embeddings.parquet", graph.node_sets[edges.source].count)
        self.targets = self.sources
        if edges.source != edges.target or "target_embeddings.parquet" in predictions:
            self.targets = read_vectors(predictions, "target_embeddings.parquet", graph.node_sets[edges.target].count)
        self.factors = predictions.array("factors.npy", mmap=False)
        width = self.sources.shape[1]
        if self.factors.shape != (width,) or width != self.targets.shape[1]:
            raise damaged(predictions, "factors.npy", "vectors have other widths")
        self._correction: tuple[LinkCorrection, LinkPaths] | None = None

    def corrected(self, correction: LinkCorrection, link_paths: LinkPaths) -> LinkScores:
        """Corrected scores by the same vectors, and by the paths that the correction reads."""
        found = copy.copy(self)
        found._correction = correction, link_paths
        return found

    def of_pairs(self, pairs: Pairs) -> Vectors:
        """Scores of pairs, float32 [pairs]."""
        given = scores_of(self.sources, self.targets, self.factors, pairs)
        if self._correction is None:
            return given
        by, there = self._correction
        numbers = there.numbers(pairs)
        return by.scores(given, there.paths.of_pairs(there.worth, numbers), there.log_degrees[numbers].sum(axis=1))

    def rows(self, side: int, nodes: NDArray[np.int64], others: Vectors) -> Vectors:
        """Scores of some nodes of a side, 0 of sources and 1 of targets, with all of the other, [nodes, others].

        Args:
            side: 0 or 1.
            nodes: int64 [nodes].
            others: the vectors of the other side.
        """
        given: Vectors = ((self.sources, self.targets)[side][nodes] * self.factors) @ others.T
        if self._correction is None:
            return given
        by, there = self._correction
        numbers, first = nodes + side * there.shift, 0 if side else there.shift
        columns = slice(first, first + len(others))
        for piece in there.paths.pieces(len(numbers)):
            sums = there.paths.from_nodes(there.worth, numbers[piece])
            logs = there.log_degrees[numbers[piece]][:, None] + there.log_degrees[columns]
            given[piece] = by.scores(given[piece], PathSums(*(each[:, columns] for each in sums)), logs)
        return given


def probabilities(scores: Vectors) -> Vectors:
    """Probabilities by scores that are logarithms of odds, of one shape."""
    return np.asarray(0.5 * (1 + np.tanh(scores / 2)), np.float32)


def read_correction(corrected: Dataset | None) -> LinkCorrection | None:
    """The correction that stage `correct_links` wrote; None where it left the scores as they are.

    Raises:
        DatasetDamaged: its file is not one.
    """
    if corrected is None or LINK_CORRECTION not in corrected:
        return None
    found = corrected.json(LINK_CORRECTION)
    if isinstance(found, Mapping) and set(LinkCorrection._fields) <= set(found):
        values = [found[name] for name in LinkCorrection._fields]
        if all(isinstance(each, (int, float)) and np.isfinite(each) for each in values) and min(values[-2:]) > 0:
            return LinkCorrection(*map(float, values))
    raise damaged(corrected, LINK_CORRECTION, "weights are finite numbers, and units above 0")


def read_vectors(predictions: Dataset, name: str, nodes: int) -> Vectors:
    """Vectors of all nodes of a set, float32 [nodes, width].

    Raises:
        UserError: the predictions have none.
        DatasetDamaged: they are not of as many nodes, or not finite.
    """
    if name not in predictions:
        raise UserError(f"the predictions have no {name}: they are of no links", where=predictions.uri,
                        remedy="Give the output of stage infer, of a network that predicts links")  # fmt: skip
    column = predictions.table(name, ["vector"])["vector"].combine_chunks()
    if len(column) != nodes:
        raise damaged(predictions, name, f"{nodes} vectors for as many nodes")
    vectors: Vectors = column.flatten().to_numpy().reshape(nodes, -1)
    if vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise damaged(predictions, name, "vectors are finite numbers")
    return vectors
