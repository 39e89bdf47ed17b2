"""Sums of neighbours' rows by DGL, one thread.

dgl_gather.py VERTICES ARCS WIDTH      {"side": "dgl"} -> {"wall_s", "cpu_s"}
"""

import os
import sys
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}

import dgl
import numpy as np
import torch
from epoch_graph import arcs_of
from serving import Clock, serve

torch.set_num_threads(1)
made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    vertices, arcs, width = map(int, sys.argv[1:4])
    starts, senders, rows = arcs_of(vertices, arcs, width)
    each = map(torch.from_numpy, (starts.astype(np.int32), senders, np.empty(0, np.int32)))
    graph = dgl.graph(("csc", tuple(each)), num_nodes=vertices)
    read = torch.from_numpy(rows)
    made["gather"] = lambda: dgl.ops.copy_u_sum(graph, read)
    wanted = rows[senders[: starts[1]]].sum(0)
    return {"apart": float((made["gather"]()[0] - torch.from_numpy(wanted)).abs().max())}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        made["gather"]()
    return clock.seconds()


serve(answer, prepare)
