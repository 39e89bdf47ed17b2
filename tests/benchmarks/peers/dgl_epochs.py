"""Epochs of GraphConv or GATConv on a whole graph by DGL, one thread, GCN's sums over the features made before.

dgl_epochs.py MODEL VERTICES ARCS DROPOUT      {"side": "dgl"} -> {"wall_s", "cpu_s"}
"""

import os
import sys
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}

import dgl
import torch
from dgl.nn import GATConv, GraphConv
from epoch_graph import HEADS, RATE, WIDTHS, graph_of
from serving import Clock, serve
from torch.nn.functional import cross_entropy, dropout, elu

torch.set_num_threads(1)
made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    model, vertices, arcs, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    starts, senders, features, classes = graph_of(model, vertices, arcs)
    senders = torch.from_numpy(senders.astype("int32"))
    receivers = torch.repeat_interleave(torch.arange(vertices, dtype=torch.int32), torch.from_numpy(starts).diff())
    formats = ["csr", "csc"] if model == "gcn" else ["coo", "csr", "csc"]
    graph = dgl.add_self_loop(dgl.graph((senders, receivers), num_nodes=vertices)).formats(formats)
    graph.create_formats_()
    width, hidden, out = WIDTHS[model]
    rows, wanted = torch.from_numpy(features), torch.from_numpy(classes)
    torch.manual_seed(1)
    if model == "gcn":
        first, second = torch.nn.Linear(width, hidden), GraphConv(hidden, out)
        with torch.no_grad():
            rows = GraphConv(width, width, weight=False, bias=False)(graph, rows)
    else:
        first = GATConv(width, hidden // HEADS, HEADS, attn_drop=share)
        second = GATConv(hidden, out, 1, attn_drop=share)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=RATE)

    def epoch() -> float:
        read = dropout(rows, share)
        inner = torch.relu(first(read)) if model == "gcn" else elu(first(graph, read).flatten(1))
        loss = cross_entropy(second(graph, dropout(inner, share)).reshape(vertices, out), wanted)
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
