"""Epochs of GCNConv or GATConv on a whole graph by torch_geometric, one thread, the sums over the features made before.

pyg_epochs.py MODEL VERTICES ARCS DROPOUT      {"side": "pyg"} -> {"wall_s", "cpu_s"}

GCN's matrix is CSR, GAT's arcs a list, as GATConv takes them.
"""

import os
import sys
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from epoch_graph import HEADS, RATE, WIDTHS, graph_of
from serving import Clock, serve
from torch.nn.functional import cross_entropy, dropout, elu
from torch_geometric.nn import GATConv, GCNConv

torch.set_num_threads(1)
made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    model, vertices, arcs, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    starts, senders, features, classes = graph_of(model, vertices, arcs)
    receivers = np.repeat(np.arange(vertices), np.diff(starts))
    width, hidden, out = WIDTHS[model]
    rows, wanted = torch.from_numpy(features), torch.from_numpy(classes)
    torch.manual_seed(1)
    if model == "gcn":
        scales = 1 / np.sqrt(np.diff(starts) + 1)
        ends = np.concatenate([receivers, np.arange(vertices)]), np.concatenate([senders, np.arange(vertices)])
        values = torch.from_numpy((scales[ends[0]] * scales[ends[1]]).astype(np.float32))
        shape = (vertices, vertices)
        given: Any = torch.sparse_coo_tensor(torch.from_numpy(np.stack(ends)), values, shape).to_sparse_csr()
        convs = [torch.nn.Linear(width, hidden), GCNConv(hidden, out, normalize=False)]
        rows = given @ rows
    else:
        given = torch.from_numpy(np.stack([senders, receivers]))
        convs = [GATConv(width, hidden // HEADS, HEADS, dropout=share), GATConv(hidden, out, 1, dropout=share)]
    optimizer = torch.optim.Adam([each for conv in convs for each in conv.parameters()], lr=RATE)

    def epoch() -> float:
        read = dropout(rows, share)
        first = torch.relu(convs[0](read)) if model == "gcn" else elu(convs[0](read, given))
        loss = cross_entropy(convs[1](dropout(first, share), given), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    made["epoch"] = epoch
    return {"losses": [epoch(), epoch()]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        made["epoch"]()
    return clock.seconds()


serve(answer, prepare)
