"""Link prediction over all relations of a knowledge graph: triples head, relation, tail against corrupted ones.

The decoder has factors of each relation: `distmult` (Yang et al., ICLR 2015), or `complex` (Trouillon et al., ICML
2016), which also learns relations that have a direction. Half of a triple's corruptions have another tail, half another
head. The loss is binary cross entropy, half of it of the triples, half of their corruptions, each weighed by the
softmax of its score among those of its triple, through which no gradient goes (Sun et al., RotatE, ICLR 2019).

The edges of a step's triples, and those that reverse them, pass no messages in that step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
from superworkflow.tasks.lib.gnn.objective.link_prediction import SHARE
from superworkflow.tasks.lib.gnn.sampler.kernels import keys_of
from superworkflow.tasks.lib.gnn.sampler.links import Places
from superworkflow.tasks.lib.gnn.sampler.triples import Triples, loop_free, queries, read_triples, triples_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import distinct
from superworkflow.tasks.lib.metrics.ranks import ranks_among

RANKED_AMONG = 1 << 14
"""Nodes at most among which triples are ranked while training; of more those of the least hash."""
_TRIES = 8


class TriplePrediction:
    """An `Objective` whose items are triples.

    Args:
        graph: a dataset of stage holdout_links, of all relations.
        decoder: `auto`, `distmult` or `complex`; auto takes complex where `width` is even.
        width_of: width of the rows that it reads, by the number of triples to train on.
        negatives: corruptions of each triple of a step.
        seed: seed of these draws.

    Raises:
        UserError: no triple is left to train on, or the decoder does not distinguish relations.
    """

    figure = "mrr"
    is_constant = False
    doubts = ()

    def __init__(self, graph: HeteroGraph, decoder: str, width_of: Callable[[int], int], negatives: int, seed: int):
        self.held_out = read_triples(graph)
        names = self.held_out.relations
        sets = [graph.edge_sets[name] for name in names]
        self._ends = sets[0].source, sets[0].target
        self._counts = graph.node_sets[self._ends[0]].count, graph.node_sets[self._ends[1]].count
        self._triples = triples_of(graph, names)
        self._places = [Places(graph, each, directed=True) for each in sets]
        self._negatives, self._seed = negatives, seed
        width = width_of(len(self._triples))
        decoder = decoder if decoder != "auto" else "distmult" if width % 2 else "complex"
        if decoder == "dot":
            raise UserError("this decoder scores all relations alike", where="train.decoder", value=decoder,
                            remedy="Set train.decoder to distmult or complex")  # fmt: skip
        if decoder == "complex" and width % 2:
            raise UserError("complex numbers need an even number of columns", where="train.hidden", value=width,
                            remedy="Set train.hidden to an even number, or train.decoder=distmult")  # fmt: skip
        if len(self._triples) < 2:
            raise UserError("no triple is left to train on", where=graph.dataset.uri, value=len(self._triples),
                            remedy="Hold fewer triples out, or give a graph with more")  # fmt: skip
        seen = np.concatenate([self._triples, self.held_out.triples["validation"]])
        self._known = {purpose: tuple(TrueTriples(true_triples, each, self._counts) for each in (False, True))
                       for purpose, true_triples in ((random_streams.TRAINING, self._triples),
                                              (random_streams.VALIDATION, seen))}  # fmt: skip
        self._loop_free = loop_free(self._triples, len(names), self._ends[0] == self._ends[1])
        self._candidates = [_candidates(count, seed) for count in self._counts]
        ends = tuple(sorted(set(self._ends)))
        self.head = Head(LINKS, ends, width, edges=names[0], decoder=decoder, relations=names)

    def items(self, split: str) -> NDArray[np.int64]:
        return np.arange(len(self._triples if split == "train" else self.held_out.triples[split]))

    def most(self) -> int:
        return max(1, len(self._triples) // SHARE)

    def home(self, items: NDArray[np.int64], step: Step) -> tuple[str, NDArray[np.int64]]:
        return self._ends[0], self._of(step)[items, 0]

    def lost(self, items: NDArray[np.int64], step: Step) -> dict[int, NDArray[np.int64]]:
        if step[0] != random_streams.TRAINING:
            return {}
        triples = self._triples[items]
        lost: dict[int, NDArray[np.int64]] = {}
        for number in np.unique(triples[:, 1]):
            lost |= self._places[number].of(triples[triples[:, 1] == number][:, ::2])
        return lost

    def seed_times(self, items: NDArray[np.int64], step: Step) -> None:
        return None

    def example(self, items: NDArray[np.int64], step: Step) -> Example:
        """Example whose `wanted` are places of heads and of tails, numbers of relations, places of other tails and of
        other heads [items, corruptions], and in validation places of the tails and heads to rank among."""
        triples = self._of(step)[items]
        others = [self._corrupted(triples, items, step, side) for side in (0, 1)]
        ranked = self._candidates if step[0] != random_streams.TRAINING and len(items) else [items[:0]] * 2
        parts = [[triples[:, 0], others[1], ranked[0]], [triples[:, 2], others[0], ranked[1]]]
        nodes = {
            name: np.unique(np.concatenate([
                each.reshape(-1) for end, side in zip(self._ends, parts, strict=True) if end == name for each in side
            ]))
            for name in sorted(set(self._ends))
        }  # fmt: skip
        heads, tails = (
            [np.searchsorted(nodes[end], each) for each in side]
            for end, side in zip(self._ends, parts, strict=True)
        )  # fmt: skip
        wanted = (heads[0], tails[0], triples[:, 1], tails[1], heads[1], tails[2], heads[2])
        return Example(nodes, self.lost(items, step), wanted)

    def _of(self, step: Step) -> Triples:
        return self._triples if step[0] == random_streams.TRAINING else self.held_out.triples["validation"]

    def _corrupted(
        self, triples: Triples, items: NDArray[np.int64], step: Step, side: int
    ) -> NDArray[np.int64]:  # fmt: skip
        """Other tails (side 0) or heads (1) of triples, [triples, corruptions], which make no true triple unless every
        try fails: a function of the triple's number and of the step, in validation the same in all epochs."""
        purpose = step[0]
        each = max(1, (self._negatives + 1 - side) // 2)
        numbers = (items[:, None] * each + np.arange(each)).reshape(-1)
        kept, relations = (np.repeat(triples[:, column], each) for column in (2 * side, 1))
        out, todo, words = np.empty(len(numbers), np.int64), np.arange(len(numbers)), np.empty(len(numbers), np.uint64)
        when = step if purpose == random_streams.TRAINING else (purpose, 0, 0)
        for turn in range(_TRIES):
            state = random_streams.state(self._seed, random_streams.NEGATIVE, *when, side, turn)
            keys_of(numbers[todo], np.uint64(state), words[: len(todo)])
            out[todo] = words[: len(todo)] % np.uint64(self._counts[1 - side])
            todo = todo[self._known[purpose][side].has(kept[todo], relations[todo], out[todo])]
            if not len(todo):
                break
        return out.reshape(-1, each)

    def loss(self, network: Network, rows: RowsByNodeSet, example: Example) -> torch.Tensor:
        of_heads, of_tails, own = self._queries(network, rows, example)
        scores = torch.cat([
            torch.bmm(self._taken(rows, 1, example.wanted[3]), of_heads[:, :, None]).squeeze(2),
            torch.bmm(self._taken(rows, 0, example.wanted[4]), of_tails[:, :, None]).squeeze(2),
        ], 1)  # fmt: skip
        wrong = (torch.softmax(scores.detach(), 1) * functional.softplus(scores)).sum(1)
        return 0.5 * (functional.softplus(-own) + wrong).mean()

    def mass(self, example: Example) -> float:
        return float(len(example.wanted[0]))

    def judge(self, network: Network, rows: RowsByNodeSet, example: Example, gather: Gather = alone) -> Evaluation:
        """Evaluate each triple's reciprocal rank, the mean of both ends', among those without true triples."""
        heads, tails, relations, *_, tails_there, heads_there = example.wanted
        if not len(heads):
            return Evaluation(0.0, 0.0)
        loss = float(self.loss(network, rows, example))
        *both, own = self._queries(network, rows, example)
        ranks = []
        ends = [example.nodes[name][places] for name, places in zip(self._ends, (heads, tails), strict=True)]
        loops = self._loop_free[relations] & (ends[0] == ends[1])
        for side, others in enumerate((tails_there, heads_there)):
            there, nodes = self._known[random_streams.VALIDATION][side], example.nodes[self._ends[1 - side]][others]
            hidden = partial(there.among, ends[side], relations, nodes, self._loop_free)
            found = ranks_among(both[side], self._taken(rows, 1 - side, others), hidden, own)
            found[loops] = len(nodes)
            ranks.append(found)
        return Evaluation(loss * len(heads), float((1 / np.stack(ranks)).mean(0).sum()))

    def _queries(
        self, network: Network, rows: RowsByNodeSet, example: Example
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries of the triples' heads and of their tails, [triples, width], and the triples' scores."""
        assert network.factors is not None
        heads, tails, relations = example.wanted[:3]
        factors = network.factors[torch.from_numpy(relations).to(network.factors.device)]
        of_tail = self._taken(rows, 1, tails)
        of_heads = queries(self._taken(rows, 0, heads), factors, self.head.decoder, False, torch.cat)
        of_tails = queries(of_tail, factors, self.head.decoder, True, torch.cat)
        return of_heads, of_tails, (of_heads * of_tail).sum(1)

    def _taken(self, rows: RowsByNodeSet, side: int, places: NDArray[np.int64]) -> torch.Tensor:
        """Rows of heads (side 0) or tails (1) at these places of the example, [..., width]."""
        values = rows[self._ends[side]]
        taken = values.index_select(0, torch.from_numpy(places.reshape(-1)).to(values.device))
        return taken.reshape(*places.shape, values.shape[1])

    def save(self, output: FileWriter) -> None:
        """No files: the graph's dataset has the held-out triples."""

    def facts(self) -> dict[str, Stat]:
        held_out = {f"{split}_links": len(each) for split, each in self.held_out.triples.items()}
        return {"relations": len(self.held_out.relations), "train_links": len(self._triples), **held_out}


class TrueTriples:
    """The true triples of each end and relation.

    Args:
        triples: int64 [n, 3].
        of_tails: their other ends are heads, else tails.
        counts: number of the nodes where triples begin, and where they end.
    """

    def __init__(self, triples: Triples, of_tails: bool, counts: tuple[int, int]):
        self._kept, self._others = counts[::-1] if of_tails else counts
        ends = triples[:, ::-1] if of_tails else triples
        self._keys = distinct(self._key(ends[:, 0], ends[:, 1], ends[:, 2]))

    def _key(self, kept: NDArray[np.int64], relations: NDArray[np.int64], others: Any) -> NDArray[np.int64]:
        keys: NDArray[np.int64] = (relations * self._kept + kept) * self._others + others
        return keys

    def has(
        self, kept: NDArray[np.int64], relations: NDArray[np.int64], others: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """True for each triple that is there."""
        keys = self._key(kept, relations, others)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: NDArray[np.bool_] = self._keys[places] == keys
        return found

    def of(self, kept: NDArray[np.int64], relations: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the questions [m], ascending, and their other ends [m]."""
        firsts, ends = (np.searchsorted(self._keys, self._key(kept, relations, end)) for end in (0, self._others))
        counts = ends - firsts
        places = np.arange(counts.sum()) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
        return np.repeat(np.arange(len(kept)), counts), self._keys[places] % self._others

    def among(
        self, kept: NDArray[np.int64], relations: NDArray[np.int64], nodes: NDArray[np.int64],
        free: NDArray[np.bool_], part: slice,
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:  # fmt: skip
        """Indices of the scores of some questions, [questions of the part, nodes], whose triples are not ranked.

        Args:
            kept, relations: kept ends and relations of all questions.
            nodes: the nodes that are ranked, ascending.
            free: relations without loops, in which a node is not ranked with itself; see `sampler.triples.loop_free`.
            part: the questions.
        """
        rows, ends = self.of(kept[part], relations[part])
        alone = np.flatnonzero(free[relations[part]])
        rows, ends = np.concatenate([rows, alone]), np.concatenate([ends, kept[part][alone]])
        places = np.minimum(np.searchsorted(nodes, ends), len(nodes) - 1)
        there = nodes[places] == ends
        return [(torch.from_numpy(rows[there]), torch.from_numpy(places[there]))]


def _candidates(count: int, seed: int) -> NDArray[np.int64]:
    """Nodes among which triples are ranked, ascending."""
    if count <= RANKED_AMONG:
        return np.arange(count)
    keys = random_streams.words(np.arange(count), seed, random_streams.NON_LINK)
    return np.sort(np.argsort(keys, kind="stable")[:RANKED_AMONG])
