"""Seconds of tasks by their sizes and the rates of a processor: what simulations take tasks to last.

A rate is in units a second: of `AV` rows times columns that are read, or entries of sparse rows; of `SC` rows; of
gathers arcs. Each is known for results of two widths, between and beyond which seconds are a straight line. `NOMINAL`
are those of one thread of an AMD EPYC with AVX2; `task_rates` measures those of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from superworkflow.tasks.train_full.layer_tasks import AE, AV, BACK, FORWARD, GA, SC, VALIDATION, Task

if TYPE_CHECKING:
    from superworkflow.tasks.train_full.virtual_clock import Work

NARROW, WIDE = 16, 128
"""Widths of results for which rates are known."""
GCN, GAT, SPARSE = "gcn", "gat", "sparse"
TASK, LOSS, WEIGHT, UPDATE, EPOCH, BYTE = "task", "loss", "weight", "update", "epoch", "byte"
"""Rates of what has no width: tasks, losses of an interval, updates and ends of epochs, whatever their size; weights
that are updated; bytes that leave one process and come to another, by the CPU seconds of both."""


def rate_name(network: str, way: str, kind: str, width: int) -> str:
    """Name of a rate, such as ``gcn back GA 128``."""
    return f"{network} {way} {kind} {width}"


def _named(seconds: Mapping[tuple[str, str, str], tuple[float, float]]) -> Iterator[tuple[str, float]]:
    for key, both in seconds.items():
        for width, nanoseconds in zip((NARROW, WIDE), both, strict=True):
            yield rate_name(*key, width), 1e9 / nanoseconds


_NOMINAL_NS = {
    (GCN, FORWARD, AV): (1.0, 3.3),
    (GCN, FORWARD, SC): (4.3, 30.0),
    (GCN, FORWARD, GA): (3.3, 22.0),
    (GCN, BACK, AV): (2.1, 7.3),
    (GCN, BACK, SC): (16.0, 53.0),
    (GCN, BACK, GA): (3.0, 17.0),
    (GCN, VALIDATION, AV): (0.8, 3.2),
    (GCN, VALIDATION, SC): (3.5, 26.0),
    (GCN, VALIDATION, GA): (3.3, 24.0),
    (GAT, FORWARD, AV): (1.6, 4.7),
    (GAT, FORWARD, SC): (6.4, 20.0),
    (GAT, FORWARD, AE): (19.0, 96.0),
    (GAT, BACK, AV): (1.8, 7.2),
    (GAT, BACK, SC): (41.0, 270.0),
    (GAT, BACK, AE): (24.0, 100.0),
    (GAT, VALIDATION, AV): (1.1, 4.7),
    (GAT, VALIDATION, SC): (5.0, 21.0),
    (GAT, VALIDATION, AE): (15.0, 81.0),
    (SPARSE, FORWARD, AV): (40.0, 37.0),
    (SPARSE, BACK, AV): (33.0, 31.0),
}
"""Nanoseconds of a unit, for the narrow and the wide result."""
NOMINAL: Mapping[str, float] = {
    **dict(_named(_NOMINAL_NS)), TASK: 1 / 4e-05, LOSS: 1 / 0.0001, WEIGHT: 1 / 5e-09, UPDATE: 1 / 0.0002,
    EPOCH: 1 / 1e-3, BYTE: 1 / 4e-09,
}  # fmt: skip


class GraphSizes(NamedTuple):
    """Sizes of a graph's intervals, or of those of a server, by their numbers.

    Args:
        rows: vertices.
        arcs, back: arcs that a gather reads forwards and backwards, each vertex's own one too.
        judged: arcs that the gather which ends validation reads.
        entries: numbers of sparse rows that the first layer reads; none of dense ones.
    """

    rows: Mapping[int, int]
    arcs: Mapping[int, int]
    back: Mapping[int, int]
    judged: Mapping[int, int]
    entries: Mapping[int, int]


class TaskSeconds:
    """Seconds of work on one thread.

    Args:
        sizes: of the intervals.
        shapes: of each layer's matrix, width of the result and of what it reads.
        network: `GCN` or `GAT`.
        rates: in units a second, by name.
    """

    def __init__(
        self, sizes: GraphSizes, shapes: Sequence[tuple[int, int]], network: str, rates: Mapping[str, float]
    ):  # fmt: skip
        self._sizes, self._shapes, self._network, self._rates = sizes, shapes, network, rates

    def __call__(self, work: Work, sent: int) -> float:
        """Seconds of work that has sent bytes to other processes."""
        moved = (sent + work.received) / 2 / self._rates[BYTE]
        if work.is_update:
            weights = sum(a * b for a, b in self._shapes)
            return moved + 1 / self._rates[UPDATE] + weights / self._rates[WEIGHT]
        if work.is_end:
            return moved + 1 / self._rates[EPOCH]
        return moved + 1 / self._rates[TASK] + (self._of(work.task, work.interval) if work.task is not None else 0.0)

    def call(self, facts: Mapping[str, Any], arrays: Sequence[Any]) -> float:
        """Seconds that a tensor worker computes for a call; arguments as of `tensor_tasks.compute_call`."""
        rows = len(arrays[0]) - bool(facts["sparse"])
        way = BACK if facts["back"] else FORWARD if facts["share"] else VALIDATION
        layers = [facts["layer"], *([facts["then"]["layer"]] if facts["then"] else [])]
        sparse = facts["sparse"] or (facts["then"] and facts["then"]["sparse"])
        entries = len(arrays[-1 if way == BACK and facts["then"] else 1]) if sparse else 0
        found = sum(self._product(way, layer, rows, 0 if layer else entries) for layer in layers)
        return found + len(layers) / self._rates[TASK]

    def _of(self, task: Task, interval: int) -> float:
        sizes, width = self._sizes, self._shapes[task.layer][0]
        if task.kind == AV:
            entries = 0 if task.layer else sizes.entries.get(interval, 0)
            return self._product(task.way, task.layer, sizes.rows[interval], entries)
        is_last = task.gathers and task.layer == len(self._shapes) - 1
        units = sizes.rows if task.kind == SC else sizes.back if task.way == BACK else sizes.arcs
        units = sizes.judged if is_last and task.way == VALIDATION else units
        seconds = units[interval] * self._unit(self._network, task.way, task.kind, width)
        has_loss = is_last and task.way == FORWARD
        return seconds + has_loss / self._rates[LOSS]

    def _product(self, way: str, layer: int, rows: int, entries: int) -> float:
        width, read = self._shapes[layer]
        if entries:
            return entries * self._unit(SPARSE, BACK if way == BACK else FORWARD, AV, width)
        # Backwards the first layer has a gradient of its matrix alone, which takes as long as the product.
        return rows * read * self._unit(self._network, way if layer or way != BACK else FORWARD, AV, width)

    def _unit(self, network: str, way: str, kind: str, width: int) -> float:
        narrow, wide = (1 / self._rates[rate_name(network, way, kind, each)] for each in (NARROW, WIDE))
        return narrow + max(0.0, wide - narrow) * max(0, width - NARROW) / (WIDE - NARROW)


def gather_of(network: str) -> str:
    """Kind of the task that gathers."""
    return GA if network == GCN else AE
