"""Layers of GCN, GIN and GAT over all nodes by the kernels of whole graphs.

Each row is multiplied once, and none is copied for an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.attention import GatLayer
from superworkflow.tasks.lib.gnn.model.graph_inputs import Data
from superworkflow.tasks.lib.gnn.model.layers import GcnLayer, GinLayer
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.whole_graph.attention_kernels import (
    attend,
    lanes_of,
    padded_width,
    publish_heads,
    without_padding,
)
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows, publish_rows
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.lanes import GROUP, table_of

Rows = NDArray[np.float32]
Gather = Callable[[int, Rows], None]
"""Fills rows of the nodes from a first one on, before norm and activation."""


def whole_layer(
    network: Network, data: Data, number: int, rows: Mapping[str, Rows], batch: int
) -> Gather | None:  # fmt: skip
    """A layer's gather over all nodes, whose senders' rows are multiplied now.

    Args:
        network: the trained network.
        data: edges of these nodes, and degrees.
        number: number of the layer, from 0.
        rows: inputs of these nodes by node set, followed by those of further senders.
        batch: rows that are multiplied together.

    Returns:
        The gather, which threads may call; None for layers that have no such kernel, with weights or features of edges,
        or on a GPU.
    """
    layer, inputs = network.layers[number], data.inputs
    if network.device.type != "cpu" or inputs.weights or inputs.edge_features:
        return None
    if isinstance(layer, GcnLayer):
        return _gcn(layer, data, rows[layer.relation.senders], batch)
    if isinstance(layer, GinLayer):
        return _gin(layer, data, rows[layer.relation.senders], batch)
    return _gat(layer, data, rows[layer.relation.senders], batch) if isinstance(layer, GatLayer) else None


def gathered(gather: Gather, out: Rows, batch: int) -> Iterator[slice]:
    """Fill the rows of all nodes, `batch` at a time in as many threads as kernels have; yields what is done."""
    pieces = [slice(first, min(len(out), first + batch)) for first in range(0, len(out), batch)]

    def fill(own: slice) -> slice:
        gather(own.start, out[own])
        return own

    with ThreadPoolExecutor(nb.get_num_threads()) as threads:
        yield from threads.map(fill, pieces)


def _gcn(layer: GcnLayer, data: Data, rows: Rows, batch: int) -> Gather:
    assert data.inputs.degrees is not None
    scales = (1 / np.sqrt(data.inputs.degrees[: len(rows)] + 1)).astype(np.float32)
    bias, arcs = layer.linear.bias.numpy(), data.rows[layer.relation.number]
    summed = _sums(arcs, rows, layer.linear.weight, scales, batch)

    def gather(first: int, out: Rows) -> None:
        summed(first, out)
        out += bias

    return gather


def _gin(layer: GinLayer, data: Data, rows: Rows, batch: int) -> Gather:
    matrix = layer.first.weight
    narrows = len(matrix) < rows.shape[1]  # the sum commutes with the matrix
    ones, width = np.ones(len(rows), np.float32), min(len(matrix), rows.shape[1])
    summed = _sums(data.rows[layer.relation.number], rows, matrix if narrows else None, ones, batch)

    @torch.no_grad()  # which holds for one thread
    def gather(first: int, out: Rows) -> None:
        found = np.empty((len(out), width), np.float32)
        summed(first, found)
        hidden = torch.from_numpy(found) if narrows else torch.from_numpy(found) @ matrix.T
        out[:] = layer.second(torch.relu(layer.norm(hidden + layer.first.bias))).numpy()

    return gather


def _sums(arcs: CsrRows, rows: Rows, matrix: torch.Tensor | None, scales: Rows, batch: int) -> Gather:
    """Sums of each node's row and its senders', times a matrix if there is one, and times both ends' scales."""
    table = table_of(len(rows), rows.shape[1] if matrix is None else len(matrix), np.float32)
    for own in _pieces(rows, batch):
        made = as_tensor(rows[own])
        publish_rows((made if matrix is None else made @ matrix.T).numpy(), scales, own.start, table)
    starts, senders = map(read_only, arcs)

    def gather(first: int, out: Rows) -> None:
        nodes = read_only(np.arange(first, first + len(out), dtype=np.int32))
        gather_rows(table, starts, senders, scales, nodes, out)

    return gather


def _gat(layer: GatLayer, data: Data, rows: Rows, batch: int) -> Gather:
    heads, width = layer.of_senders.shape
    lanes, bias = lanes_of(heads), layer.bias.numpy()
    table = table_of(len(rows), heads * padded_width(width), np.float32, GROUP)
    sending, receiving = (np.zeros((len(rows), lanes), np.float32) for _ in range(2))
    numbers = read_only(np.empty(0, np.uint64))
    for own in _pieces(rows, batch):
        made = layer.linear(as_tensor(rows[own]))
        publish_heads(made.numpy(), heads, own.start, table)
        for scores, vectors in ((sending, layer.of_senders), (receiving, layer.of_receivers)):
            scores[own, :heads] = (made.view(-1, heads, width) * vectors).sum(-1).numpy()
    starts, senders = map(read_only, data.rows[layer.relation.number])

    def gather(first: int, out: Rows) -> None:
        nodes = read_only(np.arange(first, first + len(out), dtype=np.int32))
        found, none = np.empty((len(out), table.shape[1]), np.float32), np.empty((0, table.shape[1]), np.float32)
        slopes, logs = (np.empty((len(out), lanes), np.float32) for _ in range(2))
        attend(
            table, sending, receiving[first : first + len(out)], heads, starts, senders, nodes, numbers, 0,
            np.zeros(len(out), np.uint64), found, none, slopes, logs,
        )  # fmt: skip
        out[:] = without_padding(found, heads, width) + bias

    return gather


def _pieces(rows: Rows, batch: int) -> Iterator[slice]:
    return (slice(first, min(len(rows), first + batch)) for first in range(0, len(rows), batch))


def as_tensor(rows: Rows) -> torch.Tensor:
    """Rows, which may be of float16, as a tensor of float32."""
    return torch.from_numpy(np.array(rows, np.float32))
