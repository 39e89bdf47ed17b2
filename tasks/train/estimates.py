"""Estimates of stage `train`: rows, products and bytes of a step, times the steps that training is expected to take.

Rates are those of one core, of which docs/measurements/gnn.md has the measurements: a step of three SAGE layers of 256
with 100 features, fan-outs 5,10,15 and batch 1024 takes 233 ms, of which 160 are matrix products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from superworkflow.infra.contract.stage import Estimate, Process, Resources, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values, mean_values, split_sizes, workers_of
from superworkflow.tasks.lib.gnn.model.config import ATTENTION
from superworkflow.tasks.train.params import TrainParams

_PROCESS = Process(start_s=1.4, memory_bytes=400 << 20)
"""With NumPy, Arrow, torch and the compiled kernels."""
_DIFFERENT = 0.75
"""Share of the drawn neighbours that are not drawn twice, where the graph is much larger than the batch."""
_STEP_S, _PRODUCT_S, _VALUE_S, _EDGE_S = 3e-3, 1 / 9e10, 7e-10, 2e-8
"""CPU seconds of a step whatever its size, of a multiplication or addition, of a value that is moved, and of an edge
that is drawn."""
_ATTENTION = 3
"""Times that attention moves the values of an edge, compared with a sum."""
_MOVES = 6
"""Times that a layer reads or writes each of its values in training: activation, dropout, and their gradients."""
_PATIENCES, _LINK_PATIENCES = 3.0, 1.5
"""Epochs of a training of nodes or links that ends early, in multiples of `patience`."""
_HOLES = 12
"""Memory of steps of links, in multiples of a step's: their arrays differ in size, and leave holes in what is free."""
_VALIDATED_AT_ONCE, _LINK_SHARE = 4096, 8
"""Items of a step of validation; a step of training has at most one of this many links."""


@dataclass(frozen=True)
class _Network:
    """Sizes of a network and its graph: `width` values of a node are read, which are learned if `learned`."""

    nodes: int
    edges: int
    width: int
    learned: bool
    hidden: int
    outputs: int


@dataclass(frozen=True)
class _Step:
    """Work of a step: CPU seconds, bytes of what its layers hold, and of a batch that waits for its turn."""

    cpu_s: float
    held_bytes: int
    waiting_bytes: int


def _step(params: TrainParams, network: _Network, seeds: int, training: bool) -> _Step:
    """Count the work of a step whose targets are `seeds` nodes, some of them perhaps the same."""
    degree, nodes = network.edges / network.nodes, network.nodes
    rows, drawn = [nodes * -math.expm1(-seeds / nodes) if seeds > nodes // 8 else float(seeds)], []
    for hop, size in enumerate(params.sizes):
        count = rows[-1] * (degree if size < 0 else min(size, degree))
        if params.sums_features and not network.learned and hop == params.layers - 1:
            count = 0.0  # means are read
        drawn.append(min(count, float(network.edges)))
        others = nodes - rows[-1]
        rows.append(rows[-1] + max(0.0, others) * -math.expm1(-_DIFFERENT * drawn[-1] / nodes))
    products = moved = held = 0.0
    own_and_neighbours = params.model in ("sage", "rgcn")
    for layer in range(params.layers):
        hop = params.layers - 1 - layer
        first, last = layer == 0, hop == 0
        read, made = network.width if first else network.hidden, network.outputs if last else network.hidden
        multiplied = 2 * rows[hop] if own_and_neighbours else rows[hop + 1] if last else (rows[hop] + rows[hop + 1]) / 2
        passes = (2 if first and not network.learned else 3) if training else 1
        products += 2.0 * passes * multiplied * read * made
        values = rows[hop] * (read + made)
        moved += drawn[hop] * read * max(1, passes - 1) * (_ATTENTION if params.model in ATTENTION else 1)
        moved += values * (_MOVES if training else 2)
        held += 4 * values * (4 if training else 2)
    waiting = 12 * sum(drawn) + (0 if network.learned else 4 * rows[-1] * network.width)
    updated = 10 * _dense(params, network) + (20 * rows[-1] * network.width if network.learned else 0)
    seconds = _STEP_S * (1.0 if training else 0.3) + _PRODUCT_S * products + _EDGE_S * sum(drawn)
    seconds += _VALUE_S * (moved + (updated if training else 0))
    return _Step(seconds, round(held), round(waiting))


def _dense(params: TrainParams, network: _Network) -> int:
    """Weights of the layers."""
    widths = [network.width, *[network.hidden] * (params.layers - 1), network.outputs]
    return 2 * sum(a * b for a, b in itertools.pairwise(widths))


def estimate(params: TrainParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the sizes of graph and network, and the usual course of a training that may end early."""
    graph, labels = inputs.get("graph", {}), inputs.get("labels", inputs.get("graph", {}))
    nodes, values = max(1, int(graph.get("nodes") or 1)), feature_values(graph)
    links, relations = int(graph.get("links") or 0), "relations" in graph
    trained = max(1, links - sum(int(graph.get(f"{split}_links") or 0) for split in ("validation", "test")))
    hidden = params.width(trained if relations else 0)
    if not any(name.startswith("values.nodes.") for name in graph):
        values = nodes * hidden  # nothing is known of features
    network = _Network(
        nodes, int(graph.get("edges") or 0), round(values / nodes) or hidden, not values, hidden,
        hidden if links else int(labels.get("classes") or USUAL_CLASSES),
    )  # fmt: skip
    if links:
        validated = int(graph.get("validation_links") or 0)
        most = max(1, trained // _LINK_SHARE)
        if params.in_tiles and not relations:
            ends = 4  # as many pairs are drawn as a step has links
        else:
            ends = 2 + params.pairs(relations) * (2 if params.negatives_by == "pairs" and not relations else 1)
    else:
        trained, validated = split_sizes(params.shares, labels, nodes)
        most, ends = trained, 1
    batch = most if params.batch == "all" else min(most, int(params.batch))
    chosen = params.concrete(bool(links), trained, batch, network.learned, relations)
    epochs = chosen.epochs
    if chosen.patience and validated:
        epochs = min(epochs, round((_LINK_PATIENCES if links else _PATIENCES) * chosen.patience))
    steps, at_once = epochs * -(-trained // batch), min(validated, _VALIDATED_AT_ONCE)
    training = _step(params, network, batch * ends, True)
    validation = _step(params, network, max(1, at_once * (4 if links else 1)), False)
    validated_s = epochs * (validated / max(at_once, 1)) * validation.cpu_s
    dense = _dense(params, network)
    learned = nodes * network.width if network.learned else 0
    sampled = inputs.get("subgraphs", {})
    given = 28 * int(sampled.get("edges") or 0) + 8 * int(sampled.get("nodes") or 0)
    # Weights, gradients, two moments, the best ones, and those that are written.
    state = 4 * (6 * dense + 5 * learned) + 16 * nodes + (8 * 3 * links)
    steps_bytes = training.held_bytes + (1 + params.lookahead) * max(training.waiting_bytes, validation.waiting_bytes)
    if links:
        steps_bytes *= _HOLES
    means = mean_values(graph) if params.sums_features else 0
    mapped = 0 if network.learned else 4 * (values + means)
    return _PROCESS.estimate(
        memory_bytes=mapped + given + state + max(steps_bytes, validation.held_bytes),
        cpu_s=steps * training.cpu_s + validated_s,
        output_bytes=4 * (dense + learned) + nodes + 20 * steps + (1 << 12),
        stats={
            "hidden": hidden,
            "nodes": nodes,
            "layers": params.layers,
            "weighted": int(params.sums_weights),
        },
        parallel=0.6,
        mapped_bytes=mapped,
        kind="own" if params.code else params.model,
    )


def estimate_on_workers(params: TrainParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """As in process, and each worker has rows, weights and features of its nodes; of means it maps those of all, and
    has its own."""
    alone, workers, graph = estimate(params, inputs, resources), workers_of(resources), inputs.get("graph", {})
    values, means = feature_values(graph), mean_values(graph) if params.sums_features else 0
    edges = int(graph.get("edges") or 0)
    held = 4 * (values + means + edges) // workers + (4 * edges // workers if params.weight else 0)
    mapped = 4 * means
    memory = alone.memory_bytes - alone.mapped_bytes + held + mapped
    return replace(alone, memory_bytes=memory, mapped_bytes=mapped)
