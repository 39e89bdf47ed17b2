"""The hops of the benchmark's spec by torch_geometric's NeighborLoader, one thread: a rooted subgraph a batch.

pyg_sampling.py GRAPH
{"subgraphs", "seed"} -> {"subgraphs", "edges", "wall_s", "cpu_s"}
A hop of the loader draws for all nodes that the hop before has met first. So cites is drawn in the first one, written
in two, writes and affiliated_with in the two after these, and has_topic in all: the same hops but for nodes that are
met more than once.
"""

import json
import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from pyg_operator import load_operator
from serving import Clock, serve
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader

HOPS = {
    "cites": [32, 0, 0, 0], "written": [8, 8, 0, 0], "writes": [0, 16, 16, 0], "affiliated_with": [0, 16, 16, 0],
    "has_topic": [16, 16, 16, 16],
}  # fmt: skip

torch.set_num_threads(1)
made: dict = {}


def prepare() -> dict:
    load_operator()
    folder = Path(sys.argv[1])
    described = json.loads((folder / "graph.json").read_text())
    graph, sizes = HeteroData(), {}
    for each in described["node_sets"]:
        graph[each["name"]].num_nodes = each["count"]
    for number, each in enumerate(described["edge_sets"]):
        indptr, indices = (np.load(folder / f"edges-{number}-{name}.npy") for name in ("indptr", "indices"))
        ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        # It draws from the edges that end in a node, so each set is turned round.
        kind = (each["target"], each["name"], each["source"])
        graph[kind].edge_index = torch.from_numpy(np.stack([indices.astype(np.int64), ends]))
        sizes[kind] = HOPS[each["name"]]
    made["papers"] = graph["paper"].num_nodes
    made["loader"] = NeighborLoader(graph, sizes, input_nodes="paper", batch_size=1)
    return {}


def answer(request: dict) -> dict:
    torch.manual_seed(request["seed"])
    seeds = np.random.default_rng(request["seed"]).integers(0, made["papers"], request["subgraphs"])
    edges = 0
    with Clock() as clock:
        for seed in seeds.tolist():
            edges += made["loader"]([seed]).num_edges
    return {"subgraphs": len(seeds), "edges": edges, **clock.seconds()}


serve(answer, prepare)
