"""Some of the subgraphs of a block, by compiled kernels: lists of any lengths, and rows of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks._bytes import copy_bytes
from superworkflow.tasks._subgraphs import Block


@nb.njit(cache=True, nogil=True, error_model="numpy")
def gather_lists(values: Any, width: Any, starts: Any, picks: Any, ends: Any, out: Any) -> None:
    """Copy some lists behind each other.

    Args:
        values: uint8 [width * all lengths], of `width` bytes each; starts: int64 [lists + 1], where each list begins.
        picks: int64 [n], which lists.
        ends: int64 [n + 1], where each one goes to.
        out: uint8 [width * ends[n]], is filled.
    """
    for i in range(len(picks)):
        copy_bytes(out, width * ends[i], values, width * starts[picks[i]], width * (ends[i + 1] - ends[i]))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def place_ends(places: Any, edge_starts: Any, node_starts: Any, out: Any) -> bool:
    """Places of edges' ends among the nodes of all subgraphs, from those in each one.

    Args:
        places: int32 [e].
        edge_starts, node_starts: int64 [b + 1], where the edges and nodes of each subgraph begin.
        out: int64 [e], is filled.

    Returns:
        False where a place is none of its subgraph's nodes.
    """
    good = True
    for s in range(len(edge_starts) - 1):
        begin, count = node_starts[s], node_starts[s + 1] - node_starts[s]
        for i in range(edge_starts[s], edge_starts[s + 1]):
            place = np.int64(places[i])
            good &= (place >= 0) & (place < count)
            out[i] = begin + place
    return good


@nb.njit(cache=True, nogil=True, error_model="numpy")
def gather_rows(table: Any, width: Any, rows: Any, out: Any) -> None:
    """Copy rows of a table: table uint8 [n * width], rows int64 [m] below n, out uint8 [m * width]."""
    for i in range(len(rows)):
        copy_bytes(out, i * width, table, rows[i] * width, width)


def take(block: Block, picks: NDArray[np.int64]) -> Block:
    """Some subgraphs of a block, in this order."""
    nodes = [_picked(starts, picks, values) for starts, values in zip(block.node_starts, block.nodes, strict=True)]
    edges = [
        _picked(starts, picks, *lists)
        for starts, *lists in zip(block.edge_starts, block.sources, block.targets, block.positions, strict=True)
    ]
    return Block(
        block.sample_ids.take(pa.array(picks)), block.seeds[picks], [each[0] for each in nodes],
        [each[1] for each in nodes], *([each[place] for each in edges] for place in range(4)),
    )  # fmt: skip


def _picked(starts: NDArray[np.int64], picks: NDArray[np.int64], *lists: NDArray[Any]) -> list[NDArray[Any]]:
    ends = np.zeros(len(picks) + 1, np.int64)
    np.cumsum(starts[picks + 1] - starts[picks], out=ends[1:])
    found: list[NDArray[Any]] = [ends]
    for values in lists:
        out = np.empty(ends[-1], values.dtype)
        if len(out):
            gather_lists(values.view(np.uint8), out.itemsize, starts, picks, ends, out.view(np.uint8))
        found.append(out)
    return found


def joined(blocks: Sequence[Block]) -> Block:
    """The subgraphs of several blocks, one after the other; at least one."""
    if len(blocks) == 1:
        return blocks[0]
    ids = pa.concat_arrays([block.sample_ids for block in blocks])
    return Block(
        ids, np.concatenate([block.seeds for block in blocks]),
        [_starts(each) for each in zip(*(block.node_starts for block in blocks), strict=True)],
        [np.concatenate(each) for each in zip(*(block.nodes for block in blocks), strict=True)],
        [_starts(each) for each in zip(*(block.edge_starts for block in blocks), strict=True)],
        [np.concatenate(each) for each in zip(*(block.sources for block in blocks), strict=True)],
        [np.concatenate(each) for each in zip(*(block.targets for block in blocks), strict=True)],
        [np.concatenate(each) for each in zip(*(block.positions for block in blocks), strict=True)],
    )  # fmt: skip


def _starts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    sizes = [np.diff(part) for part in parts]
    return np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
