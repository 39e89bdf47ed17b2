"""Calls of functions of arrays, as who executes them sees them: a member of an elastic role, or an HTTP endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.engines.workers.arrays import Arrays, bytes_of, packed, unpacked
from superworkflow.infra.engines.workers.worker import answered

ARRAYS, SHARED, VERSION, LIVE = "arrays", "shared", "version", "live"
"""Keys of a call's header: forms of its arrays; forms of the shared ones, if they come with it; their version; the
versions that later calls may use."""

ArrayFunction = Callable[[Mapping[str, Any], Arrays, Arrays], Arrays]
"""A function of small facts, of arrays that many calls share, and of its own arrays."""


class Shared(NamedTuple):
    """Arrays that many calls read, such as weights, sent once to each member.

    Args:
        version: their number.
        arrays: their values, which nobody changes.
        live: numbers of the versions that later calls may use.
    """

    version: int
    arrays: Arrays
    live: tuple[int, ...]


class CallExecutor:
    """Executes calls, one at a time, and keeps the shared arrays of live versions."""

    def __init__(self) -> None:
        self._shared: dict[int, list[NDArray[Any]]] = {}

    def execute(self, call: Mapping[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Answer to a call, header and bytes; what the function raises is in the header.

        Args:
            call: header of the message.
            payload: the shared arrays if the call has them, then its own.
        """
        out = b""

        def work() -> Mapping[str, Any]:
            nonlocal out
            begun, view, split = time.perf_counter(), memoryview(payload), 0
            self._shared = {number: kept for number, kept in self._shared.items() if number in call[LIVE]}
            if call[SHARED] is not None:
                split = bytes_of(call[SHARED])
                self._shared[call[VERSION]] = unpacked(call[SHARED], view[:split])
            own = unpacked(call[ARRAYS], view[split:])
            (facts,) = call["arguments"]
            forms, out = packed(imported(call["function"])(facts, self._shared[call[VERSION]], own))
            return {ARRAYS: forms, "seconds": time.perf_counter() - begun}

        header = answered(call, work)
        return header, out if ARRAYS in header else b""
