"""Estimate of stage `train_full`: products and gathers of an epoch, times the epochs.

Rates are those of one core; docs/full-graph.md has the measurements. Sparse first rows are estimated as dense ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.estimate import Estimate, Stats
from superworkflow.infra.contract.resources import Resources
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values, split_sizes
from superworkflow.tasks.train_full.params import PARAMETER, TrainFullParams

_PROCESS_BYTES = 420 << 20
_START_S = 1.8
_PRODUCT_S, _VALUE_S, _ARC_VALUE_S, _TASK_S = 1 / 6e10, 1.2e-9, 2.5e-10, 1.2e-4
"""CPU seconds of a multiplication or addition, of a value that is activated or dropped, of a value that an arc
moves, and of a task whatever its size."""
_ATTENTION = 6
"""Times that attention takes for the value of an arc, compared with a sum."""
_ORDER_BYTES = 56
"""Of a vertex: offsets of arcs both ways, its position, and what its order is made of."""
_PATIENCES = 3.0
"""Epochs of a training that ends early, in multiples of `patience`."""


def estimate(params: TrainFullParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the sizes of graph and network."""
    graph, labels = inputs.get("graph", {}), inputs.get("labels", inputs.get("graph", {}))
    nodes, arcs = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    read = round(feature_values(graph) / nodes) or 1
    trained, validated = split_sizes(params.shares, labels, nodes)
    chosen = params.concrete(trained)
    epochs = chosen.epochs
    if chosen.patience and validated:
        epochs = min(epochs, round(_PATIENCES * chosen.patience))
    passes = 3 if validated else 2
    widths = [*[params.width] * (params.layers - 1), int(labels.get("classes") or USUAL_CLASSES)]
    gathered = widths[1:] if params.model == "gcn" else widths
    products = values = 0
    for width in widths:
        products += (passes + (read > width)) * read * width
        values += 3 * read + 2 * width
        read = width
    moved = passes * sum(gathered) * (_ATTENTION if params.model == "gat" else 1)
    intervals = min(params.intervals_of(nodes, "parts" in inputs), nodes)
    tasks = passes * 3 * params.layers * intervals
    epoch_s = nodes * (2 * _PRODUCT_S * products + _VALUE_S * values) + arcs * _ARC_VALUE_S * moved + _TASK_S * tasks
    size = 2 if params.precision == "bfloat16" else 4
    inputs_bytes, mapped = 4 * feature_values(graph), 4 * arcs  # each server reads all arcs, for their order
    rows = nodes * (passes * size * sum(gathered) + 4 * 3 * sum(widths)) + inputs_bytes // intervals
    weights = sum(widths) * (params.width + round(feature_values(graph) / nodes))
    groups = (resources.workers or {}).items()
    fixed = [each.count for role, each in groups if role != PARAMETER and not each.elastic]
    if fixed:  # a graph server may have ghosts of all vertices, but what it does not publish is of its own
        rows = nodes * passes * size * sum(gathered) + nodes * 4 * 3 * sum(widths) // sum(fixed)
        rows += inputs_bytes // intervals
        arcs, inputs_bytes = arcs // sum(fixed), inputs_bytes // sum(fixed)
    mapped += inputs_bytes  # in the order of the intervals inputs and arcs are copies
    return Estimate(
        memory_bytes=_PROCESS_BYTES + rows + _ORDER_BYTES * nodes + 8 * arcs + 4 * 8 * weights + inputs_bytes + mapped,
        cpu_s=_START_S + epochs * epoch_s,
        output_bytes=4 * weights + nodes + 60 * epochs + 20 * epochs * tasks,
        stats={"hidden": params.width, "nodes": nodes, "layers": params.layers, "parameters": weights},
        parallel=0.8,
        start_s=_START_S,
        base_bytes=_PROCESS_BYTES,
        mapped_bytes=mapped,
        kind=params.model,
    )
