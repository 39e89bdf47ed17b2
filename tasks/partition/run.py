"""The work of stage `partition`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.distributed.partition import BOOK_FILE, FORMAT, PARTITION_FILE, order_file
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph, index_dtype
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.partition import PartitionParams
from superworkflow.tasks.partition.clusters import divide
from superworkflow.tasks.partition.graph import Constraint, binding, constraints_of, symmetric
from superworkflow.tasks.partition.kernels import count_cut

load_kernels_fast()
PartOf = dict[str, NDArray[np.int16]]


def run(job: StageRun[PartitionParams]) -> Output:
    """Divide the graph; see `tasks.partition`.

    Raises:
        UserError: there are more parts than nodes, or METIS cannot take the graph.
    """
    params, graph = job.params, HeteroGraph.open(job.inputs["graph"])
    nodes = sum(each.count for each in graph.node_sets.values())
    parts = params.parts_of(nodes)
    if parts > nodes or not nodes:
        raise UserError(f"there are more parts than the graph's {nodes} nodes", where="partition.parts", value=parts,
                        remedy="Lower partition.parts")  # fmt: skip
    constraints = constraints_of(graph)
    if parts == 1:
        part_of = {name: np.zeros(each.count, np.int16) for name, each in graph.node_sets.items()}
    elif params.method == "contiguous":
        part_of = {
            name: (np.arange(each.count) * parts // max(1, each.count)).astype(np.int16)
            for name, each in graph.node_sets.items()
        }
    else:
        part_of = _by_metis(job, graph, constraints, parts)
    book = np.zeros((len(graph.node_sets), parts + 1), np.int64)
    orders = {}
    for number, (name, each) in enumerate(part_of.items()):
        order = np.argsort(each, kind="stable").astype(index_dtype(len(each)))
        job.output.array(order_file(number), order)
        np.cumsum(np.bincount(each, minlength=parts), out=book[number, 1:])
        orders[name] = order
    job.output.array(BOOK_FILE, book)
    levels = _levels(job, graph, part_of, orders, book, constraints)
    job.output.json(PARTITION_FILE, {
        "format": FORMAT, "parts": parts, "method": params.method, "levels": levels,
        "node_sets": [{"name": name, "count": each.count} for name, each in graph.node_sets.items()],
    })  # fmt: skip
    edges = sum(each.count for each in graph.edge_sets.values())
    facts: dict[str, Stat] = {
        "nodes": nodes, "edges": edges, "parts": parts, "cut": levels[-1]["cut"], "halo": levels[-1]["halo"],
        "imbalance": max(levels[-1]["imbalance"].values(), default=1.0),
    }  # fmt: skip
    for level in levels[1:]:
        facts |= {f"{name}.{level['parts']}": level[name] for name in ("cut", "halo")}
        facts[f"imbalance.{level['parts']}"] = max(level["imbalance"].values(), default=1.0)
    return Output(rows=nodes, stats=facts)


def bisection_imbalance(imbalance: float, parts: int) -> float:
    """Imbalance allowed to each bisection: that of a part is the product of those on its way."""
    return float(imbalance ** (1 / max(1, parts.bit_length() - 1)))


def _by_metis(job: StageRun[PartitionParams], graph: HeteroGraph, all_of: list[Constraint], parts: int) -> PartOf:
    used = binding(all_of, parts, job.params.imbalance)
    loose = [each.name for each in all_of if each not in used]
    job.progress.log(f"{parts} parts, even in {', '.join(each.name for each in used)}"
                     + (f"; too few for that: {', '.join(loose)}" if loose else ""))  # fmt: skip
    weights = np.stack(
        [np.concatenate([each.weights[name] for name in graph.node_sets]) for each in used], axis=1
    ).astype(np.int32)
    rows = symmetric(graph)
    job.progress.log(f"METIS divides {len(weights):,} nodes and {len(rows.adjacency) // 2:,} pairs of neighbours")
    each_time = bisection_imbalance(job.params.imbalance, parts)
    found = divide(rows, weights, parts, job.params.imbalance, each_time, job.params.seed, job.scratch, job.progress)
    cuts = np.cumsum([each.count for each in graph.node_sets.values()])[:-1]
    return dict(zip(graph.node_sets, np.split(found.astype(np.int16), cuts), strict=True))


def _levels(
    job: StageRun[PartitionParams], graph: HeteroGraph, part_of: PartOf, orders: dict[str, NDArray[Any]],
    book: NDArray[np.int64], constraints: list[Constraint],
) -> list[dict[str, Any]]:  # fmt: skip
    """Cut edges, remote reads and imbalance of 1, 2, 4, … ranges of parts."""
    parts, numbers = book.shape[1] - 1, {name: number for number, name in enumerate(graph.node_sets)}
    loads = {each.name: np.zeros(parts) for each in constraints}
    for each in constraints:
        for name in graph.node_sets:
            loads[each.name] += np.bincount(part_of[name], each.weights[name], parts)
    stamps = {name: np.zeros(each.count, np.int32) for name, each in graph.node_sets.items()}
    levels = []
    for depth in range(parts.bit_length()):
        ranges, shift = 1 << depth, parts.bit_length() - 1 - depth
        cut = halo = 0
        for own in range(ranges) if ranges > 1 else ():
            for edges in graph.edge_sets.values():
                of_source = book[numbers[edges.source]]
                owned = read_only(orders[edges.source][of_source[own << shift] : of_source[(own + 1) << shift]])
                indptr, indices = map(read_only, graph.rows(edges.name))
                target = edges.target
                more = count_cut(
                    indptr, indices, owned, part_of[target], shift, own, stamps[target], (1 << depth) + own
                )
                cut, halo = cut + more[0], halo + more[1]
            job.progress.update(ranges + own, 2 * parts - 1, "ranges")
        uneven = {
            name: round(float(load.reshape(ranges, -1).sum(1).max() * ranges / load.sum()), 4)
            for name, load in loads.items()
        }
        levels.append({"parts": ranges, "cut": cut, "halo": halo, "imbalance": uneven})
    return levels
