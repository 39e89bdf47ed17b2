"""Layers in which neighbours are weighted by a softmax of learned scores.

- `GatLayer`: a score is the sum of one of each end (Veličković et al., ICLR 2018).
- `Gatv2Layer`: a score is a product with the activated sum of both ends' rows (Brody, Alon and Yahav, ICLR 2022). Both
  count the node itself as a neighbour.
- `RgatLayer`: GAT with matrices and scores of each edge set's own, summed over the edge sets, plus a matrix times the
  node's own row: torch_geometric's `HeteroConv` of a `GATConv` for each edge set. A softmax runs over the neighbours of
  one edge set, so what is drawn of one says nothing about the others; in HGT's, over all, the fan-out would weigh them.

Features of edges, where a network reads them, are one more term of the score: of GAT and R-GAT a product of their own,
of GATv2 in the activated sum. The edge of a node to itself has the mean of its drawn edges' features.

Biases of GATv2's matrices start as torch_geometric's: uniform within 1 / sqrt(width of the input).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from superworkflow.tasks.lib.gnn.model.aggregate import SampledEdges, softmax
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.layers import LayerInputs, Mask, glorot_linear, split_among_sets
from superworkflow.tasks.lib.gnn.model.linear import Linear
from superworkflow.tasks.lib.gnn.relations import LayerSchema

_SLOPE = 0.2
_Ends = tuple[torch.Tensor, torch.Tensor, int]


class _OneSet(nn.Module):
    """A layer for graphs of one node set and one edge set."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__()
        self.relation, out = level.relations[0], shape.width_out(number)
        self.width, self.out, self.heads = shape.width_in(number, self.relation.senders), out, _heads(shape, number)
        self.bias = nn.Parameter(torch.zeros(out))
        values = shape.edge_width(self.relation.name)
        self.edges = glorot_linear(values, out, bias=False) if values else None

    def edge_rows(self, given: LayerInputs) -> torch.Tensor:
        """Features of the edges times their matrix, then of each receiver to itself: [edges, heads, width]."""
        edges, values = given.edges[self.relation.number], given.edge_features[self.relation.number]
        total = torch.zeros(len(edges), values.shape[1], device=values.device).index_add(0, edges.receivers, values)
        mean = total / edges.counts.clamp(min=1).unsqueeze(1)
        assert self.edges is not None
        made: torch.Tensor = self.edges(torch.cat([values, mean]))
        return made.view(len(made), self.heads, -1)

    def ends(self, given: LayerInputs) -> _Ends:
        """Rows of senders and receivers of each edge, followed by each receiver itself, and the number of receivers."""
        edges = given.edges[self.relation.number]
        selves = torch.arange(len(edges), device=edges.senders.device)
        return torch.cat([edges.senders, selves]), torch.cat([edges.receivers, selves]), len(edges)

    def summed(
        self, given: LayerInputs, ends: _Ends, values: torch.Tensor, scores: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """The layer's output.

        Args:
            given: its inputs.
            ends: result of `ends`.
            values: rows of the senders, [senders, heads, width].
            scores: scores of the edges, [edges, heads].
        """
        senders, receivers, count = ends
        share = softmax(scores, receivers, count)
        if self.relation.number in given.attention:
            of_edges, of_nodes = given.attention[self.relation.number]
            drawn = len(share) - count
            share = torch.cat([of_edges(share[:drawn]), of_nodes(share[drawn:])])
        return {self.relation.receivers: _weighted_sum(values, share, senders, receivers, count) + self.bias}


class GatLayer(_OneSet):
    """See the module. A layer that makes the output has one head."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__(shape, number, level)
        self.linear = glorot_linear(self.width, self.out, bias=False)
        self.of_senders, self.of_receivers = (_scores(self.heads, self.out) for _ in range(2))
        self.of_edges = _scores(self.heads, self.out) if self.edges is not None else None

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        values = self.linear(given.senders[self.relation.senders]).view(-1, self.heads, self.of_senders.shape[1])
        senders, receivers, count = ends = self.ends(given)
        scores = (values * self.of_senders).sum(-1).index_select(0, senders)
        scores = scores + (values[:count] * self.of_receivers).sum(-1).index_select(0, receivers)
        if self.of_edges is not None:
            scores = scores + (self.edge_rows(given) * self.of_edges).sum(-1)
        return self.summed(given, ends, values, functional.leaky_relu(scores, _SLOPE))


class Gatv2Layer(_OneSet):
    """See the module. A layer that makes the output has one head."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__(shape, number, level)
        self.of_senders, self.of_receivers = (Linear(self.width, self.out) for _ in range(2))
        nn.init.xavier_uniform_(self.of_senders.weight)
        nn.init.xavier_uniform_(self.of_receivers.weight)
        self.scores = _scores(self.heads, self.out)

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        rows, by_head = given.senders[self.relation.senders], (-1, *self.scores.shape)
        senders, receivers, count = ends = self.ends(given)
        values, own = self.of_senders(rows).view(by_head), self.of_receivers(rows[:count]).view(by_head)
        both = values.index_select(0, senders) + own.index_select(0, receivers)
        if self.edges is not None:
            both = both + self.edge_rows(given)
        return self.summed(given, ends, values, (functional.leaky_relu(both, _SLOPE) * self.scores).sum(-1))


class RgatLayer(nn.Module):
    """See the module. A layer that makes the output has one head."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__()
        self.level, out, heads = level, shape.width_out(number), _heads(shape, number)
        widths = {name: shape.width_in(number, name) for name in level.senders}
        self.sets = {name: str(place) for place, name in enumerate(level.receivers)}
        self.own = nn.ModuleDict({key: glorot_linear(widths[name], out) for name, key in self.sets.items()})
        made = {
            each.number: _Attention(
                widths[each.senders], widths[each.receivers], out, heads, shape.edge_width(each.name)
            )
            for each in level.relations
        }  # fmt: skip
        split_among_sets(level, {number: each.linear.weight.data for number, each in made.items()})
        self.relations = nn.ModuleDict({str(number): each for number, each in made.items()})

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        out = {name: self.own[key](given.row(name)) for name, key in self.sets.items()}
        for each in self.level.relations:
            dropped = given.attention[each.number][0] if each.number in given.attention else None
            ends = given.senders[each.senders], given.row(each.receivers)
            features = given.edge_features.get(each.number)
            made = self.relations[str(each.number)](*ends, given.edges[each.number], dropped, features)
            out[each.receivers] = out[each.receivers] + made
        return out


class _Attention(nn.Module):
    """GAT over one edge set, without the nodes themselves and without bias; a node without edges gets zeros."""

    def __init__(self, sending: int, receiving: int, out: int, heads: int, values: int):
        super().__init__()
        self.linear, self.receiving = (glorot_linear(width, out, bias=False) for width in (sending, receiving))
        self.of_senders, self.of_receivers = (_scores(heads, out) for _ in range(2))
        self.edges = glorot_linear(values, out, bias=False) if values else None
        self.of_edges = _scores(heads, out) if values else None

    def forward(
        self, rows: torch.Tensor, own: torch.Tensor, edges: SampledEdges, dropped: Mask | None,
        features: torch.Tensor | None,
    ) -> torch.Tensor:  # fmt: skip
        by_head = (-1, *self.of_senders.shape)
        values, mine = self.linear(rows).view(by_head), self.receiving(own).view(by_head)
        scores = (values * self.of_senders).sum(-1).index_select(0, edges.senders)
        scores = scores + (mine * self.of_receivers).sum(-1).index_select(0, edges.receivers)
        if self.edges is not None:
            scores = scores + (self.edges(features).view(by_head) * self.of_edges).sum(-1)
        share = softmax(functional.leaky_relu(scores, _SLOPE), edges.receivers, len(edges))
        if dropped is not None:
            share = dropped(share)
        return _weighted_sum(values, share, edges.senders, edges.receivers, len(edges))


def _heads(shape: NetworkConfig, number: int) -> int:
    return shape.heads if shape.is_hidden(number) else 1


def _scores(heads: int, out: int) -> nn.Parameter:
    """Vector of each head that makes scores of rows."""
    made = nn.Parameter(torch.empty(heads, out // heads))
    nn.init.xavier_uniform_(made)
    return made


def _weighted_sum(
    values: torch.Tensor, share: torch.Tensor, senders: torch.Tensor, receivers: torch.Tensor, count: int
) -> torch.Tensor:
    """Sum of the senders' rows times the edges' shares, [count, heads x width]."""
    rows = (values.index_select(0, senders) * share.unsqueeze(-1)).flatten(1)
    return torch.zeros(count, rows.shape[1], device=rows.device).index_add(0, receivers, rows)
