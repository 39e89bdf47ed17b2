"""Epochs of GCNConv or GATConv on a whole graph by torch_geometric, one thread, the sums over the features made before.

pyg_epochs.py MODEL VERTICES ARCS DROPOUT      {"side": "pyg"} -> {"wall_s", "cpu_s"}

GCN's matrix is CSR, GAT's arcs a list, as GATConv takes them.
"""

from torch_epochs import Layers, serve_epochs  # isort: skip  # before torch: it sets the number of threads

import numpy as np
import torch
from epoch_graph import HEADS, WIDTHS, graph_of
from torch_geometric.nn import GATConv, GCNConv


def layers_of(model: str, vertices: int, arcs: int, share: float) -> Layers:
    starts, senders, features, classes = graph_of(model, vertices, arcs)
    receivers = np.repeat(np.arange(vertices), np.diff(starts))
    width, hidden, out = WIDTHS[model]
    rows, wanted = torch.from_numpy(features), torch.from_numpy(classes)
    if model == "gcn":
        scales = 1 / np.sqrt(np.diff(starts) + 1)
        ends = np.concatenate([receivers, np.arange(vertices)]), np.concatenate([senders, np.arange(vertices)])
        values = torch.from_numpy((scales[ends[0]] * scales[ends[1]]).astype(np.float32))
        shape = (vertices, vertices)
        matrix = torch.sparse_coo_tensor(torch.from_numpy(np.stack(ends)), values, shape).to_sparse_csr()
        linear, conv = torch.nn.Linear(width, hidden), GCNConv(hidden, out, normalize=False)
        return Layers(linear, lambda read: conv(read, matrix), (linear, conv), matrix @ rows, wanted)
    arcs_of = torch.from_numpy(np.stack([senders, receivers]))
    first, second = (GATConv(*each, dropout=share) for each in ((width, hidden // HEADS, HEADS), (hidden, out, 1)))
    return Layers(
        lambda read: first(read, arcs_of), lambda read: second(read, arcs_of), (first, second), rows, wanted
    )  # fmt: skip


serve_epochs(layers_of)
