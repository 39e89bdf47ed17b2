"""Doubts about a typed graph whose links are predicted: sets with the answers, and ends that no messages reach."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.gnn.sampler.links import Pairs, links_of, packed_pairs
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph

_ANSWERED = 0.95
"""Share of the held-out links from which another edge set that has them is taken to be their reverse."""


def link_doubts(graph: HeteroGraph, edges: EdgeSet, hidden: Pairs) -> list[InputWarning]:
    """Warnings about links that are held out.

    Args:
        graph: with them.
        edges: the set that they are of.
        hidden: the links, int64 [links, 2].
    """
    return [*_answers(graph, edges, hidden), *_without_messages(graph, edges)]


def _answers(graph: HeteroGraph, edges: EdgeSet, hidden: Pairs) -> Iterator[InputWarning]:
    """Warnings of edge sets from which a network could read the held-out links."""
    if edges.source == edges.target:
        return  # follows and is followed by: either may be a relation of its own
    table = edges.reversed_of or edges.name
    for each in graph.edge_sets.values():
        if (each.source, each.target) != (edges.target, edges.source) or table in (each.name, each.reversed_of):
            continue
        there = np.isin(packed_pairs(hidden[:, ::-1]), packed_pairs(links_of(graph.rows(each.name), False)))
        if there.sum() >= _ANSWERED * len(hidden):
            yield InputWarning(
                "an edge set has the held-out links the other way round, so that networks read what they predict",
                f"{graph.dataset.uri}, {each.name}", f"{there.sum()} of {len(hidden)} links of {edges.name}",
                f"Leave it out, and describe it by superworkflow schema --reverse {each.name}={edges.name}",
            )  # fmt: skip


def _without_messages(graph: HeteroGraph, edges: EdgeSet) -> Iterator[InputWarning]:
    """Warnings of ends of links that no messages reach."""
    sources = {each.source for each in graph.edge_sets.values()}
    for end in dict.fromkeys((edges.source, edges.target)):
        if end not in sources:
            yield InputWarning(
                "no edge set starts at these nodes, so that no messages reach them", f"{graph.dataset.uri}, {end}",
                f"ends of {edges.name}", f"Add the reverse of an edge set that ends at {end}, such as by superworkflow "
                f"schema --reverse NAME={edges.name}, or in memory a frame with its columns exchanged",
            )  # fmt: skip
