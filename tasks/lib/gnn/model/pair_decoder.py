"""Decoders of pairs: of classes and numbers of edges a perceptron on the rows of both ends; of links their factors."""

from __future__ import annotations

import torch
from torch import nn

from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.model.config import MLP, Head
from superworkflow.tasks.lib.gnn.model.linear import Linear

NEGATIVE_SHARE = 8
"""One of this many of distmult's first factors is negative."""


class PairDecoder(nn.Module):
    """Linear, ReLU, linear on (source, target, source * target), so that (u, v) and (v, u) differ.

    Args:
        width: of the rows, and of the hidden layer.
        outputs: values of a pair.
    """

    def __init__(self, width: int, outputs: int):
        super().__init__()
        self.hidden, self.out = Linear(3 * width, width), Linear(width, outputs)

    def forward(self, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Scores of the classes of pairs, or standardised numbers, [pairs, outputs], from rows [pairs, width]."""
        joined = torch.cat([sources, targets, sources * targets], 1)
        made: torch.Tensor = self.out(torch.relu(self.hidden(joined)))
        return made


def decoder_of(head: Head, seed: int) -> PairDecoder | None:
    """Decoder of a network with these first weights; None if its task has another, or none."""
    if head.decoder != MLP:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random_streams.state(seed, random_streams.DECODER) >> 1)
        return PairDecoder(head.width, head.outputs)


def first_factors(head: Head) -> torch.Tensor:
    """First factors of the columns in decoders of links, [width], or for several relations [relations, width].

    `complex` scores as `dot` does, and `distmult` of several relations. Of one the last eighth is -1:
    (a + 1)(b + 1) - (c - 1)(d - 1) has the sum a + b + c + d, so that each node has a bias, and there is a threshold; a
    product without negative factors has none.
    """
    factors = torch.ones(*([len(head.relations)] if head.relations else []), head.width)
    if head.decoder == "complex":
        factors[..., head.width // 2 :] = 0.0
    elif head.decoder == "distmult" and not head.relations:
        factors[head.width - head.width // NEGATIVE_SHARE :] = -1.0
    return factors
