"""Epochs of GraphConv or GATConv on a whole graph by DGL, one thread, GCN's sums over the features made before.

dgl_epochs.py MODEL VERTICES ARCS DROPOUT      {"side": "dgl"} -> {"wall_s", "cpu_s"}
"""

import os

os.environ["DGLBACKEND"] = "pytorch"

from torch_epochs import Layers, serve_epochs  # isort: skip  # before torch: it sets the number of threads

import dgl
import torch
from dgl.nn import GATConv, GraphConv
from epoch_graph import HEADS, WIDTHS, graph_of


def layers_of(model: str, vertices: int, arcs: int, share: float) -> Layers:
    starts, senders, features, classes = graph_of(model, vertices, arcs)
    senders = torch.from_numpy(senders.astype("int32"))
    receivers = torch.repeat_interleave(torch.arange(vertices, dtype=torch.int32), torch.from_numpy(starts).diff())
    formats = ["csr", "csc"] if model == "gcn" else ["coo", "csr", "csc"]
    graph = dgl.add_self_loop(dgl.graph((senders, receivers), num_nodes=vertices)).formats(formats)
    graph.create_formats_()
    width, hidden, out = WIDTHS[model]
    rows, wanted = torch.from_numpy(features), torch.from_numpy(classes)
    if model == "gcn":
        linear, conv = torch.nn.Linear(width, hidden), GraphConv(hidden, out)
        with torch.no_grad():
            rows = GraphConv(width, width, weight=False, bias=False)(graph, rows)
        return Layers(linear, lambda read: conv(graph, read), (linear, conv), rows, wanted)
    first = GATConv(width, hidden // HEADS, HEADS, attn_drop=share)
    second = GATConv(hidden, out, 1, attn_drop=share)
    return Layers(
        lambda read: first(graph, read).flatten(1), lambda read: second(graph, read).flatten(1),
        (first, second), rows, wanted,
    )  # fmt: skip


serve_epochs(layers_of)
