"""Small graphs to train on, and dense networks that say what the layers are to compute."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data, data_of
from superworkflow.tasks.lib.gnn.objective.labels import targets_of
from superworkflow.tasks.lib.gnn.objective.node_prediction import Classification
from superworkflow.tasks.lib.gnn.sampler.kernels import ALL_NEIGHBORS
from superworkflow.tasks.lib.gnn.sampler.neighbor_sampler import Draws, NeighborSampler
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.train.data import shape_of
from superworkflow.tasks.train.params import TrainParams
from tests.tasks.heterographs import Edges, Nodes, write_heterograph

NODES, KINDS, WIDTH = 90, 3, 12


def one_kind(folder: Path, features: bool = True, seed: int = 1, weights: bool = False, rare: bool = False) -> Dataset:
    """A symmetric graph of three communities; a node's own features say little of its community.

    With weights some edges have none, others much. Of a rare class half of the nodes have another one.
    """
    rng = np.random.default_rng(seed)
    kind = np.arange(NODES) % KINDS
    names = [f"n{i:03}" for i in range(NODES)]
    pairs = {
        (int(u), int(v)) for u, v in rng.integers(0, NODES, (900, 2))
        if u != v and (kind[u] == kind[v] or rng.random() < 0.05)
    }  # fmt: skip
    rows = sorted({(names[a], names[b]) for u, v in pairs for a, b in ((u, v), (v, u))})
    given: dict[str, Any] = {
        "label": [f"k{1 if rare and k == 0 and i % 2 else k}" for i, k in enumerate(kind)],
        "split": [("train", "validation", "test")[(i // KINDS) % 3] for i in range(NODES)],
    }
    if features:
        given["features"] = (rng.normal(size=(NODES, WIDTH)) + np.eye(KINDS, WIDTH)[kind]).astype(np.float32)
    of_edges = {"weight": weights_for(len(rows)).astype(np.float32)} if weights else {}
    return write_heterograph(folder, {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows, of_edges)})


def weights_for(edges: int) -> np.ndarray:
    """A tenth of them 0, the others from 0.02 to 5."""
    rng = np.random.default_rng(9)
    return np.where(rng.random(edges) < 0.1, 0, np.exp(rng.uniform(-4, 1.6, edges)))


def two_kinds(folder: Path, weights: bool = False) -> Dataset:
    """Papers with features, authors without; edges both ways, of which those of one table may have weights."""
    rng = np.random.default_rng(2)
    papers, authors = [f"p{i:02}" for i in range(40)], [f"a{i:02}" for i in range(15)]
    venue = np.arange(40) % 2
    features = {"venue": venue, "numbers": (rng.normal(size=(40, 5)) + venue[:, None]).astype(np.float32)}
    cites = sorted({(papers[u], papers[v]) for u, v in rng.integers(0, 40, (150, 2)) if u != v})
    pairs = zip(rng.integers(0, 15, 90), rng.integers(0, 40, 90), strict=True)
    writes = sorted({(authors[a], papers[p]) for a, p in pairs})
    features_of: dict[str, Any] = {
        "order": np.arange(len(writes), dtype=np.int32)[:, None], "weight": weights_for(len(writes)),
        "role": ["first"] * len(writes), "place": np.ones((len(writes), 2), np.float32),
    }  # fmt: skip
    edges = {
        "cites": Edges("paper", "paper", cites),
        "writes": Edges("author", "paper", writes, features_of if weights else {}),
        "written": Edges("paper", "author", reversed_of="writes"),
    }  # fmt: skip
    return write_heterograph(folder, {"paper": Nodes(papers, features), "author": Nodes(authors)}, edges)


def prepared(dataset: Dataset, params: TrainParams) -> tuple[HeteroGraph, Any, NetworkConfig, Data]:
    """Graph, targets, configuration and inputs as stage train makes them, without precomputed means."""
    graph = HeteroGraph.open(dataset)
    targets = targets_of(graph, params.label, (params.train_share, params.validation_share), params.seed)
    shape = shape_of(graph, Classification(targets).head, params)
    return graph, targets, shape, data_of(graph, shape, None, False)


def sampler_of(
    shape: NetworkConfig, data: Data, sizes: tuple[int, ...], labor: bool = False, seed: int = 42
) -> NeighborSampler:
    return NeighborSampler(data.rows, shape.nodes, Draws(shape.levels(), sizes, labor, frozenset(), seed))


def everything(layers: int) -> tuple[int, ...]:
    return (ALL_NEIGHBORS,) * layers


def adjacency(graph: HeteroGraph, edge_set: str) -> torch.Tensor:
    """1 where a receiver (row) has an edge to a sender (column)."""
    edges = graph.edge_sets[edge_set]
    matrix = torch.zeros(graph.node_sets[edges.source].count, graph.node_sets[edges.target].count)
    indptr, indices = graph.rows(edge_set)
    for i in range(len(matrix)):
        matrix[i, torch.from_numpy(np.array(indices[indptr[i] : indptr[i + 1]], np.int64))] = 1
    return matrix


def edges_of(graph: HeteroGraph, name: str = "edge") -> torch.Tensor:
    """Senders and receivers, as messages go."""
    indptr, indices = graph.rows(name)
    receivers = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return torch.from_numpy(np.stack([indices.astype(np.int64), receivers]))
