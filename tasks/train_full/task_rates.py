"""Rates of this machine for `task_seconds`: of tasks of small networks, by CPU seconds of one thread.

They are measured once by each kind of processor, in a second or two, and kept in the kernel cache, as variants of
kernels are (`lib.kernels.variants`).
"""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import torch

from superworkflow.tasks.lib.gnn.model.dropout import RowDropout
from superworkflow.tasks.lib.gnn.tensor_tasks import (
    BIAS,
    LINEAR_BIAS,
    MATRIX,
    OF_RECEIVERS,
    OF_SENDERS,
    LayerWeights,
    Rows,
    SparseRows,
    dropped_product,
    matrix_gradient,
)
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_rows
from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.variants import KernelChoice
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.layer_tasks import AV, BACK, FORWARD, SC, IntervalState
from superworkflow.tasks.train_full.task_seconds import (
    BYTE,
    EPOCH,
    GAT,
    GCN,
    LOSS,
    NARROW,
    NOMINAL,
    SPARSE,
    TASK,
    UPDATE,
    WEIGHT,
    WIDE,
    rate_name,
)
from superworkflow.tasks.train_full.trainer import added
from superworkflow.tasks.train_full.vertex_order import Interval, plain_order
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_layers import WholeGat, WholeGcn, WholeLayer
from superworkflow.tasks.train_full.whole_network import WholeNetwork

_VERTICES, _DEGREE, _HEADS, _SHARE = 1 << 15, 32, 8, 0.5
_INTERVALS, _TIMED = 16, 2
"""Intervals, and those whose tasks are timed; gathers read the rows of all, 16 MiB."""
_ROWS = _VERTICES // _INTERVALS * _TIMED
_FILLED = 16
"""Entries of a sparse row."""
_WEIGHTS, _GRADIENTS = 1 << 17, 4
_BYTES = 1 << 22
"""Bytes that a socket carries."""
_TINY = 64
"""Vertices of tasks that take no longer than any; rows with a loss, tensors of a small network's weights."""
_CLASSES, _TENSORS = 16, 4


_Given = tuple[WholeNetwork, list[LayerWeights]]


class _NoLoss:
    def loss(self, interval: Interval, scores: Rows) -> tuple[float, Rows]:
        return 0.0, scores


def _network(kind: str, vertices: int, degree: int, wide: int, narrow: int) -> _Given:
    """Three layers over a random graph, the last one narrow, and their weights."""
    rng = np.random.default_rng(1)
    starts = np.arange(vertices + 1, dtype=np.int64) * degree
    senders = np.sort(rng.integers(0, vertices, (vertices, degree), dtype=np.int32)).reshape(-1)
    graph = WholeGraph.of_rows(CsrRows(starts, senders), plain_order(len(starts) - 1, _INTERVALS))
    layers, weights = list[WholeLayer](), list[LayerWeights]()
    for number, width in enumerate((wide, wide, narrow)):
        heads = _HEADS if number < 2 else 1
        of_gcn = WholeGcn(graph, width, "float32", number > 0)
        layers.append(of_gcn if kind == GCN else WholeGat(graph, heads, width, "float32"))
        shapes = {MATRIX: (width, wide)}
        bias = {LINEAR_BIAS: (width,)} if kind == GCN else {BIAS: (width,)}
        scores = {} if kind == GCN else dict.fromkeys((OF_SENDERS, OF_RECEIVERS), (heads, width // heads))
        made = {**shapes, **bias, **scores}
        weights.append({name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in made.items()})
    inputs = rng.normal(size=(vertices, wide)).astype(np.float32)
    return WholeNetwork(graph, layers, inputs, _NoLoss(), Dropout(_SHARE, 1), kind == GAT, graph.all_places()), weights


def _seconds(
    network: WholeNetwork, weights: list[LayerWeights], timed: int = _TIMED
) -> Mapping[tuple[str, str, int], float]:  # fmt: skip
    """Seconds of tasks of the first intervals, by way, kind and layer."""
    found = defaultdict[tuple[str, str, int], float](float)
    for program in (network.training, network.validation):
        states = {each: IntervalState() for each in network.graph.intervals[:timed]}
        for task in program:
            for interval, state in states.items():
                begin = time.thread_time()
                network.execute(task, interval, 0, weights, state)
                found[task.way, task.kind, task.layer] += time.thread_time() - begin
    return found


class _Measured:
    """Rates by all passes over the networks so far; each measures all, when one is wanted again."""

    def __init__(self) -> None:
        self._left, self._seconds, self._passes = set[str](), defaultdict[str, float](float), 0

    @functools.cached_property
    def _big(self) -> dict[str, _Given]:
        found = {each: _network(each, _VERTICES, _DEGREE, WIDE, NARROW) for each in (GCN, GAT)}
        for given in found.values():
            _seconds(*given, _INTERVALS)  # fills the tables
        return found

    @functools.cached_property
    def _task(self) -> float:
        """Seconds of a task of next to nothing, kernels loaded."""
        given = [_network(each, _TINY, 1, _HEADS, _HEADS) for each in (GCN, GAT)]
        turns = [[each for network in given for each in _seconds(*network).values()] for _ in range(4)]
        return min(sum(turn) / len(turn) for turn in turns) / _TIMED

    def functions(self) -> dict[str, Callable[[], float]]:
        """Functions that measure each rate."""
        return {name: functools.partial(self._rate, name) for name in NOMINAL}

    def _rate(self, name: str) -> float:
        if name not in self._left:
            if not self._passes:
                self._pass()  # kernels are compiled, or loaded, and memory is there before time is taken
            for each, rate in self._pass().items():
                self._seconds[each] += 1 / rate
            self._left, self._passes = set(self._seconds), self._passes + 1
        self._left.remove(name)
        return self._passes / self._seconds[name]

    def _pass(self) -> dict[str, float]:
        task = self._task
        rates = {TASK: 1 / task, EPOCH: NOMINAL[EPOCH] / NOMINAL[TASK] / task, BYTE: _bytes(), LOSS: 1 / _loss()}
        rates |= {WEIGHT: _WEIGHTS / _update(1, _WEIGHTS), UPDATE: 1 / _update(_TENSORS, 1)}
        for network, given in self._big.items():
            for (way, kind, layer), seconds in _seconds(*given).items():
                if layer:  # the first one of GCN does not gather
                    units = _ROWS * {AV: WIDE, SC: 1}.get(kind, _DEGREE + 1)
                    name = rate_name(network, way, kind, WIDE if layer == 1 else NARROW)
                    rates[name] = units / max(seconds - _TIMED * task, seconds / 2)
        return rates | _sparse()


def _sparse() -> dict[str, float]:
    rng, rates = np.random.default_rng(1), dict[str, float]()
    size, dropout = _ROWS * _FILLED, RowDropout(1 << 15, 1)
    columns, vertices = rng.integers(0, 1 << 10, size, dtype=np.int32), np.arange(_ROWS, dtype=np.int32)
    rows = SparseRows(np.arange(_ROWS + 1) * _FILLED, columns, np.ones(size, np.float32), 1 << 10)
    for width in (NARROW, WIDE):
        matrix, gradient = np.ones((width, 1 << 10), np.float32), np.ones((_ROWS, width), np.float32)
        for way, work in ((FORWARD, lambda m=matrix: dropped_product(rows, vertices, dropout, m)),
                          (BACK, lambda g=gradient: matrix_gradient(g, rows, vertices, dropout))):  # fmt: skip
            rates[rate_name(SPARSE, way, AV, width)] = size / _timed(work)
    return rates


def _timed(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return max(1e-9, time.thread_time() - begin)


def _update(tensors: int, size: int) -> float:
    """Seconds of a step of Adam for tensors of a size, by the sum of a few gradients."""
    parameters = [torch.nn.Parameter(torch.zeros(size)) for _ in range(tensors)]
    optimizer, parts = torch.optim.Adam(parameters, weight_decay=1e-4), [np.ones(size, np.float32)] * _GRADIENTS

    def step() -> None:
        for each in parameters:
            each.grad = torch.from_numpy(added(parts))
        optimizer.step()

    step()
    return _timed(step)


def _loss() -> float:
    """Seconds of a loss and its gradient, of a few rows."""
    scores, labels = torch.zeros((_TINY, _CLASSES), requires_grad=True), torch.zeros(_TINY, dtype=torch.int64)

    def loss() -> None:
        torch.nn.functional.cross_entropy(scores, labels).backward()  # type: ignore[no-untyped-call]

    loss()
    return _timed(loss)


def _bytes() -> float:
    """Bytes a second that are gathered, sent by a socket of this machine, and put in place, by CPU seconds of both."""
    table, places = np.ones((_BYTES // 512, 128), np.float32), np.arange(_BYTES // 512)
    message, sent = np.empty(_BYTES, np.uint8), list[float]()
    with suppress(OSError), socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as leaving, listening.accept()[0] as coming:

            def send() -> None:
                sent.append(_timed(lambda: leaving.sendall(np.concatenate([table[places]]).data.cast("B"))))

            def receive() -> None:
                begin, view = 0, message.data
                while begin < _BYTES:
                    begin += coming.recv_into(view[begin:])
                table[places] = message.view(np.float32).reshape(table.shape)

            thread = threading.Thread(target=send)
            thread.start()
            received = _timed(receive)
            thread.join()
            return _BYTES / (received + sent[0])
    return NOMINAL[BYTE]


_RATES = KernelChoice(
    "full-graph-tasks", "units/s", lambda: _Measured().functions(), lambda: str(gather_rows.stats.cache_path)
)


def machine_rates() -> Mapping[str, float]:
    """Rates of one thread of this machine, measured if they are not kept."""
    return _RATES.rates
