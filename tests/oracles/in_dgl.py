"""In the environment of DGL and networkx: exhausting samples are their neighbourhoods, and draws are distributed alike.

in_dgl.py GRAPH SAMPLED    heterograph of citations, and subgraphs of two hops with all edges between their nodes
"""

import sys

import dgl
import networkx as nx
import numpy as np
import torch

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS, read_blocks
from tests.tasks.inclusion import inclusion_p_value, outcomes, two_hop_ops, two_hops

DRAWS, P_VALUE = 10_000, 1e-4


def dgl_graph(graph: HeteroGraph) -> dgl.DGLGraph:
    """Edges by their positions."""
    ends = {}
    for name, edges in graph.edge_sets.items():
        rows = graph.rows(name)
        sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        ends[edges.source, name, edges.target] = torch.from_numpy(sources), torch.from_numpy(rows.indices.astype(int))
    return dgl.heterograph(ends, {name: nodes.count for name, nodes in graph.node_sets.items()})


def check_neighbourhoods(graph: HeteroGraph, sampled: Dataset) -> None:
    """Each subgraph is DGL's, networkx's, and what DGL induces on its nodes."""
    (node_set,) = graph.node_sets
    whole = dgl_graph(graph)
    sources, targets = (each.numpy() for each in whole.edges())
    plain = nx.MultiDiGraph()
    plain.add_nodes_from(range(whole.num_nodes()))
    plain.add_edges_from((s, t, i) for i, (s, t) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)))
    compared = 0
    for split in SPLITS:
        for block in read_blocks(sampled, split):
            for s, seed in enumerate(block.seeds.tolist()):
                a, b = block.node_starts[0][s : s + 2]
                c, d = block.edge_starts[0][s : s + 2]
                nodes, edges = block.nodes[0][a:b], sorted(block.positions[0][c:d].tolist())
                assert nodes[0] == seed
                theirs, place = dgl.khop_out_subgraph(whole, {node_set: [seed]}, 2)
                places = {node_set: place[node_set]} if isinstance(place, dict) else {node_set: place}
                assert theirs.ndata[dgl.NID][places[node_set]].tolist() == [seed]
                assert sorted(theirs.ndata[dgl.NID].tolist()) == sorted(nodes.tolist())
                assert sorted(theirs.edata[dgl.EID].tolist()) == edges
                induced = dgl.node_subgraph(whole, {node_set: torch.from_numpy(nodes.astype(np.int64))})
                assert sorted(induced.edata[dgl.EID].tolist()) == edges
                inner = induced.edges()
                order = np.argsort(induced.edata[dgl.EID].numpy(), kind="stable")
                own = np.argsort(block.positions[0][c:d], kind="stable")
                assert inner[0].numpy()[order].tolist() == block.sources[0][c:d][own].tolist()
                assert inner[1].numpy()[order].tolist() == block.targets[0][c:d][own].tolist()
                ego = nx.ego_graph(plain, seed, radius=2)
                assert sorted(ego.nodes) == sorted(nodes.tolist())
                assert sorted(key for _, _, key in ego.edges(keys=True)) == edges
                compared += 1
    assert compared
    print(
        f"{compared} subgraphs of two hops are those of DGL's khop_out_subgraph and networkx; DGL induces their edges"
    )


def check_draws() -> None:
    """DGL's draws, a seed at a time, pass the test that ours pass: uniform, and in proportion to weights."""
    graph = two_hops()
    weights = torch.from_numpy(graph.features["aa"]["weight"])
    parts = {}
    for name, (source, target) in graph.ends.items():
        pairs = np.array(graph.edges[name]).T
        counts = {end: graph.nodes[end] for end in (source, target)}
        parts[name] = dgl.heterograph({(source, name, target): (pairs[0], pairs[1])}, num_nodes_dict=counts)
    parts["aa"].edata["weight"] = weights
    for strategy in ("RANDOM_UNIFORM", "RANDOM_WEIGHTED"):
        dgl.seed(1)
        ops, drawn = two_hop_ops(strategy), []
        for _ in range(DRAWS):
            fronts, found = {"seed": torch.tensor([0])}, set()
            for op in ops:
                front = torch.unique(torch.cat([fronts[given] for given in op.inputs]))
                source = graph.ends[op.edge_set][0]
                part = dgl.sampling.sample_neighbors(
                    parts[op.edge_set], {source: front}, op.size, edge_dir="out",
                    prob="weight" if op.strategy == "RANDOM_WEIGHTED" else None,
                )  # fmt: skip
                found |= {(op.edge_set, int(edge)) for edge in part.edata[dgl.EID]}
                fronts[op.name] = part.edges()[1]
            drawn.append(frozenset(found))
        p_value = inclusion_p_value(drawn, outcomes(graph, ops, 0, by_path=False))
        assert p_value > P_VALUE, (strategy, p_value)
        print(f"single edges and pairs in {DRAWS} of DGL's draws, {strategy}: p = {p_value:.3f}, as ours are tested")


opened = HeteroGraph.open(Dataset.open(sys.argv[1]))
check_neighbourhoods(opened, Dataset.open(sys.argv[2]))
check_draws()
