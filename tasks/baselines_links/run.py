"""The work of stage `baselines_links`."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.baselines_links import METHODS, MOST_JUDGED, PATHS
from superworkflow.tasks.baselines_links.triples import judge_frequencies
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, Pairs, directed_links_of, links_of, read_held_out
from superworkflow.tasks.lib.gnn.sampler.triples import has_triples
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.auc import area_under_curve, average_precision

load_kernels_fast()
_ENTRIES = 1 << 22
"""Neighbours of the pairs that are intersected at once, about."""
_MOST_STEPS = 1 << 27
"""Paths that are followed for the links of a split at most, and as many for its other pairs; some seconds."""
Floats = NDArray[np.float64]


def run(job: StageRun[StageParams]) -> Output:
    """Judge simpler scores of pairs; see `tasks.baselines_links`.

    Raises:
        UserError: no links were held out of the graph.
    """
    graph = HeteroGraph.open(job.inputs["graph"])
    if has_triples(graph.dataset):
        return judge_frequencies(job, graph)
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    one_set = edges.source == edges.target
    links = links_of(graph.rows(edges.name), one_set)
    directed = directed_links_of(graph.rows(edges.name)) if held_out.directed else links
    sizes = graph.node_sets[edges.source].count, graph.node_sets[edges.target].count
    degrees = _degrees(directed, sizes)
    either_way = sum(_degrees(links, sizes), np.zeros(sizes[0])) if one_set else degrees[0]
    if one_set:
        degrees = degrees if held_out.directed else [either_way] * 2
    else:
        job.progress.log(
            f"common neighbours are left out, since nodes of {edges.source} and {edges.target} have none in common"
        )
    shift = np.array([0, 0 if one_set else sizes[0]])  # nodes of two sets one after the other
    nodes = sizes[0] if one_set else sum(sizes)
    joined = _rows_of(np.arange(nodes), links + shift, nodes)
    metrics: dict[str, float] = {}
    judged = 0
    for split in HELD_OUT:
        others = held_out.negatives(split)
        others = others[:: max(1, len(others) // MOST_JUDGED)] if split in held_out.candidates else others
        pairs = [held_out.links[split][:MOST_JUDGED], others[:MOST_JUDGED]]
        if not len(pairs[0]):
            continue
        judged += len(pairs[0])
        if len(pairs[0]) < len(held_out.links[split]):
            job.progress.log(f"{len(pairs[0]):,} of {len(held_out.links[split]):,} {split} links are judged")
        whole = np.concatenate(pairs)
        scores = {"degree_product": degrees[0][whole[:, 0]] * degrees[1][whole[:, 1]]}
        if one_set:
            scores["common_neighbors"], scores["adamic_adar"] = shared_neighbors(links, either_way, whole)
        halves = {name: np.split(values, [len(pairs[0])]) for name, values in scores.items()}
        halves[PATHS] = [paths_of_three(joined, each + shift) for each in pairs]
        for method in filter(halves.__contains__, METHODS):
            both = halves[method]
            if not all(map(len, both)):
                continue  # more paths than are followed
            metrics |= {
                f"{method}_auc@{split}": area_under_curve(*both), f"{method}_ap@{split}": average_precision(*both),
            }  # fmt: skip
            job.progress.log(f"{method.replace('_', ' ')}: auc {metrics[f'{method}_auc@{split}']:.4f} ({split})")
    job.output.json("metrics.json", metrics)
    return Output(rows=judged, metrics=metrics)


def _degrees(links: Pairs, sizes: tuple[int, int]) -> list[Floats]:
    """Links of each source, and of each target."""
    return [np.bincount(links[:, side], minlength=sizes[side]).astype(np.float64) for side in (0, 1)]


def shared_neighbors(links: Pairs, degrees: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
    """Number of the neighbours that the nodes of each pair share, and the sum of 1 / log degree over these.

    Args:
        links: all links, int64 [links, 2], distinct.
        degrees: of all nodes.
        pairs: int64 [pairs, 2].
    """
    ends = np.unique(pairs)
    neighbors = _rows_of(ends, links, len(degrees))
    places = np.searchsorted(ends, pairs)
    lengths = np.cumsum(np.diff(neighbors.indptr)[places].sum(axis=1, dtype=np.int64))
    worth = 1 / np.log(np.maximum(degrees, 2))
    counts, sums = np.zeros(len(pairs)), np.zeros(len(pairs))
    first = 0
    while first < len(pairs):
        done = int(lengths[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(lengths, done + _ENTRIES, side="right")))
        part = places[first:last]
        shared = neighbors[part[:, 0]].multiply(neighbors[part[:, 1]]).tocsr()
        counts[first:last] = np.diff(shared.indptr)
        sums[first:last] = shared @ worth
        first = last
    return counts, sums


def paths_of_three(neighbors: sp.csr_matrix, pairs: Pairs) -> Floats:
    """Weighed number of paths of length 3 between the nodes of each pair (Kovács et al., Nature Communications, 2019).

    A path counts 1 / sqrt(k_u k_v), with the degrees of its two inner nodes.

    Args:
        neighbors: neighbours of each node, as rows of ones, [nodes, nodes].
        pairs: int64 [pairs, 2], without a link.

    Returns:
        The first pairs' scores, those that take `_MOST_STEPS`; at most [pairs].
    """
    degrees = np.diff(neighbors.indptr).astype(np.float64)
    worth = sp.diags_array(1 / np.sqrt(np.maximum(degrees, 1))).tocsr()
    steps = (neighbors @ degrees)[pairs]
    near, far = (np.take_along_axis(pairs, order[:, None], 1)[:, 0]
                 for order in (steps.argmin(axis=1), 1 - steps.argmin(axis=1)))  # fmt: skip
    done = np.cumsum(steps.min(axis=1, initial=np.inf))
    count = int(np.searchsorted(done, _MOST_STEPS, side="right"))
    found, first = np.zeros(count), 0
    while first < count:
        last = int(np.searchsorted(done[:count], (done[first - 1] if first else 0) + _ENTRIES, side="right"))
        part = slice(first, max(first + 1, last))
        two = neighbors[near[part]] @ worth @ neighbors
        found[part] = two.multiply(neighbors[far[part]] @ worth).sum(axis=1).ravel()
        first = part.stop
    return found


def _rows_of(ends: NDArray[np.int64], links: Pairs, nodes: int) -> sp.csr_matrix:
    """Neighbours of some nodes, ascending, as rows of ones, [these nodes, nodes]."""
    place = np.full(nodes, -1, np.int64)
    place[ends] = np.arange(len(ends))
    rows, columns = [], []
    for side in (0, 1):
        here = place[links[:, side]]
        kept = here >= 0
        rows.append(here[kept])
        columns.append(links[kept, 1 - side])
    ones = np.ones(sum(map(len, rows)), np.float32)
    return sp.csr_matrix((ones, (np.concatenate(rows), np.concatenate(columns))), shape=(len(ends), nodes))
