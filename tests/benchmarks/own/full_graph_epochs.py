"""Epochs of training on a whole graph by the tasks of `train_full`, one thread, without validation.

    python -m tests.benchmarks.own.full_graph_epochs MODEL VERTICES ARCS DROPOUT
    {"side": float32 or bfloat16} -> {"wall_s", "cpu_s", "tasks": CPU seconds by task}

GCN's features stand for the sums over them, which are made once before training.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.nn.functional import cross_entropy

from superworkflow.tasks.lib.graph.heterograph import CsrRows
from superworkflow.tasks.lib.kernels.bfloat16 import BFLOAT16, DTYPES
from superworkflow.tasks.lib.kernels.huge_pages import keep_memory
from superworkflow.tasks.train_full.dropped import Dropout
from superworkflow.tasks.train_full.sparse_inputs import as_inputs
from superworkflow.tasks.train_full.vertex_order import Interval, plain_order
from superworkflow.tasks.train_full.whole_graph import WholeGraph
from superworkflow.tasks.train_full.whole_layers import WholeGat, WholeGcn, WholeLayer
from superworkflow.tasks.train_full.whole_network import IntervalState, WholeNetwork
from tests.benchmarks.peers.epoch_graph import HEADS, RATE, WIDTHS, graph_of
from tests.benchmarks.peers.serving import Clock, serve

INTERVALS = 16
sides: dict[str, Callable[[], dict[str, float]]] = {}


class CrossEntropy:
    """The mean loss of all vertices."""

    def __init__(self, classes: np.ndarray):
        self._classes = torch.from_numpy(classes)

    def loss(self, interval: Interval, scores: np.ndarray) -> tuple[float, np.ndarray]:
        read = torch.from_numpy(scores).requires_grad_()
        own = self._classes[interval.first : interval.last]
        loss = cross_entropy(read, own, reduction="sum") / len(self._classes)
        loss.backward()
        assert read.grad is not None
        return float(loss.detach()), read.grad.numpy()


def weights_of(model: str) -> list[dict[str, np.ndarray]]:
    rng, found = np.random.default_rng(2), []
    for layer, (width, out) in enumerate(zip(WIDTHS[model], WIDTHS[model][1:], strict=False)):
        own = {"linear.weight": (rng.uniform(-1, 1, (out, width)) * np.sqrt(6 / (width + out))).astype(np.float32)}
        own["bias" if model == "gat" else "linear.bias"] = np.zeros(out, np.float32)
        if model == "gat":
            heads = 1 if layer else HEADS
            for name in ("of_senders", "of_receivers"):
                own[name] = rng.normal(scale=0.3, size=(heads, out // heads)).astype(np.float32)
        found.append(own)
    return found


def epochs_of(model: str, network: WholeNetwork) -> Callable[[], dict[str, float]]:
    """A function that trains an epoch and returns CPU seconds by task."""
    weights = [{name: torch.from_numpy(each) for name, each in layer.items()} for layer in weights_of(model)]
    every = [(layer, name) for layer, own in enumerate(weights) for name in own]
    optimizer = torch.optim.Adam([weights[layer][name] for layer, name in every], lr=RATE)
    number = 0

    def epoch() -> dict[str, float]:
        nonlocal number
        seconds, states = defaultdict[str, float](float), [IntervalState() for _ in network.graph.intervals]
        read = [{name: each.detach().numpy() for name, each in own.items()} for own in weights]
        for task in network.training:
            begun = time.process_time()
            for interval, state in zip(network.graph.intervals, states, strict=True):
                network.execute(task, interval, number, read, state)
            seconds[f"{task.way} {task.kind} {task.layer}"] += time.process_time() - begun
        begun = time.process_time()
        for layer, name in every:
            total = sum(each.gradients[layer][name] for each in states)
            weights[layer][name].grad = torch.from_numpy(total)
        optimizer.step()
        number += 1
        return {**seconds, "WU": time.process_time() - begun, "loss": sum(each.loss for each in states)}

    return epoch


def prepare() -> dict[str, Any]:
    threadpool_limits(1)
    torch.set_num_threads(1)
    keep_memory()
    model, vertices, arcs, share = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    starts, senders, features, classes = graph_of(model, vertices, arcs)
    rows = CsrRows(starts, senders.astype(np.int32))
    graph = WholeGraph.of_rows(rows, plain_order(vertices, INTERVALS))
    widths, losses = WIDTHS[model][1:], {}
    for precision in DTYPES:
        layers: list[WholeLayer] = [
            WholeGcn(graph, width, precision, number > 0) if model == "gcn"
            else WholeGat(graph, 1 if number else HEADS, width, precision)
            for number, width in enumerate(widths)
        ]  # fmt: skip
        drop, tail, inputs = Dropout(share, 1), CrossEntropy(classes), as_inputs(features, precision == BFLOAT16)
        network = WholeNetwork(graph, layers, inputs, tail, drop, model == "gat", None)
        sides[precision] = epochs_of(model, network)
        losses[precision] = [sides[precision]()["loss"] for _ in range(2)]
    return {"losses": losses}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        tasks = sides[request["side"]]()
    return {**clock.seconds(), "tasks": tasks}


serve(answer, prepare)
