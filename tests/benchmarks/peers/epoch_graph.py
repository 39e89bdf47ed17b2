"""A random undirected graph with features and classes, and what the networks that train on all of it have in common."""

import numpy as np

WIDTHS = {"gcn": (602, 128, 41), "gat": (128, 64, 41)}
"""Features, width of the hidden layer, and classes."""
HEADS, RATE = 8, 0.01
"""Heads of GAT's hidden layer; learning rate of Adam."""


def graph_of(model: str, vertices: int, arcs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts [vertices + 1] and senders of the arcs by receiver, features float32, and classes; ends are uniform."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, vertices, (arcs // 2, 2))
    receivers, senders = np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])
    order = np.lexsort((senders, receivers))
    starts = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(receivers, minlength=vertices), out=starts[1:])
    features = rng.normal(size=(vertices, WIDTHS[model][0])).astype(np.float32)
    return starts, senders[order], features, rng.integers(0, WIDTHS[model][-1], vertices)
