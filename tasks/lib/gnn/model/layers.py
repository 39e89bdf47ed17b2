"""Layers: from rows of senders and drawn edges to new rows of receivers.

- `SageLayer`: a receiver's own row and the mean, or the largest, of its neighbours' (Hamilton et al., NeurIPS 2017), a
  matrix for each edge set; with bases these are sums of a few (R-GCN; Schlichtkrull et al., ESWC 2018).
- `GcnLayer`: sum over neighbours and the node itself, each edge divided by the roots of both ends' degrees (Kipf and
  Welling, ICLR 2017). The sum over drawn neighbours is scaled to the number of all neighbours. With edge weights a
  degree is their sum, and messages are multiplied by them; means still divide by the number of neighbours, as
  torch_geometric's `GraphConv` and DGL's `SAGEConv` do.
- `GinLayer`: two linear layers of the sum of the node's row and its neighbours' (Xu et al., ICLR 2019), scaled and
  weighted as in `GcnLayer`. Between them are layer norm and ReLU: without a norm rows grow by the degree in every
  layer, and accuracy on Cora is .62 instead of .80. With features of edges a message is ReLU of the neighbour's row
  plus a linear layer of the edge's features (GINE; Hu et al., ICLR 2020).
- Layers with attention: `tasks.lib.gnn.model.attention`.

First weights are those of torch_geometric 2.8: SAGE's, GIN's and their biases are uniform within 1 / sqrt(width of the
input), as those of `torch.nn.Linear`; R-GCN's too, as DGL's `RelGraphConv` has those of relations. All others are by
Glorot and Bengio (2010), with biases of zero. Glorot's are larger where the output is narrow: on counts and 0/1
features SAGE, and with many edge sets R-GCN, would start at a loss far above log(classes). Where several edge sets
reach a node set, their matrices begin divided by the root of how many these are (`split_among_sets`), so that their sum
is not larger than one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from superworkflow.tasks.lib.gnn.model.aggregate import SampledEdges, WeightedEdges
from superworkflow.tasks.lib.gnn.model.concat import ConstantPart, MeanPart, Part, SelfPart, concat_parts
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.linear import Linear, product
from superworkflow.tasks.lib.gnn.relations import LayerSchema, Relation
from superworkflow.tasks.lib.kernels.bfloat16 import FLOAT32

Mask = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class LayerInputs:
    """Inputs of a layer.

    Args:
        receivers: number of receivers of each node set, which come first among the senders.
        senders: rows by node set after dropout, [nodes, width].
        edges: drawn edges, by number of the edge set.
        degrees: degrees of the receivers by number of the edge set, float32 [receivers]; with GCN, sums of weights.
        scales: for GCN, 1 / sqrt(degree + 1) of the senders, float32 [senders].
        sums: by number of the edge set, precomputed means of the receivers' neighbours after dropout; for GCN sums of
            the neighbours, each times its scale.
        attention: by number of the edge set, dropout of the attention of edges, and of the nodes themselves; empty for
            none.
        fixed: for layers that read means, inputs without gradients: own rows by node set, means by number of the edge
            set.
        messages: for such layers, precomputed messages to the receivers, by number of the edge set.
        precision: precision of products; see `linear.product`.
        edge_features: features of the drawn edges by number of the edge set, float32 [edges, values].
        own: for `SageLayer`, dropout of whole rows of the receivers themselves by node set, float32
            [receivers, 1].
    """

    receivers: Mapping[str, int]
    senders: Mapping[str, torch.Tensor]
    edges: Mapping[int, SampledEdges]
    degrees: Mapping[int, torch.Tensor]
    scales: torch.Tensor | None = None
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    attention: Mapping[int, tuple[Mask, Mask]] = field(default_factory=dict)
    fixed: Mapping[str | int, ConstantPart] = field(default_factory=dict)
    messages: Mapping[int, torch.Tensor] = field(default_factory=dict)
    precision: str = FLOAT32
    edge_features: Mapping[int, torch.Tensor] = field(default_factory=dict)
    own: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def row(self, node_set: str) -> torch.Tensor:
        """Rows of the receivers."""
        return self.senders[node_set][: self.receivers[node_set]]


class SageLayer(nn.Module):
    """See the module.

    Args:
        shape: configuration of the network.
        number: number of the layer, from 0.
        level: schema of the layer.
    """

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__()
        out = shape.width_out(number)
        self.level, self.out, self.pool = level, out, shape.model == "sage" and shape.aggregator == "pool"
        self.activates = shape.is_plain and shape.is_hidden(number)
        self.rectified = shape.is_plain and number > 0
        widths = {name: shape.width_in(number, name) for name in level.senders}
        self.sets = {name: str(number) for number, name in enumerate(level.receivers)}
        self.own = nn.ModuleDict({key: Linear(widths[name], out) for name, key in self.sets.items()})
        shared = shape.model == "rgcn" and shape.bases > 0 and len({widths[r.senders] for r in level.relations}) == 1
        self.bases: nn.Parameter | None = None
        if shared:
            width = widths[level.relations[0].senders]
            self.bases = nn.Parameter(torch.empty(shape.bases, out, width))
            self.parts = nn.Parameter(torch.empty(len(level.relations), shape.bases))
            nn.init.uniform_(self.bases, -(width**-0.5), width**-0.5)
            nn.init.xavier_uniform_(self.parts)
            numbers = [each.number for each in level.relations]
            split_among_sets(level, dict(zip(numbers, self.parts.data.unbind(), strict=True)))
        else:
            made = {each.number: Linear(widths[each.senders], out, bias=False) for each in level.relations}
            split_among_sets(level, {number: each.weight.data for number, each in made.items()})
            self.neighbours = nn.ModuleDict({str(number): each for number, each in made.items()})
        if self.pool:
            self.pools = nn.ModuleDict(
                {str(each.number): Linear(widths[each.senders], widths[each.senders]) for each in level.relations}
            )

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        """Rows of the receivers; after ReLU if the layer `activates`."""
        if self.pool:
            out = {name: self.own[key](given.row(name) * given.own.get(name, 1)) for name, key in self.sets.items()}
            for place, relation in enumerate(self.level.relations):
                out[relation.receivers] = out[relation.receivers] + self._pooled(given, relation, place)
            return {name: torch.relu(values) for name, values in out.items()} if self.activates else out
        read = self.read(given)
        return {name: self._made(given, name, rows) for name, rows in read.items()}

    def read(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        """Inputs of the products: a receiver's own row, concatenated with the means of its neighbours'."""
        device = next(self.parameters()).device
        found = {}
        for name in self.sets:
            sets = list(given.senders)
            parts: list[Part] = [given.fixed[name] if name in given.fixed else SelfPart(sets.index(name))]
            for relation in self._joined(given, name):
                number = relation.number
                mean = (
                    MeanPart(sets.index(relation.senders), given.edges[number]) if number not in given.fixed else None
                )
                parts.append(mean or given.fixed[number])
            rows = [given.senders[each] for each in sets]
            found[name] = concat_parts(
                given.receivers[name], parts, rows, self.rectified, device, given.precision
            )  # fmt: skip
            if name in given.own:
                width = self.own[self.sets[name]].in_features
                found[name] = torch.cat([found[name][:, :width] * given.own[name], found[name][:, width:]], 1)
        return found

    def _made(self, given: LayerInputs, name: str, rows: torch.Tensor) -> torch.Tensor:
        own: Linear = self.own[self.sets[name]]  # type: ignore[assignment]
        places = {relation.number: place for place, relation in enumerate(self.level.relations)}
        side_by_side = self._joined(given, name)
        apart = [each for each in self.level.relations if each.receivers == name and each not in side_by_side]
        weights = [own.weight, *(self._weight(places[each.number], each) for each in side_by_side)]
        whole = torch.cat(weights, 1) if len(weights) > 1 else own.weight
        if not apart:
            return product(rows, whole, own.bias, self.activates, self.activates, given.precision)
        out = product(rows, whole, own.bias, precision=given.precision)
        for relation in apart:
            if relation.number in given.messages:
                out = out + given.messages[relation.number]
            else:
                out = out + self._message(given, relation, self._weight(places[relation.number], relation))
        return torch.relu(out) if self.activates else out

    def _joined(self, given: LayerInputs, name: str) -> list[Relation]:
        """Edge sets whose means are concatenated with the own rows."""
        return [
            each for each in self.level.relations
            if each.receivers == name and each.number not in given.messages
            and (each.number in given.fixed or not self._is_apart(given, each))
        ]  # fmt: skip

    def _is_apart(self, given: LayerInputs, relation: Relation) -> bool:
        """True if edges have weights, or it is less work to multiply the senders' rows before taking means.

        That is the case if the product is narrower and there are at most twice as many senders as receivers.
        """
        rows = given.senders[relation.senders]
        narrows = self.out < rows.shape[1] and len(rows) <= 2 * given.receivers[relation.receivers]
        return narrows or isinstance(given.edges[relation.number], WeightedEdges)

    def _message(self, given: LayerInputs, relation: Relation, weight: torch.Tensor) -> torch.Tensor:
        edges, values = given.edges[relation.number], given.senders[relation.senders].float()
        if self.rectified:  # affects only the gradient, which the previous layer leaves to this one
            values = torch.relu(values)
        share = 1 / edges.counts.clamp(min=1).to(values.dtype).unsqueeze(1)
        if self.out < values.shape[1]:  # the mean commutes with the matrix
            return edges.sum(product(values, weight, None, precision=given.precision)) * share
        return product(edges.sum(values) * share, weight, None, precision=given.precision)

    def multiply(self, place: int, values: torch.Tensor, precision: str) -> torch.Tensor:
        """Senders' rows times the matrix of the level's relation at index `place`; their means are messages."""
        return product(values, self._weight(place, self.level.relations[place]), None, precision=precision)

    def _weight(self, place: int, relation: Relation) -> torch.Tensor:
        if self.bases is None:
            own: Linear = self.neighbours[str(relation.number)]  # type: ignore[assignment]
            return own.weight
        return torch.einsum("b,boi->oi", self.parts[place], self.bases)

    def _pooled(self, given: LayerInputs, relation: Relation, place: int) -> torch.Tensor:
        edges, values = given.edges[relation.number], given.senders[relation.senders]
        pooled = torch.relu(self.pools[str(relation.number)](values))
        return product(edges.largest(pooled), self._weight(place, relation), None)


class GcnLayer(nn.Module):
    """See the module; the graph has one edge set."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__()
        self.relation = level.relations[0]
        self.linear = glorot_linear(shape.width_in(number, self.relation.senders), shape.width_out(number))

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        relation, name = self.relation, self.relation.receivers
        degrees = given.degrees[relation.number]
        if relation.number in given.sums:
            own = torch.rsqrt(degrees + 1).unsqueeze(1)
            total = given.sums[relation.number] + given.row(name) * own
            return {name: self.linear(total * own)}
        assert given.scales is not None
        edges = given.edges[relation.number]
        own = given.scales[: len(edges)].unsqueeze(1)
        values = product(given.senders[name], self.linear.weight, None) * given.scales.unsqueeze(1)
        drawn = (degrees / edges.counts.clamp(min=1)).unsqueeze(1)
        return {name: (edges.sum(values) * drawn + values[: len(edges)]) * own + self.linear.bias}


class GinLayer(nn.Module):
    """See the module; the graph has one edge set."""

    def __init__(self, shape: NetworkConfig, number: int, level: LayerSchema):
        super().__init__()
        self.relation = level.relations[0]
        self.first = Linear(shape.width_in(number, self.relation.senders), shape.hidden)
        self.norm, self.second = nn.LayerNorm(shape.hidden), Linear(shape.hidden, shape.width_out(number))
        values = shape.edge_width(self.relation.name)
        self.of_edges = Linear(values, shape.width_in(number, self.relation.senders)) if values else None

    def forward(self, given: LayerInputs) -> dict[str, torch.Tensor]:
        name, edges = self.relation.receivers, given.edges[self.relation.number]
        drawn = (given.degrees[self.relation.number] / edges.counts.clamp(min=1)).unsqueeze(1)
        values, matrix = given.senders[name], self.first.weight
        narrows = len(matrix) < values.shape[1] and self.of_edges is None  # the sum commutes with the matrix
        if narrows:
            values = product(values, matrix, None)
        if self.of_edges is None:
            summed = edges.sum(values)
        else:
            summed = edges.sum_with(values, self.of_edges(given.edge_features[self.relation.number]))
        total = summed * drawn + values[: len(edges)]
        hidden = total if narrows else product(total, matrix, None)
        return {name: self.second(torch.relu(self.norm(hidden + self.first.bias)))}


def split_among_sets(level: LayerSchema, weights: Mapping[int, torch.Tensor]) -> None:
    """Divide first weights of edge sets, by number, by the root of how many sets have the same receivers.

    A sum of R independent messages has R times the variance of one: without it the first loss of a network on ten edge
    sets, with an edge of each node in each, is 6.3 for 30 classes, where log(classes) is 3.4.
    """
    counts = Counter(each.receivers for each in level.relations)
    for each in level.relations:
        weights[each.number].div_(counts[each.receivers] ** 0.5)


def glorot_linear(width: int, out: int, bias: bool = True) -> Linear:
    """A matrix by Glorot and Bengio (2010), and a bias of zeros."""
    linear = Linear(width, out, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
