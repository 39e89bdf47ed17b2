"""Layer and batch normalization of hidden rows, as torch_geometric's `LayerNorm(mode="node")` and `BatchNorm`.

Statistics of a batch are those of the rows that the layer makes in the step, each node once. Worker groups sum them
over all workers, and a node that several workers compute counts by 1 / workers, so they are those of one process.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

_MOMENTUM, _SMALL = 0.1, 1e-5


class BatchPeers(Protocol):
    """Workers that train on a step together; its methods are collective.

    `targets` is the number of this worker's targets in the step.
    """

    targets: int

    def shares(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 / number of workers that have the node, for each of this worker's."""

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of all workers' values, [n]."""


class BatchNorm(nn.Module):
    """Batch normalization (Ioffe and Szegedy, ICML 2015).

    In training by mean and variance of the step's rows, of which running means with momentum 0.1 are kept; these are
    used in evaluation, and for steps that have a single row.

    Args:
        width: width of the rows.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, rows: torch.Tensor, nodes: NDArray[np.int64], peers: BatchPeers | None) -> torch.Tensor:
        """Normalized rows.

        Args:
            rows: float32 [nodes, width].
            nodes: their nodes, int64.
            peers: other workers whose rows count.
        """
        if not self.training or (peers is None and len(rows) < 2):
            return self._scaled(rows, self.running_mean, self.running_var)
        if peers is None:
            kept = self.running_mean, self.running_var
            return functional.batch_norm(rows, *kept, self.weight, self.bias, True, _MOMENTUM, _SMALL)
        shares = torch.from_numpy(peers.shares(nodes)).to(rows.device).unsqueeze(1)
        wide = rows.double()
        weighted = wide * shares
        sums = torch.cat([weighted.sum(0), (weighted * wide).sum(0), shares.sum().reshape(1)])
        summed: torch.Tensor = _Total.apply(sums, peers)  # type: ignore[no-untyped-call]
        count = summed[-1].detach()
        if round(float(count)) < 2:
            return self._scaled(rows, self.running_mean, self.running_var) + 0 * summed[0].float()
        mean, square = (summed[:-1] / count).view(2, -1)
        variance = (square - mean * mean).clamp(min=0)
        with torch.no_grad():
            self.running_mean.lerp_(mean.float(), _MOMENTUM)
            self.running_var.lerp_((variance * count / (count - 1)).float(), _MOMENTUM)
        return self._scaled(rows, mean.float(), variance.float())

    def _scaled(self, rows: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return (rows - mean) * (torch.rsqrt(variance + _SMALL) * self.weight) + self.bias


class _Total(torch.autograd.Function):
    """Sum over all workers.

    The loss of a step weighs each worker's by its targets, and gradients are multiplied by this weight at the end: here
    those of other workers get their own weight instead.
    """

    @staticmethod
    def forward(context: Any, values: torch.Tensor, peers: BatchPeers) -> torch.Tensor:
        context.peers = peers
        return torch.from_numpy(peers.total(values.detach().cpu().numpy())).to(values.device)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        given, count = gradients[0], context.peers.targets
        total = context.peers.total((given * count).cpu().numpy())
        return torch.from_numpy(total / max(count, 1)).to(given.device), None


def norm_of(kind: str, width: int) -> nn.Module:
    """Norm of rows of this width: `layer` or `batch`."""
    return BatchNorm(width) if kind == "batch" else nn.LayerNorm(width)
