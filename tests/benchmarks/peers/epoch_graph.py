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
    both = np.concatenate([pairs[:, 0] * vertices + pairs[:, 1], pairs[:, 1] * vertices + pairs[:, 0]])
    both.sort()
    receivers, senders = np.divmod(both, vertices)
    features = rng.standard_normal((vertices, WIDTHS[model][0]), np.float32)
    return _starts(receivers, vertices), senders, features, rng.integers(0, WIDTHS[model][-1], vertices)


def arcs_of(vertices: int, arcs: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts [vertices + 1], senders int32 of the arcs by receiver, and rows float32 [vertices, width]; all uniform."""
    rng = np.random.default_rng(1)
    starts = _starts(rng.integers(0, vertices, arcs), vertices)
    return starts, rng.integers(0, vertices, arcs, dtype=np.int32), rng.standard_normal((vertices, width), np.float32)


def _starts(receivers: np.ndarray, vertices: int) -> np.ndarray:
    return np.append(0, np.cumsum(np.bincount(receivers, minlength=vertices)))
