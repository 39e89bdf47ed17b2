"""A network over a whole graph as tasks, each on one layer and one interval of vertices.

Tasks have the names of Dorylus (Thorpe et al., OSDI 2021). Forwards: `AV` multiplies an interval's rows with a layer's
matrix; `SC` publishes the products to all intervals; `GA` gathers them, and `AE` does so with GAT's attention, scores,
softmax and sum in one pass. Products come before the gather, which then is as narrow as the layer's result. The last
task of the way forward computes the loss and its gradient as well. Backwards the same with `back`: `SC` publishes the
gradient, `GA` or `AE` gathers it against the arcs, `AV` makes the gradients of matrix and rows. Each `AV` drops
entries of what it reads, on the way back again: what is dropped is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from superworkflow.tasks.lib.gnn.model.dropout import NOTHING
from superworkflow.tasks.lib.gnn.tensor_tasks import (
    LINEAR_BIAS,
    MATRIX,
    Inputs,
    LayerWeights,
    Rows,
    SparseRows,
    TensorFacts,
    arrays_of,
    compute,
)
from superworkflow.tasks.lib.gnn.whole_graph.activation_kernels import activate
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.train_full.dropped import NO_DROPOUT, Dropout
from superworkflow.tasks.train_full.layer_tasks import (
    AE,
    BACK,
    FORWARD,
    GA,
    SC,
    VALIDATION,
    IntervalState,
    Task,
    back_tasks,
    following_task,
    forward_tasks,
)
from superworkflow.tasks.train_full.sparse_inputs import FirstInputs
from superworkflow.tasks.train_full.task_seconds import GraphSizes
from superworkflow.tasks.train_full.vertex_order import Interval
from superworkflow.tasks.train_full.whole_graph import Places, WholeGraph
from superworkflow.tasks.train_full.whole_layers import LayerTables, WholeLayer

NetworkWeights = Sequence[LayerWeights]
"""Weights of each layer, or their gradients."""


class Tail(Protocol):
    """The loss of the items of an interval."""

    def loss(self, interval: Interval, scores: Rows) -> tuple[float, Rows]:
        """The interval's part of the mean loss of all training items, and its gradient."""


class WholeNetwork:
    """Executes tasks; threads may do so at once for different intervals.

    Args:
        graph: the graph.
        layers: its layers.
        inputs: what the first layer reads of all vertices of the graph, or of a server's part [n, values].
        tail: the loss.
        dropout: dropout of training.
        elu: activation of the hidden layers is ELU instead of ReLU.
        judged: places of the vertices that are validated on, by the number of their interval; None for no validation.

    `scores` are those of the last validation, of these places, by interval.
    """

    def __init__(
        self, graph: WholeGraph, layers: Sequence[WholeLayer], inputs: FirstInputs, tail: Tail,
        dropout: Dropout, elu: bool,
        judged: Mapping[int, Places] | None,
    ):  # fmt: skip
        self.graph, self._layers, self._inputs, self._tail = graph, layers, inputs, tail
        self._dropout, self._elu = dropout, elu
        gathers, gather = [each.gathers for each in layers], AE if elu else GA
        self.training = forward_tasks(FORWARD, gathers, gather) + back_tasks(gathers, gather)
        self.validation = [] if judged is None else forward_tasks(VALIDATION, gathers, gather)
        tables = {FORWARD: [each.tables(True) for each in layers]}
        tables[BACK] = tables[FORWARD]
        if judged is not None:
            tables[VALIDATION] = [each.tables(False) for each in layers]
        self._tables: Mapping[str, list[LayerTables]] = tables
        self._judged, self.scores = judged or {}, dict[int, Rows]()

    def execute(
        self, task: Task, interval: Interval, epoch: int, weights: NetworkWeights, state: IntervalState
    ) -> None:
        """Execute a task of an interval whose tasks before it are done."""
        layer, number = self._layers[task.layer], task.layer
        kept, tables = state.kept.setdefault(number, {}), self._tables[task.way][number]
        own, training = weights[number], task.way != VALIDATION
        arcs = self._dropout.arcs(epoch, number) if training else NO_DROPOUT
        if task.kind == SC:
            publish = layer.publish_back if task.way == BACK else layer.publish
            publish(tables, interval, state.rows, kept)
        elif task.way == BACK and task.gathers:
            state.rows, found = layer.combine_back(tables, interval, own, arcs, kept)
            state.gradients.setdefault(number, {}).update(found)
        elif task.gathers:
            made = layer.combine(tables, interval, self._places(task, interval), arcs, kept)
            self._end_layer(task, interval, made, own[layer.bias], state)
        else:
            results = compute(*self.tensor_call(task, interval, epoch, own, state))
            self.take_results(task, interval, own, state, results)

    def published(self, task: Task, places: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Arrays that an `SC` has published, at these places."""
        views = self._layers[task.layer].published(self._tables[task.way][task.layer], task.way == BACK)
        return [each[places] for each in views]

    def put_ghosts(self, task: Task, interval: int, epoch: int, message: NDArray[np.uint8]) -> None:
        """Take what another server's `SC` has published of the ghosts in one of its intervals.

        Args:
            task: the `SC`.
            interval: number of the interval.
            epoch: its epoch.
            message: bytes of the arrays that `published` returned there.

        Raises:
            ValueError: they are not as many as these ghosts have.
        """
        back, tables = task.way == BACK, self._tables[task.way][task.layer]
        ghosts = self.graph.back_ghosts if back else self.graph.ghosts
        places, begin = ghosts.coming[interval], 0
        for view in self._layers[task.layer].published(tables, back):
            to = view[places]
            to[:] = message[begin : begin + to.nbytes].view(to.dtype).reshape(to.shape)
            begin += to.nbytes
        if begin != len(message):
            raise ValueError(f"a message of {len(message)} bytes has rows of interval {interval}, which are {begin}")
        if back and len(tables.states):
            numbers = ghosts.numbers[places.start - self.graph.count : places.stop - self.graph.count]
            vertices = self.graph.order.vertices_of(numbers)
            tables.states[places] = self._dropout.arcs(epoch, task.layer).states_of(vertices)

    def sizes(self) -> GraphSizes:
        """Sizes of its intervals."""
        rows, arcs, back, judged, entries = (dict[int, int]() for _ in range(5))
        for number in self.graph.own:
            own = self.graph.rows_of(self.graph.intervals[number])
            rows[number] = own.stop - own.start
            for found, (starts, _) in ((arcs, self.graph.arcs), (back, self.graph.back)):
                found[number] = rows[number] + int(starts[own.stop] - starts[own.start])
            if number in self._judged:
                places = self._judged[number]
                judged[number] = int(np.diff(self.graph.arcs.indptr)[places].sum()) + len(places)
            if isinstance(self._inputs, SparseRows):
                entries[number] = int(self._inputs.starts[own.stop] - self._inputs.starts[own.start])
        return GraphSizes(rows, arcs, back, judged, entries)

    def example(self) -> TensorFacts:
        """Facts of the first `AV` of training, for which tensor workers are prepared."""
        interval = self.graph.intervals[self.graph.own.start]
        return self.tensor_call(self.training[0], interval, 0, {}, IntervalState())[0]

    def following(self, task: Task) -> Task | None:
        """See `following_task`."""
        return following_task([self.training, self.validation], task)

    def call_bytes(self, weights: NetworkWeights) -> int:
        """Most bytes of a call of one `AV` or two: vertices, rows, the gradient of products, and all weights; dense."""
        rows = max(each.last - each.first for each in self.graph.intervals)
        shapes = [layer[MATRIX].shape for layer in weights]
        both = [sum(shapes[1]) + shapes[0][1]] if not self._layers[0].gathers and len(shapes) > 1 else []
        widest: int = max([*map(sum, shapes), *both])
        return 4 * rows * (1 + widest) + sum(each.nbytes for layer in weights for each in layer.values())

    def tensor_call(
        self, task: Task, interval: Interval, epoch: int, weights: LayerWeights, state: IntervalState,
        following: Task | None = None,
    ) -> tuple[TensorFacts, LayerWeights, list[NDArray[Any]]]:  # fmt: skip
        """Arguments of `tensor_tasks.compute` for an `AV`; with the one that follows, of `compute_call`."""
        facts, back = self._facts(task, interval, epoch), task.way == BACK
        vertices = self.graph.order.between(interval.first, interval.last if facts["share"] else interval.first)
        arrays = [vertices, *arrays_of(self._read(task.layer, interval, state)), *([state.rows] if back else [])]
        if following is not None:
            facts["then"] = self._facts(following, interval, epoch)
            arrays += arrays_of(self._read(following.layer, interval, state)) if back else []
        return facts, weights, arrays

    def _facts(self, task: Task, interval: Interval, epoch: int) -> TensorFacts:
        layer, number, back = self._layers[task.layer], task.layer, task.way == BACK
        dropout = self._dropout.rows(epoch, number) if task.way != VALIDATION else NOTHING
        sparse = self._inputs.width if not number and isinstance(self._inputs, SparseRows) else 0
        return {
            "layer": number, "heads": layer.heads, "gathers": layer.gathers,
            "share": dropout.share, "state": dropout.state, "back": back, "inner": back and number > 0,
            "sparse": sparse, "elu": self._elu, "short": layer.short, "then": None,
        }  # fmt: skip

    def take_both(
        self, task: Task, following: Task, interval: Interval, weights: NetworkWeights, state: IntervalState,
        results: Sequence[NDArray[Any]],
    ) -> None:  # fmt: skip
        """Take what `tensor_tasks.compute_call` returned for an `AV` and the one that follows."""
        first, *others = results
        if task.way == BACK:
            self.take_results(task, interval, weights[task.layer], state, [first, state.rows])
        else:
            state.values[following.layer] = first if first.flags.writeable else first.copy()
        self.take_results(following, interval, weights[following.layer], state, others)

    def take_results(
        self, task: Task, interval: Interval, weights: LayerWeights, state: IntervalState,
        results: Sequence[NDArray[Any]],
    ) -> None:  # fmt: skip
        """Take what `tensor_tasks.compute` returned for an `AV` with these weights."""
        number, layer, found = task.layer, self._layers[task.layer], list(results)
        if task.way == BACK:
            gradients = state.gradients.setdefault(number, {})
            gradients[MATRIX] = found.pop(0)
            if not layer.gathers:
                gradients[LINEAR_BIAS] = found.pop(0)
            if number:
                state.rows = found.pop(0)
                del state.values[number]
            state.kept.pop(number, None)
            return
        if layer.heads:
            state.kept.setdefault(number, {}).update(zip(("sending", "receiving"), found[1:], strict=True))
        if layer.gathers:
            state.rows = found[0]
        else:
            made = found[0]
            if self._is_judged(task):
                made = made[self._places(task, interval) - self.graph.rows_of(interval).start]
            self._end_layer(task, interval, made, weights[layer.bias], state)

    def _places(self, task: Task, interval: Interval) -> Places:
        """Places whose results a task makes."""
        return self._judged[interval.number] if self._is_judged(task) else self.graph.places_of(interval)

    def _is_judged(self, task: Task) -> bool:
        """True of the task that ends validation, whose results are of no use but for vertices that are validated on."""
        return task.way == VALIDATION and task.layer == len(self._layers) - 1

    def _read(self, number: int, interval: Interval, state: IntervalState) -> Inputs:
        if number:
            return state.values[number]
        own = self.graph.rows_of(interval)
        if isinstance(self._inputs, SparseRows):
            return self._inputs.rows(own.start, own.stop)
        values = np.asarray(self._inputs[own])
        return values if values.dtype == np.int16 else values.astype(np.float32, copy=False)

    def _end_layer(self, task: Task, interval: Interval, made: Rows, bias: Rows, state: IntervalState) -> None:
        """Activate a layer's result, or compute the loss of the last one."""
        if not made.flags.writeable:  # of a tensor worker
            made = made.copy()
        if task.layer < len(self._layers) - 1:
            activate(made, read_only(bias), self._elu)
            state.values[task.layer + 1] = made
            return
        made += bias
        if task.way == VALIDATION:
            self.scores[interval.number] = made
            state.values.clear()
        else:
            state.loss, state.rows = self._tail.loss(interval, made)
