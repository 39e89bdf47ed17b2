"""Estimate of stage `train_full`: an epoch simulated on the virtual clock (`planned`), times the epochs.

Rates are nominal; records of earlier runs correct them. Sparse first rows are estimated as dense ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superworkflow.infra.contract.stage import Estimate, Process, Resources, Stats
from superworkflow.tasks.lib.gnn.estimates import USUAL_CLASSES, feature_values, split_sizes
from superworkflow.tasks.train.defaults import FEW_ITEMS
from superworkflow.tasks.train_full.params import COPIED_INPUTS, PARAMETER, SYNC, TENSOR, TrainFullParams

_PROCESS = Process(start_s=1.8, memory_bytes=420 << 20)
_ORDER_BYTES = 56
"""Of a vertex: offsets of arcs both ways, its position, and what its order is made of."""
_PADDED = 16
"""Columns of tables are padded to a multiple of these."""
_MORE_THREADS = 4
"""Threads by which the share is found that threads divide, where there is one."""
_PATIENCES, _MANY_PATIENCES = 3.0, 12.0
"""Epochs of a training that ends early, in multiples of `patience`; and with many labels, of which 364 to 961 were seen
with a patience of 50."""


def estimate(params: TrainFullParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Predict from the sizes of graph and network."""
    graph, labels = inputs.get("graph", {}), inputs.get("labels", inputs.get("graph", {}))
    nodes, arcs = max(1, int(graph.get("nodes") or 1)), int(graph.get("edges") or 0)
    is_symmetric, values = 2 * int(graph.get("reversed_edges") or 0) >= arcs, round(feature_values(graph) / nodes) or 1
    trained, validated = split_sizes(params.shares, labels, nodes)
    chosen = params.concrete(trained)
    epochs = chosen.epochs
    if chosen.patience and validated:
        patiences = _PATIENCES if trained <= FEW_ITEMS else _MANY_PATIENCES
        epochs = min(epochs, round(patiences * chosen.patience))
    passes = 3 if validated else 2
    widths = [*[params.width] * (params.layers - 1), int(labels.get("classes") or USUAL_CLASSES)]
    gathered = widths[1:] if params.model == "gcn" else widths
    shapes = tuple(zip(widths, [values, *widths], strict=False))
    intervals = min(params.intervals_of(nodes, "parts" in inputs), nodes)
    tasks = passes * 3 * params.layers * intervals
    size = 2 if params.precision == "bfloat16" else 4
    inputs_bytes, mapped = 4 * feature_values(graph), 4 * arcs  # each server reads all arcs, for their order
    tables = nodes * passes * size * sum(-(-width // _PADDED) * _PADDED for width in gathered)
    kept = 4 * nodes * (3 * sum(widths) if params.model == "gat" else sum(widths) + max(widths) * (params.layers > 2))
    read = 0 if size == 2 else resources.threads * inputs_bytes // intervals  # what threads read at a time is a copy
    weights = sum(widths) * (params.width + round(feature_values(graph) / nodes))
    groups = (resources.workers or {}).items()
    fixed = [each.count for role, each in groups if role != PARAMETER and not each.elastic]
    staleness = None if params.staleness == SYNC else int(params.staleness)
    sizes = (
        nodes,
        arcs,
        shapes,
        params.heads,
        intervals,
        validated,
        staleness,
        params.fusion,
        params.streaming,
        size,
    )
    epoch_s, parallel = _epoch((params.model, *sizes), resources)
    if fixed:  # a graph server may have ghosts of all vertices, but what it does not publish is of its own
        kept //= sum(fixed)
        arcs, inputs_bytes = arcs // sum(fixed), inputs_bytes // sum(fixed)
    held = _ORDER_BYTES * nodes + (4 if is_symmetric else 8) * arcs
    if size == 2:  # inputs are rounded, and their files let go
        copied = inputs_bytes // 2
    else:  # in the order of the intervals inputs that are not too large are copies
        copied, mapped = inputs_bytes if inputs_bytes <= COPIED_INPUTS else 0, mapped + inputs_bytes
    return _PROCESS.estimate(
        memory_bytes=tables + kept + read + held + 4 * 8 * weights + copied + mapped,
        cpu_s=epochs * epoch_s,
        output_bytes=4 * weights + nodes + 60 * epochs + 20 * epochs * tasks,
        stats={"hidden": params.width, "nodes": nodes, "layers": params.layers, "parameters": weights},
        parallel=parallel,
        mapped_bytes=mapped,
        kind=params.model,
    )


def _epoch(work: tuple[Any, ...], resources: Resources) -> tuple[float, float]:
    """CPU seconds of an epoch, and the share of it that all threads divide among themselves, as simulated.

    Args:
        work: values of a `planned.PlannedWork`.
        resources: with the roles of workers.
    """
    from superworkflow.tasks.train_full.planned import PlannedWork, epoch_seconds  # needs NumPy

    groups, tensor = resources.workers or {}, (resources.endpoints or {}).get(TENSOR)
    fixed = [each for role, each in groups.items() if role != PARAMETER and not each.elastic]
    servers, workers = sum(each.count for each in fixed) or 1, tensor.most if tensor else 0
    if TENSOR in groups:
        workers = groups[TENSOR].count
    threads = max(1, int(fixed[0].cpu)) if fixed else resources.threads
    width = max(1, int(sum(each.count * each.cpu for each in groups.values()))) if groups else threads
    if width == 1:
        width = threads = _MORE_THREADS
    found = epoch_seconds(PlannedWork(*work), servers, threads, workers)
    busy = max(found.busy, found.wall)  # threads that wait for links are not free for others
    return busy, min(1.0, (1 - found.wall / busy) / (1 - 1 / width))
