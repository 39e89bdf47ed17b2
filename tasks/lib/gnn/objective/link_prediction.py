"""Link prediction: binary cross entropy of links and of at least as many pairs without a link.

A decoder scores the rows of two nodes: `dot`, their product, `distmult`, with a learned factor for each column (Yang et
al., ICLR 2015), or `complex`, which distinguishes a link from its reverse: columns are the real parts, then the
imaginary ones, of half as many numbers, and so are the factors; Re(sum(source * factors * conj(target)))
(Trouillon et al., ICML 2016). Where links have a direction, those without one back are learned against their reverse.

Pairs of any two nodes are those of tiles: as many pairs are drawn for a step as it has links, divided into tiles of
`negatives` each, and within a tile every source is paired with every target. So each link has that many pairs, while
the network makes rows of no more nodes than for one. Half of the loss is theirs, and a pair weighs by the softmax of
its score among as many of its tile that have each source and target once, through which no gradient goes (as in Sun et
al., RotatE, ICLR 2019). Links with one end replaced, and pairs that have the time of a link, are drawn for each link,
and count as much as it.

The edges of a step's links, and all edges that reverse them, pass no messages in that step; otherwise the network would
learn to detect them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.config import LINKS, Head
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.objective.base import Evaluation, Example, Gather, RowsByNodeSet, Step, alone
from superworkflow.tasks.lib.gnn.sampler.links import (
    Pairs,
    Places,
    directed_links_of,
    is_one_way,
    link_times,
    links_of,
    read_held_out,
    sides_of_nodes,
)
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import PAIRS, draw_negatives, edges_between
from superworkflow.tasks.lib.gnn.sampler.triples import queries
from superworkflow.tasks.lib.graph.heterograph import CsrRows as EdgeRows
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.graph.seed_times import UNTIMED
from superworkflow.tasks.lib.kernels.arrays import read_only

SHARE = 8
"""A step has at most one of this many links; the others pass messages."""
_NO_PAIR = -1e9
"""Score of a place in a tile that is no pair, such as that of a link: its loss and its weight are 0."""


class LinkPrediction:
    """An `Objective` whose items are links.

    Args:
        graph: a dataset of stage holdout_links.
        decoder: `dot`, `distmult`, `complex` or `auto`.
        width: width of the rows that it reads.
        negatives: pairs without a link for each link of a step.
        by: how they are drawn, `negative_sampling.PAIRS`, `UNIFORM` or `DEGREE`.
        seed: seed of these draws.
        batch: links of a step.

    Raises:
        UserError: no link is left to train on.
    """

    figure = "auc"
    is_constant = False
    doubts = ()

    def __init__(self, graph: HeteroGraph, decoder: str, width: int, negatives: int, by: int, seed: int,
                 batch: int):  # fmt: skip
        self.held_out = read_held_out(graph)
        self._edges = graph.edge_sets[self.held_out.edges]
        self._one_set = self._edges.source == self._edges.target
        self._rows = EdgeRows(*map(read_only, graph.rows(self._edges.name)))
        self._targets = graph.node_sets[self._edges.target].count
        self._directed = self.held_out.directed
        links = directed_links_of(self._rows) if self._directed else links_of(self._rows, self._one_set)
        self._links = read_only(links)
        self._one_way = is_one_way(links, links)
        decoder = decoder if decoder != "auto" else "complex" if self._directed and width % 2 == 0 else "distmult"
        if decoder == "complex" and width % 2:
            raise UserError("complex numbers need an even number of columns", where="train.hidden", value=width,
                            remedy="Set train.hidden to an even number, or another train.decoder")  # fmt: skip
        self._places = Places(graph, self._edges)
        self._sides = read_only(sides_of_nodes(graph, self._edges))
        self._negatives, self._by, self._seed = negatives, by, seed
        self._times: NDArray[np.int64] | None = None
        if len(self._links) < 2:
            raise UserError("no link is left to train on", where=graph.dataset.uri, value=len(self._links),
                            remedy="Hold fewer links out, or give a graph with more")  # fmt: skip
        self._tiles = -(-min(batch, self.most()) // negatives)
        ends = tuple(sorted({self._edges.source, self._edges.target}))
        self.head = Head(LINKS, ends, width, edges=self._edges.name, decoder=decoder)

    def set_times(self, times: NDArray[np.int64]) -> None:
        """Let no edge pass messages that is later than the link that it is for.

        Args:
            times: of the edges of the predicted set, int64 [edges].

        Raises:
            UserError: a held-out link has no time, or links have a direction.
        """
        if self._directed:
            raise UserError("links with a direction are learned without times", where="train.seed_time",
                            remedy="Leave it out, or set holdout_links.directed=false")  # fmt: skip
        for split, links in self.held_out.links.items():
            own = self.held_out.times.get(split)
            if len(links) and (own is None or (own == UNTIMED).any() or split in self.held_out.candidates):
                raise UserError(
                    f"links or pairs of the split {split} have no time, since they were given and are not in the graph",
                    where="train.seed_time", remedy="Leave --links out and set holdout_links.by=time, or leave "
                    "train.seed_time out",
                )  # fmt: skip
        self._times = link_times(self._rows, self._one_set, times, self._links)

    def items(self, split: str) -> NDArray[np.int64]:
        return np.arange(len(self._links if split == "train" else self.held_out.links[split]))

    def most(self) -> int:
        return max(1, len(self._links) // SHARE)

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        links = self._links if step[0] == random_streams.TRAINING else self.held_out.links["validation"]
        return self._edges.source, links[items, 0]

    def lost(self, items: NDArray[np.int64], step: Step) -> dict[int, NDArray[np.int64]]:
        return self._places.of(self._links[items]) if step[0] == random_streams.TRAINING else {}

    def seed_times(self, items: NDArray[np.int64], step: Step) -> NDArray[np.int64] | None:
        if self._times is None:
            return None
        return (self._times if step[0] == random_streams.TRAINING else self.held_out.times["validation"])[items]

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        own = self.seed_times(items, step)
        if step[0] != random_streams.TRAINING:
            given = self.held_out.links["validation"]
            parts = [given[items], self.held_out.others["validation"][items]]
            if self._directed:
                parts.append(given[items][is_one_way(given[items], given)][:, ::-1])
            times = None if own is None else np.concatenate([own, own])
            return self._example(np.concatenate(parts), len(items), {}, times)
        links, lost = self._links[items], self.lost(items, step)
        back = links[self._one_way[items]][:, ::-1] if self._directed else links[:0]
        if self._by == PAIRS and own is None and len(items):
            return self._tiled(np.concatenate([links, back]), len(items), lost, step)
        others = self._drawn(items, self._negatives, step)
        times = None if own is None else np.concatenate([own, np.repeat(own, self._negatives)])
        return self._example(np.concatenate([links, others, back]), len(items), lost, times)

    def _drawn(self, numbers: NDArray[np.int64], each: int, step: Step) -> Pairs:
        """Pairs without a link, as many for each number of a link, which no other number changes."""
        others = np.empty((len(numbers) * each, 2), np.int64)
        state = np.uint64(random_streams.state(self._seed, random_streams.NEGATIVE, *step))
        draw_negatives(
            self._rows.indptr, self._rows.indices, self._one_set, self._targets, self._links, self._by,
            read_only(numbers), each, state, others, self._sides,
        )  # fmt: skip
        return others

    def _tiled(self, pairs: Pairs, links: int, lost: dict[int, NDArray[np.int64]], step: Step) -> Example:
        """Example of pairs, of which the first are links, and tiles, which are the same on all workers: places of their
        sources and targets [tiles, negatives], and which of their pairs are none [tiles, source, target]."""
        own = self._drawn(np.arange(self._tiles * self._negatives) % len(self._links), 1, step)
        if len(self._sides) and not self._directed:  # sources on one side, targets on the other
            own = np.where((self._sides[own[:, 0]] == 2)[:, None], own[:, ::-1], own)
        plain = self._example(np.concatenate([pairs, own]), links, lost, None)
        tiles = own.reshape(self._tiles, self._negatives, 2)
        ends = np.broadcast_arrays(tiles[:, :, None, 0], tiles[:, None, :, 1])
        sources, targets = (read_only(each.reshape(-1).copy()) for each in ends)
        wrong = self._joined(sources, targets)
        if self._one_set:
            wrong |= self._joined(targets, sources) | (sources == targets)
        if len(self._sides):
            wrong |= self._sides[sources] == self._sides[targets]
        count = len(pairs)
        places = [each[count:].reshape(tiles.shape[:2]) for each in plain.wanted[:2]]
        rest = [each[:count] for each in plain.wanted]
        return plain._replace(wanted=(*rest, *places, wrong.reshape(ends[0].shape)))

    def _joined(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each pair with an edge from its source to its target."""
        firsts, counts = np.empty(len(sources), np.int64), np.empty(len(sources), np.int64)
        edges_between(self._rows.indptr, self._rows.indices, sources, targets, firsts, counts)
        return counts > 0

    def _example(
        self, pairs: Pairs, links: int, lost: dict[int, NDArray[np.int64]], times: NDArray[np.int64] | None
    ) -> Example:  # fmt: skip
        """Example of pairs, of which the first are links; with times of the pairs its nodes have limits."""
        ends = (self._edges.source, self._edges.target)
        is_link = np.arange(len(pairs)) < links
        if times is not None:
            found, limits, places = nodes_at_times(ends, pairs, times)
            return Example(found, lost, (*places, is_link), limits)
        nodes, places = nodes_of_pairs(ends, pairs)
        return Example(nodes, lost, (*places, is_link))

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        sources, targets = self._ends(rows, example)
        scores = decoded(network, sources, targets)
        wanted = _wanted(example, scores)
        if len(example.wanted) == 3:
            return functional.binary_cross_entropy_with_logits(scores, wanted)
        own = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        links = int(example.wanted[2].sum())
        return (own + links * self._loss_of_tiles(network, rows, example)) / self.mass(example)

    def _loss_of_tiles(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        """Mean loss of the pairs of tiles."""
        sources, targets = (
            _rows_at(rows[name], places.reshape(-1)).view(*places.shape, -1)
            for name, places in zip((self._edges.source, self._edges.target), example.wanted[3:5], strict=True)
        )
        scores = torch.bmm(sources, _turned(network, targets.flatten(0, 1)).view_as(targets).transpose(1, 2))
        scores = scores.masked_fill(torch.from_numpy(example.wanted[5]).to(scores.device), _NO_PAIR)
        numbers = torch.arange(scores.shape[1], device=scores.device)
        diagonals = (numbers[:, None] + numbers) % len(numbers)  # each has every source and every target once
        scores = scores.gather(2, diagonals.expand_as(scores))
        return (torch.softmax(scores.detach(), 1) * functional.softplus(scores)).sum(1).mean()

    def mass(self, example: Example) -> float:
        return float(len(example.wanted[0]) + (example.wanted[2].sum() if len(example.wanted) > 3 else 0))

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        """Evaluate each link's share of the non-links of the step that score lower; of equal scores, half do."""
        sources, targets = self._ends(rows, example)
        scores = decoded(network, sources, targets)
        wanted = _wanted(example, scores)
        links = int(wanted.sum())
        others = gather(scores[links:, None]).squeeze(1).sort().values
        if not links:
            return Evaluation(0.0, 0.0)
        loss, own = float(functional.binary_cross_entropy_with_logits(scores, wanted)), scores[:links].contiguous()
        below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
        return Evaluation(loss * links, float(below.double().sum()) / (2 * len(others)))

    def _ends(self, rows: RowsByNodeSet, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
        names = (self._edges.source, self._edges.target)
        sources, targets = (
            _rows_at(rows[name], places) for name, places in zip(names, example.wanted[:2], strict=True)
        )
        return sources, targets

    def save(self, output: FileWriter) -> None:
        """No files: the graph's dataset has the held-out links."""

    def facts(self) -> dict[str, Stat]:
        held_out = {f"{split}_links": len(pairs) for split, pairs in self.held_out.links.items()}
        return {"train_links": len(self._links), **held_out}


def nodes_of_pairs(ends: tuple[str, str], pairs: Pairs) -> tuple[dict[str, NDArray[np.int64]], list[NDArray[np.int64]]]:
    """The different ends of pairs, ascending, by node set, and the place among them of each source and target."""
    nodes = {
        name: np.unique(np.concatenate([pairs[:, i] for i, end in enumerate(ends) if end == name]))
        for name in sorted(set(ends))
    }
    return nodes, [np.searchsorted(nodes[end], pairs[:, i]) for i, end in enumerate(ends)]


def nodes_at_times(
    ends: tuple[str, str], pairs: Pairs, times: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]], list[NDArray[np.int64]]]:
    """The different ends of pairs with their times.

    Args:
        ends: node sets of sources and targets.
        pairs: int64 [pairs, 2].
        times: of the pairs, int64 [pairs].

    Returns:
        By node set the nodes, ascending, and the time of each, and the place among them of each source and target.
    """
    nodes, limits = {}, {}
    places = [np.empty(0, np.int64)] * 2
    for name in dict.fromkeys(ends):
        sides = [i for i, end in enumerate(ends) if end == name]
        rows = np.concatenate([np.stack([pairs[:, i], times], 1) for i in sides])
        distinct, index = np.unique(rows, axis=0, return_inverse=True)
        nodes[name], limits[name] = (np.ascontiguousarray(each) for each in distinct.T)
        for i, part in zip(sides, np.split(index.reshape(-1), len(sides)), strict=True):
            places[i] = part
    return nodes, limits, places


def decoded(network: Network, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Scores of pairs, float32 [pairs], from the rows of both ends [pairs, width]."""
    return (sources * _turned(network, targets)).sum(1)


def _turned(network: Network, targets: torch.Tensor) -> torch.Tensor:
    """Rows [n, width] by which those of sources are multiplied for the scores of pairs with targets."""
    if network.shape.head.decoder == "complex":
        turned: torch.Tensor = queries(targets, network.factors, "complex", True, torch.cat)
        return turned
    return targets if network.factors is None else targets * network.factors


def _rows_at(rows: torch.Tensor, places: NDArray[np.int64]) -> torch.Tensor:
    return rows.index_select(0, torch.from_numpy(places).to(rows.device))


def _wanted(example: Example, scores: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(example.wanted[2]).to(scores.device, scores.dtype)
