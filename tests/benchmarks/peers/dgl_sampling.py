"""The hops of the benchmark's spec by DGL, one thread: `sample_neighbors` on one edge set, `unique` between the hops.

dgl_sampling.py GRAPH
{"subgraphs", "merged", "seed"} -> {"subgraphs", "edges", "wall_s", "cpu_s"}
"""

import json
import os
import sys
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}  # unset, DGL says on standard output what it takes

import dgl
import numpy as np
import torch
from serving import Clock, serve

torch.set_num_threads(1)
graphs: dict = {}
papers = 0


def prepare() -> dict:
    global papers
    folder = Path(sys.argv[1])
    described = json.loads((folder / "graph.json").read_text())
    counts = {each["name"]: each["count"] for each in described["node_sets"]}
    papers = counts["paper"]
    for number, each in enumerate(described["edge_sets"]):
        indptr, indices = (np.load(folder / f"edges-{number}-{name}.npy") for name in ("indptr", "indices"))
        kind = (each["source"], each["name"], each["target"])
        source = torch.from_numpy(np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr)))
        nodes = {end: counts[end] for end in (each["source"], each["target"])}
        graph = dgl.heterograph({kind: (source, torch.from_numpy(indices))}, num_nodes_dict=nodes).formats(["csr"])
        graph.create_formats_()
        graphs[each["name"]] = graph, each["source"]
    return {}


def answer(request: dict) -> dict:
    dgl.seed(request["seed"])
    seeds = np.random.default_rng(request["seed"]).integers(0, papers, request["subgraphs"]).astype(np.int32)
    edges = 0
    with Clock() as clock:
        for first in range(0, len(seeds), request["merged"]):
            edges += sample(torch.from_numpy(seeds[first : first + request["merged"]]))
    return {"subgraphs": len(seeds), "edges": edges, **clock.seconds()}


def sample(seeds: torch.Tensor) -> int:
    edges = 0

    def hop(name: str, front: torch.Tensor, size: int) -> torch.Tensor:
        nonlocal edges
        graph, source = graphs[name]
        targets = dgl.sampling.sample_neighbors(graph, {source: front}, size, edge_dir="out").edges(etype=name)[1]
        edges += len(targets)
        return targets

    cited = hop("cites", torch.unique(seeds), 32)
    authors = torch.unique(hop("written", torch.unique(torch.cat([seeds, cited])), 8))
    written = hop("writes", authors, 16)
    hop("affiliated_with", authors, 16)
    hop("has_topic", torch.unique(torch.cat([seeds, cited, written])), 16)
    return edges


serve(answer, prepare)
