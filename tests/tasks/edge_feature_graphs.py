"""Small graphs whose edges have features."""

from pathlib import Path

import numpy as np

from superworkflow.infra.storage.dataset import Dataset
from tests.tasks.heterographs import Edges, Nodes, write_heterograph


def graph_of(folder: Path, typed: bool = False, seed: int = 1, bad: bool = False) -> Dataset:
    """Thirty nodes; edges have a number, a vector, a code, and a text; with `typed` a second set reverses them."""
    rng = np.random.default_rng(seed)
    names = [f"n{i:02}" for i in range(30)]
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, 30, (90, 2)) if u != v})
    distance = rng.normal(5, 20, len(pairs)).astype(np.float32)
    if bad:
        distance[4] = np.nan
    features = {
        "distance": distance, "kind": rng.integers(0, 2, (len(pairs), 2)).astype(np.int64),
        "code": np.arange(len(pairs)), "text": ["x"] * len(pairs),
        "weight": np.ones(len(pairs), np.float32),
    }  # fmt: skip
    nodes = {
        "label": [f"k{i % 3}" for i in range(30)],
        "features": rng.normal(size=(30, 5)).astype(np.float32),
    }
    edges = {"edge": Edges("node", "node", [(names[u], names[v]) for u, v in pairs], features)}
    if typed:
        edges["reverse_edge"] = Edges("node", "node", reversed_of="edge")
    return write_heterograph(folder, {"node": Nodes(names, nodes)}, edges)
