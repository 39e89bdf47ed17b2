"""Sums over the drawn edges of each receiver, with their gradients, on processors and on CUDA devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.sampler.kernels import spread_edges, sum_edges
from superworkflow.tasks.lib.gnn.sampler.weighted_kernels import spread_weighted, sum_weighted
from superworkflow.tasks.lib.kernels.arrays import read_only


class SampledEdges:
    """Drawn edges of one edge set as tensors.

    Args:
        starts: edge offsets of the receivers, int64 [receivers + 1], on the host.
        senders: rows of the senders, int32 [edges], on the host.
        device: device of the sums.
    """

    def __init__(self, starts: torch.Tensor, senders: torch.Tensor, device: torch.device):
        self.host_starts, self.host_senders = read_only(starts.numpy()), read_only(senders.numpy())
        self.starts, self.senders = starts.to(device), senders.to(device)
        self.counts = self.starts[1:] - self.starts[:-1]
        self._receivers: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.host_starts) - 1

    @property
    def receivers(self) -> torch.Tensor:
        """Row of each edge's receiver, int64 [edges]."""
        if self._receivers is None:
            places = torch.arange(len(self), device=self.starts.device)
            self._receivers = torch.repeat_interleave(places, self.counts)
        return self._receivers

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of the senders' rows of each receiver: values [senders, d], result [receivers, d]."""
        if values.device.type == "cpu":
            summed: torch.Tensor = _Sum.apply(values, self)  # type: ignore[no-untyped-call]
            return summed
        out = torch.zeros(len(self), values.shape[1], device=values.device, dtype=values.dtype)
        return out.index_add(0, self.receivers, self._rows(values))

    def sum_with(self, values: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """Sum of ReLU of the senders' rows [senders, d] plus those of the edges [edges, d], as `sum` does."""
        rows = self._weigh(torch.relu(values.index_select(0, self.senders) + added))
        return torch.zeros(len(self), rows.shape[1], device=rows.device).index_add(0, self.receivers, rows)

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Maximum of the senders' rows of each receiver, by column; 0 without senders."""
        rows = self._rows(values)
        out = torch.zeros(len(self), values.shape[1], device=values.device, dtype=values.dtype)
        places = self.receivers.unsqueeze(1).expand_as(rows)
        return out.scatter_reduce(0, places, rows, "amax", include_self=False)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        """Messages of the edges: [edges, d]."""
        return self._weigh(values.index_select(0, self.senders))

    def _weigh(self, rows: torch.Tensor) -> torch.Tensor:
        """Messages [edges, d] times the edges' weights."""
        return rows

    def add(self, values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """`sum` of rows on the host, by the compiled kernel."""
        sum_edges(values, self.host_starts, self.host_senders, out)

    def spread(self, values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """The transpose of `add`."""
        spread_edges(values, self.host_starts, self.host_senders, out)


class WeightedEdges(SampledEdges):
    """Drawn edges with weights, which multiply the rows of senders.

    Args:
        starts, senders, device: as in `SampledEdges`.
        weights: float32 [edges], on the host.
    """

    def __init__(self, starts: torch.Tensor, senders: torch.Tensor, weights: torch.Tensor, device: torch.device):
        super().__init__(starts, senders, device)
        self.host_weights, self.weights = read_only(weights.numpy()), weights.to(device)

    def _weigh(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.weights.unsqueeze(1)

    def add(self, values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        sum_weighted(values, self.host_starts, self.host_senders, self.host_weights, out)

    def spread(self, values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        spread_weighted(values, self.host_starts, self.host_senders, self.host_weights, out)


class _Sum(torch.autograd.Function):
    """`SampledEdges.sum` by the compiled kernels: each number is summed in the order of the edges."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, edges: SampledEdges) -> torch.Tensor:
        context.edges, context.rows = edges, len(values)
        out = torch.empty(len(edges), values.shape[1], dtype=torch.float32)
        edges.add(read_only(values.detach().contiguous().numpy()), out.numpy())
        return out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        out = torch.empty(context.rows, gradients[0].shape[1], dtype=torch.float32)
        context.edges.spread(read_only(gradients[0].contiguous().numpy()), out.numpy())
        return out, None


def softmax(scores: torch.Tensor, places: torch.Tensor, receivers: int) -> torch.Tensor:
    """Softmax of the scores [edges, heads] over the edges of each receiver."""
    wide = places.unsqueeze(1).expand_as(scores)
    largest = torch.full((receivers, scores.shape[1]), -torch.inf, device=scores.device, dtype=scores.dtype)
    largest = largest.scatter_reduce(0, wide, scores.detach(), "amax")
    powers = torch.exp(scores - largest.index_select(0, places))
    totals = torch.zeros(receivers, scores.shape[1], device=scores.device, dtype=scores.dtype)
    totals = totals.index_add(0, places, powers)
    return powers / totals.index_select(0, places)
