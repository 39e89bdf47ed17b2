"""Reads and writes of updates, recorded in a program that is compiled for it, so that conflicts in a colour are found.

Two updates of one colour conflict if one writes a value that the other reads or writes: their result would depend on
which comes first. Vectors that an update may write count as written by any look at them. Signals, which combine by the
maximum, and copies from before a synchronous step conflict with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError

HEADER = 8
"""Numbers before the marks: the stamp of the present update; that of an earlier one with which it conflicts, 0 without;
the field; whether the present one writes it; the values before those of edges; of an index beyond a vertex's
neighbours 1 more than these are, and the index, in place of a conflict. A stamp is the count of colours so far,
shifted by 32, and the vertex, or the first one of its block."""
_INT = ir.IntType(64)


def _record(checks: Any, place: Any, number: Any, width: Any, of_edge: Any, writes: Any) -> None:
    """Note an access, and the first conflict: a value has the first reader and the last writer of a colour."""
    marks = nb.carray(checks, (1 << 60,))  # type: ignore[attr-defined]
    cell = HEADER + 2 * (marks[4] * of_edge + place * width + number)
    stamp, reader, writer = marks[0], marks[cell], marks[cell + 1]
    other = 0
    if writer >> 32 == stamp >> 32 and writer != stamp:
        other = writer
    elif writes and reader >> 32 == stamp >> 32 and reader != stamp:
        other = reader
    if other and not marks[1]:
        marks[1], marks[2], marks[3] = other, number + (1 << 32) * of_edge, writes
    if writes:
        marks[cell + 1] = stamp
    elif reader >> 32 != stamp >> 32:
        marks[cell] = stamp


def _record_index(checks: Any, index: Any, count: Any) -> None:
    """Note an index of a neighbour that is none, unless there is a conflict."""
    marks = nb.carray(checks, (1 << 60,))  # type: ignore[attr-defined]
    if not marks[1]:
        marks[1], marks[5], marks[6] = marks[0], count + 1, index


def record_index(context: Any, builder: Any, checks: Any, index: Any, count: Any) -> None:
    """Compile the record of an index of a neighbour that is not below the number of these."""
    marks = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
    signature = types.void(marks, types.int64, types.int64)
    context.compile_internal(builder, _record_index, signature, [checks, index, count])


def record_access(
    context: Any, builder: Any, checks: Any, place: Any, number: int, width: int, writes: bool, of_edge: bool = False
) -> None:  # fmt: skip
    """Compile the record of an access to a field.

    Args:
        context, builder: of the function that accesses it.
        checks: pointer to the marks.
        place: of the vertex, or slot of the edge.
        number: of the field among those of vertices, or those of edges and then messages.
        width: how many fields a vertex or a slot has.
        writes: it is written, or may be.
        of_edge: it is of an edge.
    """
    numbers = [_INT(int(each)) for each in (number, width, of_edge, writes)]
    marks = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
    signature = types.void(marks, *(types.int64,) * 5)
    context.compile_internal(builder, _record, signature, [checks, place, *numbers])


class Verification:
    """Marks of all values, and the error for a conflict.

    Args:
        program: its name.
        fields: by name, [vertices] or [vertices, length].
        edges: the same of edges.
        messages: the same of slots, two for each edge.

    Attributes:
        checks: int64 [`HEADER` + 2 * values], `State.checks`.
    """

    def __init__(
        self, program: str, fields: Mapping[str, NDArray[Any]], edges: Mapping[str, NDArray[Any]],
        messages: Mapping[str, NDArray[Any]],
    ):  # fmt: skip
        self._program, self._fields, self._edge_fields = program, list(fields), [*edges, *messages]
        own = sum(len(each) for each in fields.values())
        slots = max([*(2 * len(each) for each in edges.values()), *(len(each) for each in messages.values()), 0])
        self.checks = np.zeros(HEADER + 2 * (own + slots * len(self._edge_fields)), np.int64)
        self.checks[4] = own

    def check(self, step: int, numbers: NDArray[np.int32], bounds: NDArray[np.int64]) -> None:
        """Refuse the conflict that a step had, if any.

        Args:
            step: its number.
            numbers: int32 [vertices], the vertex at each place.
            bounds: int64 [colours + 1], where each colour begins.

        Raises:
            UserError: two updates of one colour conflict, or one asks for a neighbour that its vertex does not have.
        """
        stamp, other, field, writes, _, more, index = self.checks[:7].tolist()
        if not other:
            return
        if more:
            raise UserError(f"an update takes neighbour {index} of a vertex that has {more - 1}",
                            where=f"program {self._program}, step {step}, vertex {numbers[stamp & 0xFFFFFFFF]}",
                            value=index, remedy="Count neighbours from 0 up to scope.degree - 1, and those of "
                            "in-edges up to scope.in_degree - 1")  # fmt: skip
        first, second = (each & 0xFFFFFFFF for each in (other, stamp))
        number, of_edge = field & 0xFFFFFFFF, field >> 32
        name = self._edge_fields[number] if of_edge else self._fields[number]
        colour = int(np.searchsorted(bounds, second, "right")) - 1
        name += " of an edge" if of_edge else ""
        said = (
            f"vertex {numbers[second]} {'may write' if writes else 'reads'} {name}, which vertex {numbers[first]} "
            f"{'reads or writes' if writes else 'may write'}"
        )
        raise UserError(f"two updates of one colour conflict: {said}",
                        where=f"program {self._program}, step {step}, colour {colour}", value=name,
                        remedy="Delete the dataset of colours and run again; if it stays, report an error")  # fmt: skip
