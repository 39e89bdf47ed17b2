"""Inputs of a layer's product: a node's own row and the means of its neighbours', concatenated, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.aggregate import SampledEdges
from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.gnn.model.mean_kernels import (
    gather_means,
    gather_rows,
    mean_rows,
    spread_back,
    transpose,
)
from superworkflow.tasks.lib.gnn.model.short_rows import NUMBERS, TYPES, kind_of, numbers_of, tensor_of
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.bfloat16 import FLOAT32
from superworkflow.tasks.lib.kernels.buffer_pool import BATCHES
from superworkflow.tasks.lib.kernels.float16 import as_read

_NO_EDGES, _NOBODY = read_only(np.zeros(1, np.int64)), read_only(np.empty(0, np.int32))


class ConstantPart(Protocol):
    """Columns without gradients."""

    @property
    def width(self) -> int:
        """Width of the part."""

    def fill(self, out: NDArray[Any], column: int) -> None:
        """Write the columns, from `column` on, in float32, or in bits of bfloat16 as int16."""


class RowsPart(NamedTuple):
    """Rows of nodes from a table [n, width], float32 or float16."""

    table: NDArray[Any]
    nodes: NDArray[np.int64]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def fill(self, out: NDArray[Any], column: int) -> None:
        gather_rows(
            read_only(as_read(self.table)), read_only(self.nodes), self.dropped.share, self.dropped.word, out, column
        )


class RowMeansPart(NamedTuple):
    """Means of a table's rows over drawn edges from the nodes indices[positions]."""

    table: NDArray[Any]
    indices: NDArray[Any]
    positions: NDArray[np.int64]
    starts: NDArray[np.int64]
    dropped: RowDropout

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    def fill(self, out: NDArray[Any], column: int) -> None:
        edges = read_only(self.indices), read_only(self.positions), read_only(self.starts)
        gather_means(read_only(as_read(self.table)), *edges, self.dropped.share, self.dropped.word, out, column)


class ComputedPart(NamedTuple):
    """Rows that were computed before."""

    rows: torch.Tensor

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def fill(self, out: NDArray[Any], column: int) -> None:
        out[:, column : column + self.width] = numbers_of(self.rows.cpu().to(kind_of(out)))


class SelfPart(NamedTuple):
    """The first rows of the matrix of this number: the receivers' own."""

    matrix: int


class MeanPart(NamedTuple):
    """Means of the rows of the matrix of this number over drawn edges."""

    matrix: int
    edges: SampledEdges


Part = ConstantPart | SelfPart | MeanPart


def concat_parts(
    receivers: int, parts: Sequence[Part], rows: Sequence[torch.Tensor], rectified: bool, device: torch.device,
    precision: str = FLOAT32,
) -> torch.Tensor:  # fmt: skip
    """Concatenate parts, [receivers, sum of widths].

    Args:
        receivers: number of rows.
        parts: the columns.
        rows: matrices that `SelfPart` and `MeanPart` read.
        rectified: the matrices are results of a ReLU whose gradient is taken here, which saves a pass.
        device: device of the result.
        precision: precision of the products that read the result. On processors it is the type of the result, and of
            the matrices, whose gradients are of their own types.
    """
    if device.type == "cpu":
        given = [each.to(TYPES[precision]) for each in rows]
        found: torch.Tensor = _Joined.apply(receivers, parts, rectified, precision, *given)  # type: ignore[no-untyped-call]
        return found
    columns = []
    for part in parts:
        if isinstance(part, SelfPart):
            columns.append(rows[part.matrix][:receivers])
        elif isinstance(part, MeanPart):
            share = 1 / part.edges.counts.clamp(min=1).to(torch.float32).unsqueeze(1)
            columns.append(part.edges.sum(rows[part.matrix]) * share)
        else:
            out = np.empty((receivers, part.width), np.float32)
            part.fill(out, 0)
            columns.append(torch.from_numpy(out).to(device))
    return torch.cat(columns, 1)


class _Joined(torch.autograd.Function):
    """`concat_parts` by the compiled kernels."""

    @staticmethod
    def forward(
        context: Any, receivers: int, parts: Sequence[Part], rectified: bool, precision: str, *rows: torch.Tensor
    ) -> torch.Tensor:
        given = [numbers_of(each) for each in rows]
        widths = [
            given[part.matrix].shape[1] if isinstance(part, SelfPart | MeanPart) else part.width for part in parts
        ]
        out = BATCHES.array((receivers, sum(widths)), NUMBERS[precision])
        for column, part in zip(_begins(widths), parts, strict=True):
            if isinstance(part, SelfPart):
                out[:, column : column + given[part.matrix].shape[1]] = given[part.matrix][:receivers]
            elif isinstance(part, MeanPart):
                mean_rows(read_only(given[part.matrix]), part.edges.host_starts, part.edges.host_senders, out, column)
            else:
                part.fill(out, column)
        context.parts, context.widths, context.given, context.rectified = parts, widths, given, rectified
        return tensor_of(out)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given = numbers_of(gradients[0])
        found: list[torch.Tensor | None] = []
        for number, values in enumerate(context.given):
            if not context.needs_input_grad[4 + number]:
                found.append(None)
                continue
            out = BATCHES.array(values.shape, values.dtype)
            mine = [
                (column, part) for column, part in zip(_begins(context.widths), context.parts, strict=True)
                if isinstance(part, SelfPart | MeanPart) and part.matrix == number
            ]  # fmt: skip
            own = next((column for column, part in mine if isinstance(part, SelfPart)), -1)
            means = [(column, part.edges) for column, part in mine if isinstance(part, MeanPart)]
            rectified = read_only(values if context.rectified else values[:0])
            for place, (column, edges) in enumerate(means or [(0, None)]):
                last = place + 1 >= len(means)
                spread_back(
                    read_only(given), -1 if place else own, column, *_by_sender(edges, len(out)),
                    rectified if last else rectified[:0], place > 0, out,
                )  # fmt: skip
            found.append(tensor_of(out))
        return None, None, None, None, *found


def _by_sender(edges: SampledEdges | None, senders: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Edge offsets by receiver and by sender, and the receivers; there may be none."""
    begins = np.zeros(senders + 2, np.int64)
    if edges is None:
        return _NO_EDGES, read_only(begins), _NOBODY
    receivers = np.empty(len(edges.host_senders), np.int32)
    transpose(edges.host_starts, edges.host_senders, begins, receivers)
    return edges.host_starts, read_only(begins), read_only(receivers)


def _begins(widths: Sequence[int]) -> list[int]:
    return [sum(widths[:number]) for number in range(len(widths))]
