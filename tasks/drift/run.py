"""The work of stage `drift`."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.drift import DriftParams
from superworkflow.tasks.drift.graphs import IndexedGraph, compare, places
from superworkflow.tasks.drift.vectors import compare_vectors
from superworkflow.tasks.lib.embeddings import gather

_SAMPLE = 1_000_081
"""Sets the random stream of the sample apart from those of other stages."""


def run(job: StageRun[DriftParams]) -> Output:
    """Compare two graphs, and two sets of embeddings where they are given; see `tasks.drift`.

    Raises:
        DatasetDamaged: a dataset's files do not fit each other.
    """
    graph, before = (IndexedGraph.open(job.inputs[name]) for name in ("graph", "earlier_graph"))
    if graph.directed != before.directed:
        job.progress.log("one of the graphs is directed and the other is not: edges are not compared")
    there = places(graph, before)
    figures = compare(graph, before, there, job.threads)
    shared = np.flatnonzero(there >= 0)
    if {"embeddings", "earlier_embeddings"} <= set(job.inputs):
        chosen = np.random.default_rng([job.params.seed, _SAMPLE]).permutation(len(shared))[: job.params.sample]
        names = pc.cast(graph.nodes.take(shared[chosen]), graph.nodes.type).combine_chunks()
        new, old = (gather(job.inputs[name], names) for name in ("embeddings", "earlier_embeddings"))
        with threadpool_limits(1):  # the same sums for any number of threads
            found = compare_vectors(new.vectors, old.vectors, job.params)
        if not found:
            job.progress.log("the embeddings have too few nodes in common: they are not compared")
        figures |= found
    job.output.json("drift.json", figures)
    return Output(rows=len(shared), drift=figures)
