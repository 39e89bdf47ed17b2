"""A network of one's own for `gnn`: `superworkflow run gnn ... --set train.model=./examples/own_model.py:MeanNet`.

The class is used as it would be with torch_geometric's loaders: `forward(x, edge_index)` gives a row for each node.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class MeanNet(nn.Module):
    """Layers that add the mean of a node and its neighbours to what a node has, over all of its layers.

    Args:
        in_channels: width of the features.
        hidden_channels: width of the layers.
        out_channels: number of classes.
        num_layers: number of times that neighbours are read.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int):
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(nn.Linear(hidden_channels, hidden_channels) for _ in range(num_layers - 1))
        self.last = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores of the classes, [nodes, out_channels]."""
        rows = self.first(functional.dropout(x, 0.5, self.training))
        rows = mean(rows, edge_index)
        for layer in self.layers:
            rows = functional.dropout(torch.relu(rows), 0.5, self.training)
            rows = mean(rows + layer(rows), edge_index)
        return self.last(functional.dropout(torch.relu(rows), 0.5, self.training))


def mean(rows: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """Mean of each node's row and the rows of its neighbours."""
    senders, receivers = edge_index
    total = rows.index_add(0, receivers, rows.index_select(0, senders))
    counts = torch.bincount(receivers, minlength=len(rows)) + 1
    return total / counts.unsqueeze(1)
