"""Rows of all nodes that the inner layers of a network read: with these a new node costs its neighbours only."""

from __future__ import annotations

from superworkflow.tasks.lib.gnn.model.config import NetworkConfig


def inner_rows(shape: NetworkConfig) -> dict[tuple[int, str], str]:
    """Files of stage infer with what the layers from the second on read, by number of the layer and node set.

    Those that the last layer of a classifier or regression reads of its nodes are its `embeddings.parquet` instead.
    """
    numbers = shape.numbers()
    if shape.code:  # its layers are its own
        return {}
    return {
        (number, name): f"rows-{number}-{numbers[name]}.npy"
        for number, level in enumerate(shape.levels())
        for name in level.senders
        if number and not is_embedding(shape, number, name)
    }


def is_embedding(shape: NetworkConfig, layer: int, node_set: str) -> bool:
    """True if `embeddings.parquet` has what a layer, from 0, reads of a node set."""
    head = shape.head
    return 0 < layer == shape.layers - 1 and not shape.joins and not head.of_pairs and node_set in head.node_sets
