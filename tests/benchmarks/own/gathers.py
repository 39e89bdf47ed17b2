"""Sums of neighbours' rows in a random graph, by our kernel, torch.sparse and SciPy, in one process and by one thread.

    python -m tests.benchmarks.own.gathers VERTICES ARCS WIDTH [ours]
    {"side": float32, bfloat16, torch or scipy} -> {"wall_s", "cpu_s"}

Ends of arcs are uniform. Ours adds each vertex's own row too; all have int32 indices but torch, whose are int64, with
which it is faster. Tables are filled before, and kernels compiled. With `ours` there are no peers, for which large
graphs leave no memory.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows, publish_rows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import DTYPES
from superworkflow.tasks.lib.kernels.lanes import table_of
from tests.benchmarks.peers.epoch_graph import arcs_of
from tests.benchmarks.peers.serving import Clock, serve

sides: dict[str, Callable[[], Any]] = {}


def prepare() -> dict[str, Any]:
    torch.set_num_threads(1)
    vertices, arcs, width = map(int, sys.argv[1:4])
    starts, senders, rows = arcs_of(vertices, arcs, width)
    nodes = read_only(np.arange(vertices, dtype=np.int32))
    scales, out = np.ones(vertices, np.float32), np.zeros((vertices, width), np.float32)

    def ours(precision: str) -> Callable[[], Any]:
        table = table_of(vertices, width, DTYPES[precision])
        publish_rows(rows, scales, 0, table)

        def gather() -> Any:
            gather_rows(read_only(table), read_only(starts), read_only(senders), scales, nodes, out)
            return out

        return gather

    sides.update({precision: ours(precision) for precision in DTYPES})
    if sys.argv[4:] == ["ours"]:
        for side in sides.values():
            side()
        return {}
    ones = np.ones(arcs, np.float32)
    matrix, dense = sp.csr_matrix((ones, senders, starts), (vertices, vertices)), torch.from_numpy(rows)
    sparse = torch.sparse_csr_tensor(*map(torch.from_numpy, (starts, senders.astype(np.int64), ones)), matrix.shape)
    sides["scipy"], sides["torch"] = lambda: matrix @ rows, lambda: (sparse @ dense).numpy()
    wanted = matrix @ rows
    own = dict.fromkeys(DTYPES, rows)
    return {"apart": {name: float(np.abs(side() - own.get(name, 0) - wanted).max()) for name, side in sides.items()}}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        sides[request["side"]]()
    return clock.seconds()


serve(answer, prepare)
