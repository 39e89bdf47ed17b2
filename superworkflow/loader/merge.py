"""Selections of the subgraphs of blocks, by compiled kernels: lists of any lengths, and rows of features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.tasks.lib.kernels.copy_bytes import STREAMED, copy_bytes, copy_from, stream_bytes, streamed
from superworkflow.tasks.lib.kernels.prefetch import prefetch_row
from superworkflow.tasks.lib.subgraphs.blocks import SubgraphBlock

_AHEAD = 12


@nb.njit(cache=True, nogil=True, error_model="numpy")
def gather_lists(addresses: Any, width: Any, ends: Any, out: Any) -> None:
    """Concatenate some lists.

    Args:
        addresses: int64 [n], address of the first value of each list.
        width: bytes of a value.
        ends: int64 [n + 1], offsets of the lists in the result.
        out: uint8 [width * ends[n]], is filled.
    """
    for i in range(len(addresses)):
        copy_from(out, width * ends[i], addresses[i], width * (ends[i + 1] - ends[i]))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def place_ends(places: Any, edge_starts: Any, node_starts: Any, out: Any) -> bool:
    """Places of edges' ends among the nodes of all subgraphs, from those in each one.

    Args:
        places: int32 [e].
        edge_starts, node_starts: int64 [b + 1], offsets of the edges and nodes of each subgraph.
        out: int64 [e], is filled.

    Returns:
        False if a place is outside its subgraph's nodes.
    """
    signs = np.int64(0)  # below 0 once a place, or what is left behind it, is
    for s in range(len(edge_starts) - 1):
        begin, last = node_starts[s], node_starts[s + 1] - node_starts[s] - 1
        # Slices, so that many places are read at a time.
        own, found = places[edge_starts[s] : edge_starts[s + 1]], out[edge_starts[s] : edge_starts[s + 1]]
        for i in range(len(own)):
            place = np.int64(own[i])
            signs |= place | (last - place)
            found[i] = begin + place
    return bool(signs >= 0)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def gather_rows(table: Any, width: Any, rows: Any, out: Any, past_caches: Any) -> None:
    """Copy rows of a table.

    Args:
        table: uint8 [n * width].
        width: bytes of a row.
        rows: int64 [m] below n.
        out: uint8 [m * width], is filled.
        past_caches: write past the caches; `width` and the address of `out` must then be multiples of `STREAMED`.
    """
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch_row(table, rows[i + _AHEAD] * width, width)
        to, source = i * width, rows[i] * width
        if past_caches:
            for byte in range(0, width, STREAMED):
                stream_bytes(out, to + byte, table, source + byte)
        else:
            copy_bytes(out, to, table, source, width)
    if past_caches:
        streamed()


class Lists(NamedTuple):
    """Lists of values in several blocks, in another order.

    Args:
        addresses: int64 [n], address of the first value of each list.
        dtype: of the values.
    """

    addresses: NDArray[np.int64]
    dtype: np.dtype[Any]


class Window:
    """Some subgraphs of several blocks, in an order of their own; no values are copied until they are taken.

    Args:
        blocks: hold the subgraphs.
        places: int64 [n], their places if the blocks stood one after the other.
        without_positions: numbers of the edge sets whose positions are not needed, or were not read.

    Raises:
        ValueError: lists of one set differ in length.
    """

    def __init__(
        self, blocks: Sequence[SubgraphBlock], places: NDArray[np.int64], without_positions: Collection[int] = ()
    ):
        self._blocks = blocks  # the addresses are of their memory
        sets = range(len(blocks[0].node_starts)), range(len(blocks[0].edge_starts))
        self._ids = pa.concat_arrays([block.sample_ids for block in blocks]).take(pa.array(places))
        self._seeds = np.concatenate([block.seeds for block in blocks])[places]
        self._node_sizes = [_sizes([block.node_starts[i] for block in blocks], places) for i in sets[0]]
        self._edge_sizes = [_sizes([block.edge_starts[j] for block in blocks], places) for j in sets[1]]
        self._nodes = [_lists([(b.node_starts[i], b.nodes[i]) for b in blocks], places) for i in sets[0]]
        self._edges = [
            [
                None if kind is _positions and j in without_positions
                else _lists([(b.edge_starts[j], kind(b)[j]) for b in blocks], places)
                for j in sets[1]
            ]
            for kind in _EDGE_LISTS
        ]  # fmt: skip

    def take(self, first: int, last: int) -> SubgraphBlock:
        """The block of subgraphs `first` to `last` - 1."""
        ends = [
            [np.concatenate([[0], np.cumsum(each[first:last])]) for each in sizes]
            for sizes in (self._node_sizes, self._edge_sizes)
        ]

        def taken(lists: Sequence[Lists | None], ends: Sequence[NDArray[np.int64]]) -> list[NDArray[Any]]:
            return [_gathered(each, first, last, end) for each, end in zip(lists, ends, strict=True)]

        return SubgraphBlock(
            self._ids[first:last], self._seeds[first:last], ends[0], taken(self._nodes, ends[0]), ends[1],
            *(taken(lists, ends[1]) for lists in self._edges),
        )  # fmt: skip


def _positions(block: SubgraphBlock) -> list[NDArray[Any]]:
    return block.positions


_EDGE_LISTS: tuple[Callable[[SubgraphBlock], list[NDArray[Any]]], ...] = (
    lambda block: block.sources, lambda block: block.targets, _positions,
)  # fmt: skip


def _sizes(starts: Sequence[NDArray[np.int64]], places: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = np.concatenate([np.diff(each) for each in starts])[places]
    return sizes


def _lists(parts: Sequence[tuple[NDArray[np.int64], NDArray[Any]]], places: NDArray[np.int64]) -> Lists:
    dtype, found = parts[0][1].dtype, []
    for starts, values in parts:
        if (
            len(values) != starts[-1]
            or starts[0]
            or (starts[1:] < starts[:-1]).any()
            or values.dtype != dtype
            or not values.flags.c_contiguous
        ):
            raise ValueError("lists of one set differ in length")
        found.append(values.ctypes.data + dtype.itemsize * starts[:-1])
    return Lists(np.concatenate(found)[places], dtype)


def _gathered(lists: Lists | None, first: int, last: int, ends: NDArray[np.int64]) -> NDArray[Any]:
    if lists is None:
        return np.zeros(0, np.int32)
    out = np.empty(ends[-1], lists.dtype)
    if len(out):
        gather_lists(lists.addresses[first:last], out.itemsize, ends, out.view(np.uint8))
    return out


def joined(blocks: Sequence[SubgraphBlock]) -> SubgraphBlock:
    """The subgraphs of several blocks, one after the other; at least one."""
    if len(blocks) == 1:
        return blocks[0]
    ids = pa.concat_arrays([block.sample_ids for block in blocks])
    return SubgraphBlock(
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
