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
from superworkflow.tasks.lib.gnn.tensor_tasks import BIAS, LINEAR_BIAS, OF_RECEIVERS, OF_SENDERS, LayerWeights, Rows
from superworkflow.tasks.lib.gnn.whole_graph.attention_kernels import attend, attend_back
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows, publish_rows
from superworkflow.tasks.lib.kernels.bfloat16 import DTYPES
from superworkflow.tasks.train_full.dropped import ArcDropout
from superworkflow.tasks.train_full.whole_graph import Interval, WholeGraph

_UNSCALED = np.empty(0, np.float32)


@dataclass
class LayerTables:
    """Tables of a layer, to which intervals publish.

    Args:
        rows: products of all vertices, float32 or the bits of bfloat16 [n, width].
        sending: GAT's scores of the senders [n, heads].
        back: gradients of what was gathered [n, width], as `rows`; [0, width] where there is no way back.
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

    `gathers` is false if its input is summed over neighbours already; `heads` are GAT's, 0 of GCN. The products, and
    their gradients, are those of `lib.gnn.tensor_tasks`.
    """

    gathers: bool
    heads: int

    def tables(self, training: bool) -> LayerTables:
        """Room for what intervals publish; for the way back too if `training`."""

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        """Publish products."""

    def combine(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> Rows:
        """Gather: the layer's result, before its activation."""

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        """Publish the gradient of the result."""

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        """Gradient of the products, and of the weights that `combine` read."""


class WholeGcn:
    """A layer of GCN.

    Args:
        graph: the graph.
        width: width of the result.
        precision: of published rows, one of `bfloat16.DTYPES`.
        gathers: see `WholeLayer`.
    """

    def __init__(self, graph: WholeGraph, width: int, precision: str, gathers: bool):
        self._graph, self._width, self._dtype = graph, width, DTYPES[precision]
        self.gathers, self.heads = gathers, 0

    def tables(self, training: bool) -> LayerTables:
        count = self._graph.count if self.gathers else 0
        return LayerTables(
            np.zeros((count, self._width), self._dtype), np.zeros((count if training else 0, self._width), self._dtype)
        )

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        publish_rows(made, self._graph.scales, interval.first, tables.rows)

    def combine(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> Rows:
        out = np.empty((interval.last - interval.first, self._width), np.float32)
        gather_rows(tables.rows, *self._graph.arcs, self._graph.scales, interval.first, out)
        out += weights[LINEAR_BIAS]
        return out

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        publish_rows(gradient, self._graph.scales, interval.first, tables.back)
        kept["bias"] = gradient.sum(0)

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        out = np.empty((interval.last - interval.first, self._width), np.float32)
        gather_rows(tables.back, *self._graph.back, self._graph.scales, interval.first, out)
        return out, {LINEAR_BIAS: kept["bias"]}


class WholeGat:
    """A layer of GAT.

    Args:
        graph: the graph.
        heads: number of heads.
        width: width of all heads together.
        precision: of published rows, one of `bfloat16.DTYPES`.
    """

    gathers = True

    def __init__(self, graph: WholeGraph, heads: int, width: int, precision: str):
        self._graph, self.heads, self._width, self._dtype = graph, heads, width, DTYPES[precision]

    def tables(self, training: bool) -> LayerTables:
        count = self._graph.count
        there = count if training else 0
        return LayerTables(
            np.zeros((count, self._width), self._dtype), np.zeros((there, self._width), self._dtype),
            np.zeros((count, self.heads), np.float32), np.zeros((there, 3 * self.heads), np.float32),
            np.zeros(count, np.uint64),
        )  # fmt: skip

    def publish(self, tables: LayerTables, interval: Interval, made: Rows, kept: Kept) -> None:
        publish_rows(made, _UNSCALED, interval.first, tables.rows)
        tables.sending[interval.first : interval.last] = kept["sending"]

    def combine(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> Rows:
        rows = interval.last - interval.first
        training = bool(len(tables.back))
        out, also = (np.empty((each, self._width), np.float32) for each in (rows, rows if training else 0))
        slopes, logs = np.empty((rows, self.heads), np.float32), np.empty((rows, self.heads), np.float32)
        states = dropout.states(interval)
        attend(
            tables.rows, tables.sending, kept["receiving"], *self._graph.arcs, interval.first, dropout.share, states,
            out, also, slopes, logs,
        )  # fmt: skip
        if training:
            kept |= {"out": out, "also": also, "slopes": slopes, "logs": logs, "states": states}
        return out + weights[BIAS]

    def publish_back(self, tables: LayerTables, interval: Interval, gradient: Rows, kept: Kept) -> None:
        own = slice(interval.first, interval.last)
        products = self._by_head(gradient * kept.pop("out")).sum(-1)
        publish_rows(gradient, _UNSCALED, interval.first, tables.back)
        tables.facts[own] = np.concatenate([kept["receiving"], kept.pop("logs"), products], 1)
        tables.states[own] = kept.pop("states")
        kept["scores"] = self._by_head(gradient * kept.pop("also")).sum(-1) - products * kept.pop("slopes")
        kept["bias"] = gradient.sum(0)

    def combine_back(
        self, tables: LayerTables, interval: Interval, weights: LayerWeights, dropout: ArcDropout, kept: Kept
    ) -> tuple[Rows, LayerWeights]:
        values = tables.rows[interval.first : interval.last]
        if values.dtype != np.float32:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        out, scores = np.empty(values.shape, np.float32), np.empty((len(values), self.heads), np.float32)
        attend_back(
            tables.back, tables.facts, tables.states, *self._graph.back, values, kept["sending"], interval.first,
            dropout.share, out, scores,
        )  # fmt: skip
        by_head, of_receivers = self._by_head(values), kept.pop("scores")
        change = self._by_head(out)
        change += scores[:, :, None] * weights[OF_SENDERS] + of_receivers[:, :, None] * weights[OF_RECEIVERS]
        return out, {
            BIAS: kept["bias"],
            OF_SENDERS: (scores[:, :, None] * by_head).sum(0),
            OF_RECEIVERS: (of_receivers[:, :, None] * by_head).sum(0),
        }

    def _by_head(self, rows: Rows) -> Rows:
        """A view [rows, heads, width of a head]."""
        return rows.reshape(len(rows), self.heads, -1)


def layers_of(shape: NetworkConfig, whole: WholeGraph, precision: str) -> list[WholeLayer]:
    """Layers of a network; the first one of GCN reads sums over neighbours."""
    widths = [shape.width_out(number) for number in range(shape.layers)]
    if shape.model == "gcn":
        return [WholeGcn(whole, width, precision, number > 0) for number, width in enumerate(widths)]
    return [
        WholeGat(whole, shape.heads if shape.is_hidden(number) else 1, width, precision)
        for number, width in enumerate(widths)
    ]
