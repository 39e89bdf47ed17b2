"""The work of stage `holdout_links`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.holdout.split import non_edges
from superworkflow.tasks.holdout_links import ALL, HoldoutLinksParams
from superworkflow.tasks.holdout_links.given_links import read_given
from superworkflow.tasks.holdout_links.triples import hold_out
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.link_doubts import link_doubts
from superworkflow.tasks.lib.gnn.sampler.links import (
    HELD_OUT,
    SIDES_FILE,
    HeldOut,
    Pairs,
    Places,
    directed_links_of,
    has_links,
    is_one_way,
    link_times,
    links_of,
    packed_pairs,
    sides_of_nodes,
)
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import draw_non_links
from superworkflow.tasks.lib.gnn.sampler.time_draws import edge_times
from superworkflow.tasks.lib.gnn.sampler.triples import relations_of
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph
from superworkflow.tasks.lib.graph.hidden_edges import write_without
from superworkflow.tasks.lib.graph.stat_names import is_single
from superworkflow.tasks.lib.graph.two_sides import nodes_by_side, two_sides
from superworkflow.tasks.lib.kernels.arrays import distinct, read_only
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
_WHERE = "holdout_links.edges"


def run(job: StageRun[HoldoutLinksParams]) -> Output:
    """Hide links; see `tasks.holdout_links`.

    Raises:
        UserError: no such edge set, or too few links or pairs without one.
    """
    params, graph = job.params, HeteroGraph.open(job.inputs["graph"])
    if has_links(graph.dataset):
        raise UserError("links were held out of this graph before", where=graph.dataset.uri,
                        remedy="Give the output of stage heterograph")  # fmt: skip
    relations = relations_of(graph)
    if params.edges not in graph.edge_sets and (params.edges == ALL or (len(relations) > 1 and not params.edges)):
        if not relations:
            raise UserError("the relations join different node sets", where=_WHERE, value=params.edges,
                            remedy=f"Name one, of {', '.join(graph.edge_sets)[:500] or 'none'}")  # fmt: skip
        return hold_out(job, graph, relations)
    edges = _edges_of(graph, params.edges)
    directed = links_are_directed(graph, edges, params.directed)
    links = links_of(graph.rows(edges.name), edges.source == edges.target)
    warnings: list[InputWarning] = []
    sides = sides_of_nodes(graph, edges)
    if "links" in job.sources:
        held_out, warnings = _given(job, graph, edges, links, directed)
    else:
        if not len(sides) and edges.source == edges.target and not directed:
            sides = two_sides(*graph.rows(edges.name)[:2])
            if len(sides):
                job.output.array(SIDES_FILE, sides)
                counts = " and ".join(str(np.count_nonzero(sides == side)) for side in (1, 2))
                job.progress.log(f"all edges join one of two sets of nodes with the other ({counts} nodes): pairs "
                                 "without a link are drawn across them")  # fmt: skip
        held_out = _drawn(params, graph, edges, links, directed, sides)
    if _has_times(edges, params):
        held_out = replace(held_out, times={
            split: _times(params, graph, edges, each, not directed) for split, each in held_out.links.items()
        })  # fmt: skip
    hidden = np.concatenate([held_out.links[split] for split in HELD_OUT])
    found = link_doubts(graph, edges, hidden)
    log_warnings(job.progress, found)
    warnings += found
    sizes = [len(held_out.links[split]) for split in HELD_OUT]
    count = len(directed_links_of(graph.rows(edges.name)) if directed else links)
    kind = "directed links" if directed else "links"
    job.progress.log(f"{count} {kind} of {edges.name}; {sizes[0]} to validate on and {sizes[1]} to test are hidden")
    stats = write_without(job.output, graph, Places(graph, edges).of(hidden))
    held_out.write(job.output)
    return Output(rows=len(hidden), stats={
        **graph.dataset.stats, **stats, "links": count, "validation_links": sizes[0], "test_links": sizes[1],
        "bytes": job.output.bytes_written, **warning_stats(warnings),
    })  # fmt: skip


def _drawn(
    params: HoldoutLinksParams, graph: HeteroGraph, edges: EdgeSet, links: Pairs, directed: bool,
    sides: NDArray[np.int8],
) -> HeldOut:  # fmt: skip
    """Hold links out at random, or the latest ones."""
    sizes = _sizes(params, len(links), f"{graph.dataset.uri}, {edges.name}")
    keys = random_streams.words(np.arange(len(links)), params.seed, random_streams.HIDDEN)
    order = np.argsort(keys, kind="stable")
    if params.by == "time":
        if not _has_times(edges, params):
            raise UserError(
                f"the edges have no times to split by: {edges.name} has no such feature of whole numbers",
                where="holdout_links.time", value=params.time,
                remedy="Keep the times of an edge list with heterograph.time, or set holdout_links.by=hash",
            )  # fmt: skip
        late = np.argsort(_times(params, graph, edges, links)[order], kind="stable")[len(links) - sum(sizes) :]
        order = np.concatenate([order[np.sort(each)] for each in np.split(late, [sizes[0]])])  # as drawn, in each split
    hidden = links[order[: sum(sizes)]]
    parts = [hidden[: sizes[0]], hidden[sizes[0] :]]
    if directed:
        every = directed_links_of(graph.rows(edges.name))
        parts = [each[~is_one_way(each[:, ::-1], every)] for each in map(_both_ways, parts)]
    others = _others(graph, edges, sum(map(len, parts)), params.seed, sides)
    if directed:
        coins = random_streams.words(np.arange(len(others)), params.seed, random_streams.NON_LINK, 1)
        others = np.where((coins & np.uint64(1)).astype(bool)[:, None], others[:, ::-1], others)
    return HeldOut(
        edges.name,
        dict(zip(HELD_OUT, parts, strict=True)),
        dict(zip(HELD_OUT, np.split(others, [len(parts[0])]), strict=True)),
        directed=directed,
    )


def _given(
    job: StageRun[HoldoutLinksParams], graph: HeteroGraph, edges: EdgeSet, links: Pairs, directed: bool
) -> tuple[HeldOut, list[InputWarning]]:
    """Hold out the links that the user gives, with the pairs that they are compared with, or drawn ones; warnings."""
    where, one_set = job.sources["links"].uri, edges.source == edges.target
    given = read_given(job, graph, edges)
    there = packed_pairs(links, one_set)
    absent = ~np.isin(packed_pairs(given.trained, one_set), there)
    if absent.any():
        raise UserError("links of the split train are not in the graph", where=where, value=f"{absent.sum()} links",
                        remedy="Give an edge list with all links to train on")  # fmt: skip
    hidden = np.concatenate([given.links[split] for split in HELD_OUT])
    gone = distinct(packed_pairs(hidden, one_set))
    if len(there) - np.isin(gone, there).sum() < 2:
        raise UserError("no link is left to train on", where=where, value=f"{len(hidden)} of {len(links)} links",
                        remedy="Give an edge list with links that are neither validated on nor tested")  # fmt: skip
    warnings: list[InputWarning] = []
    drawn = _others(graph, edges, len(hidden) + int((~np.isin(gone, there)).sum()), job.params.seed,
                    sides_of_nodes(graph, edges))  # fmt: skip
    drawn = drawn[~np.isin(packed_pairs(drawn, one_set), gone)]
    others = dict(zip(HELD_OUT, np.split(drawn[: len(hidden)], [len(given.links["validation"])]), strict=True))
    for split, pairs in given.candidates.items():
        count = len(given.links[split])
        others[split] = pairs[np.arange(count) * len(pairs) // count]
        if linked := int(np.isin(packed_pairs(pairs, one_set), there).sum()):
            warnings.append(InputWarning(
                f"pairs of the split {split} are given as no links, and are links of the graph", where,
                f"{linked} of {len(pairs)}", "Leave these rows out if a high score of them is not wrong",
            ))  # fmt: skip
        job.progress.log(f"{count} links of the split {split} are compared with {len(pairs)} given pairs")
    log_warnings(job.progress, warnings)
    return HeldOut(edges.name, given.links, others, given.candidates, directed=directed), warnings


def links_are_directed(graph: HeteroGraph, edges: EdgeSet, given: Literal["auto"] | bool) -> bool:
    """True if links within one node set have a direction; see `HoldoutLinksParams.directed`."""
    if edges.source != edges.target:
        return False
    table = edges.reversed_of or edges.name
    return given if given != "auto" else any(each.reversed_of == table for each in graph.edge_sets.values())


def _both_ways(links: Pairs) -> Pairs:
    """Links and their reverses, each after its link."""
    return np.stack([links, links[:, ::-1]], 1).reshape(-1, 2)


def _has_times(edges: EdgeSet, params: HoldoutLinksParams) -> bool:
    return any(each.name == params.time and is_single(each) and "int" in each.dtype for each in edges.features)


def _times(
    params: HoldoutLinksParams, graph: HeteroGraph, edges: EdgeSet, links: Pairs, either_way: bool = True
) -> NDArray[np.int64]:  # fmt: skip
    times = edge_times(graph, edges.name, params.time)
    return link_times(graph.rows(edges.name), either_way and edges.source == edges.target, times, links)


def _edges_of(graph: HeteroGraph, name: str) -> EdgeSet:
    tables = [each for each in graph.edge_sets.values() if each.reversed_of is None]
    if name and name in graph.edge_sets:
        return graph.edge_sets[name]
    if not name and len(tables) == 1:
        return tables[0]
    raise UserError(
        "the graph has no such edge set" if name else "the graph has several edge sets whose links can be predicted",
        where=_WHERE, value=name, remedy=f"Name one, of {', '.join(graph.edge_sets)[:500] or 'none'}",
    )  # fmt: skip


def _sizes(params: HoldoutLinksParams, links: int, where: str) -> tuple[int, int]:
    """Links to validate on and to test."""
    sizes = int(params.validation_share * links), int(params.test_share * links)
    if not sizes[1] or links - sum(sizes) < 2:
        raise UserError(
            "too few links to hide some and train on others", where=where, value=links,
            remedy="Give a graph with more edges, or other holdout_links.test_share and holdout_links.validation_share",
        )  # fmt: skip
    if params.validation_share and not sizes[0]:
        raise UserError("too few links to validate on some", where=where, value=links,
                        remedy="Set holdout_links.validation_share higher, or to 0")  # fmt: skip
    return sizes


def _others(graph: HeteroGraph, edges: EdgeSet, count: int, seed: int, sides: NDArray[np.int8]) -> Pairs:
    rows, one_set = graph.rows(edges.name), edges.source == edges.target
    state = np.uint64(random_streams.state(seed, random_streams.NON_LINK))
    out = np.empty((count, 2), np.int64)
    if len(sides):  # each edge is in both its rows
        both = nodes_by_side(sides)
        found = min(count, len(both[0]) * len(both[1]) - len(rows.indices) // 2)
        out[:found] = non_edges(rows.indptr, rows.indices, False, found, state, both)
    else:
        targets = graph.node_sets[edges.target].count
        found = draw_non_links(read_only(rows.indptr), read_only(rows.indices), one_set, targets, state, out)
    if found < count:
        raise UserError(
            f"too few pairs of nodes without a link: {count} are needed", where=f"{graph.dataset.uri}, {edges.name}",
            value=found, remedy="Give a sparser graph, or set holdout_links.test_share lower",
        )  # fmt: skip
    return out
