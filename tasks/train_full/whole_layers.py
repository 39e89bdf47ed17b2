"""Layers over a whole graph, an interval of vertices at a time, and their gradients.

A layer multiplies the rows that it reads with its matrix, publishes the result to all intervals, and gathers it. Names
and shapes of weights are those of `lib.gnn.model.layers.GcnLayer` and `attention.GatLayer`, whose equations these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.tensor_tasks import (
    BIAS,
    LINEAR_BIAS,
    OF_RECEIVERS,
    OF_SENDERS,
    LayerWeights,
    Rows,
    by_head,
)
from superworkflow.tasks.lib.gnn.whole_graph.attention_kernels import (
    attend,
    attend_back,
    head_products,
    lanes_of,
    padded_width,
    publish_heads,
    without_padding,
)
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows, publish_rows
from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16, DTYPES
from superworkflow.tasks.lib.kernels.huge_pages import on_huge_pages
from superworkflow.tasks.lib.kernels.lanes import GROUP, table_of
from superworkflow.tasks.train_full.dropped import ArcDropout
from superworkflow.tasks.train_full.vertex_order import Interval
from superworkflow.tasks.train_full.whole_graph import Places, WholeGraph


@dataclass
class LayerTables:
    """Tables of a layer, to which intervals publish.

    Those of a graph server have its own vertices, and ghosts behind them.

    Args:
        rows: products of all vertices, float32 or the bits of bfloat16 [n, width], of GCN as `lanes.table_of` pads it,
            of GAT heads x `attention_kernels.padded_width`.
        back: gradients of what was gathered [n, width], as `rows`; [0, width] where there is no way back.
        sending: GAT's scores of the senders [n, `attention_kernels.lanes_of` its heads].
        facts, states: see `attention_kernels.attend_back`.
    """

    rows: NDArray[Any]
    back: NDArray[Any]
    sending: Rows = field(default_factory=lambda: np.empty((0, 0), np.float32))
    facts: Rows = field(default_factory=lambda: np.empty((0, 0), np.float32))
    states: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))


Kept = dict[str, Any]
"""What an interval keeps of a layer between its tasks."""


class WholeLayer(Protocol):
    """A layer; rows and gradients are those of an interval, float32.

    `gathers` is false if its input is summed over neighbours already; `heads` are GAT's, 0 of GCN; `bias` is its name
    among the weights; `short` if factors of products are rounded to bfloat16. The products, and their gradients, are
    those of `lib.gnn.tensor_tasks`.
    """

    gathers: bool
    heads: int
    bias: str
    short: bool

    def tables(self, training: bool) -> LayerTables:
        """Room for what intervals publish; for the way back too if `training`."""

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        """Publish products."""

    def combine(self, tables: LayerTables, interval: Interval, places: Places, dropout: ArcDropout, kept: Kept) -> Rows:
        """Gather: the layer's result at some places of the interval, before its bias and activation."""

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        """Publish the gradient of the result."""

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        """Gradient of the products, and of the weights that `combine` read."""

    def published(self, tables: LayerTables, back: bool) -> list[NDArray[Any]]:
        """Views of the tables without padding: what gathers read of a vertex, by its place."""


class WholeGcn:
    """A layer of GCN.

    Args:
        graph: the graph.
        width: width of the result.
        precision: of published rows and of factors of products, one of `bfloat16.DTYPES`.
        gathers: see `WholeLayer`.
    """

    bias = LINEAR_BIAS

    def __init__(self, graph: WholeGraph, width: int, precision: str, gathers: bool):
        self._graph, self._width, self._dtype = graph, width, DTYPES[precision]
        self.gathers, self.heads, self.short = gathers, 0, precision == BFLOAT16

    def tables(self, training: bool) -> LayerTables:
        places = _places(self._graph, training) if self.gathers else (0, 0)
        return LayerTables(*(_zeros(table_of(each, self._width, self._dtype)) for each in places))

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        publish_rows(made, self._graph.scales, self._graph.rows_of(interval).start, tables.rows)

    def combine(self, tables: LayerTables, interval: Interval, places: Places, dropout: ArcDropout, kept: Kept) -> Rows:
        out = np.empty((len(places), self._width), np.float32)
        gather_rows(tables.rows, *self._graph.arcs, self._graph.scales, places, out)
        return out

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        publish_rows(gradient, self._graph.scales, self._graph.rows_of(interval).start, tables.back)
        kept["bias"] = gradient.sum(0)

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        out = np.empty((interval.last - interval.first, self._width), np.float32)
        gather_rows(tables.back, *self._graph.back, self._graph.scales, self._graph.places_of(interval), out)
        return out, {LINEAR_BIAS: kept["bias"]}

    def published(self, tables: LayerTables, back: bool) -> list[NDArray[Any]]:
        return [(tables.back if back else tables.rows)[:, : self._width]]


class WholeGat:
    """A layer of GAT.

    Args:
        graph: the graph.
        heads: number of heads.
        width: width of all heads together.
        precision: of published rows and of factors of products, one of `bfloat16.DTYPES`.
    """

    gathers, bias = True, BIAS

    def __init__(self, graph: WholeGraph, heads: int, width: int, precision: str):
        self._graph, self.heads, self._width, self._dtype = graph, heads, width // heads, DTYPES[precision]
        self._padded, self._lanes = padded_width(self._width), lanes_of(heads)
        self._numbers, self.short = graph.numbers(), precision == BFLOAT16

    def tables(self, training: bool) -> LayerTables:
        count, there = _places(self._graph, training)
        width, lanes = self.heads * self._padded, self._lanes
        rows, back = (_zeros(table_of(each, width, self._dtype, GROUP)) for each in (count, there))
        sending, facts = (_zeros(np.empty(size, np.float32)) for size in ((count, lanes), (there, 3, lanes)))
        return LayerTables(rows, back, sending, facts, np.zeros(there, np.uint64))

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        publish_heads(made, self.heads, self._graph.rows_of(interval).start, tables.rows)
        tables.sending[self._graph.rows_of(interval), : self.heads] = kept.pop("sending")

    def combine(self, tables: LayerTables, interval: Interval, places: Places, dropout: ArcDropout, kept: Kept) -> Rows:
        rows, own = len(places), places - np.int32(self._graph.rows_of(interval).start)
        training, receiving = bool(len(tables.back)), np.zeros((rows, self._lanes), np.float32)
        receiving[:, : self.heads] = kept.pop("receiving")[own]
        out, also = (np.empty((each, tables.rows.shape[1]), np.float32) for each in (rows, rows if training else 0))
        slopes, logs = np.empty((rows, self._lanes), np.float32), np.empty((rows, self._lanes), np.float32)
        states = dropout.states_of(self._graph.order.between(interval.first, interval.last)[own])
        attend(
            tables.rows, tables.sending, receiving, self.heads, *self._graph.arcs,
            places, self._numbers, dropout.share, states, out, also, slopes, logs,
        )  # fmt: skip
        out = self._bare(out)
        if training:
            facts, slopes = np.stack([receiving, logs, logs], 1), slopes[:, : self.heads]
            kept |= {"out": out.copy(), "also": self._bare(also), "slopes": slopes, "facts": facts, "states": states}
        return out

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        own, facts = self._graph.rows_of(interval), kept.pop("facts")
        publish_heads(gradient, self.heads, own.start, tables.back)
        facts[:, 2, : self.heads] = products = self._products(gradient, kept.pop("out"))
        tables.facts[own], tables.states[own] = facts, kept.pop("states")
        kept["scores"] = self._products(gradient, kept.pop("also")) - products * kept.pop("slopes")
        kept["bias"] = gradient.sum(0)

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        own = self._graph.rows_of(interval)
        values, sending = tables.rows[own], tables.sending[own]
        if values.dtype != np.float32:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        values = self._bare(values)
        out, also = (np.empty((len(values), tables.back.shape[1]), np.float32) for _ in range(2))
        less = np.empty((len(values), self._lanes), np.float32)
        attend_back(
            tables.back, tables.facts.reshape(len(tables.facts), -1), self.heads, tables.states, *self._graph.back,
            sending, own.start, self._numbers, dropout.share, out, also, less,
        )  # fmt: skip
        changes = {
            OF_SENDERS: self._products(values, self._bare(also)) - less[:, : self.heads],
            OF_RECEIVERS: kept.pop("scores"),
        }
        out, gradients = self._bare(out), {BIAS: kept["bias"]}
        for name, change in changes.items():
            out += change @ by_head(weights[name]).T
            each = (change.T @ values).reshape(self.heads, self.heads, -1)
            gradients[name] = np.ascontiguousarray(each[range(self.heads), range(self.heads)])
        return out, gradients

    def published(self, tables: LayerTables, back: bool) -> list[NDArray[Any]]:
        table, scores = (tables.back, tables.facts) if back else (tables.rows, tables.sending)
        by_head = table.reshape(len(table), self.heads, self._padded)
        return [by_head[:, :, : self._width], scores[..., : self.heads]]

    def _bare(self, rows: Rows) -> Rows:
        """Rows without the columns that pad heads."""
        return without_padding(rows, self.heads, self._width)

    def _products(self, one: Rows, other: Rows) -> Rows:
        """Products of rows by head."""
        out = np.empty((len(one), self.heads), np.float32)
        head_products(one, other, out)
        return out


def _zeros(table: NDArray[Any]) -> NDArray[Any]:
    """A table of zeros, on huge pages where there are some, since its rows are read in any order."""
    table.fill(0)  # pages that no one has written to are not there yet
    on_huge_pages(table)
    return table


def _places(graph: WholeGraph, training: bool) -> tuple[int, int]:
    """Rows of the tables for both ways."""
    count, ghosts, others = graph.count, len(graph.ghosts.numbers), len(graph.back_ghosts.numbers)
    return count + ghosts, count + others if training else 0


def layers_of(shape: NetworkConfig, whole: WholeGraph, precision: str) -> list[WholeLayer]:
    """Layers of a network; the first one of GCN reads sums over neighbours."""
    widths = [shape.width_out(number) for number in range(shape.layers)]
    if shape.model == "gcn":
        return [WholeGcn(whole, width, precision, number > 0) for number, width in enumerate(widths)]
    return [
        WholeGat(whole, shape.heads if shape.is_hidden(number) else 1, width, precision)
        for number, width in enumerate(widths)
    ]
