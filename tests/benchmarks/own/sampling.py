"""Our subgraphs of a heterograph dataset, through the interface that the stage uses, by one thread.

python -m tests.benchmarks.own.sampling GRAPH
{"subgraphs", "seed"} -> {"subgraphs", "edges", "wall_s", "cpu_s"}
"""

import sys
from typing import Any

import numpy as np
import pyarrow as pa

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.sampler import SeedRows, SpecSampler
from superworkflow.tasks.sample.spec import parse_spec
from tests.benchmarks.peers.serving import Clock, serve
from tests.benchmarks.rows_sampling import SPEC

made: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    graph = HeteroGraph.open(Dataset.open(sys.argv[1]))
    made["sampler"] = SpecSampler(graph, parse_spec(SPEC, "spec"), SampleParams())
    made["papers"] = graph.node_sets["paper"].count
    return {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    total, edges, done = request["subgraphs"], 0, 0
    nodes = np.random.default_rng(request["seed"]).integers(0, made["papers"], (total, 1))
    none = np.zeros(total, np.int64)
    seeds = SeedRows(pa.array([""] * total), nodes, none, none)
    with Clock() as clock:
        while done < total:
            block = made["sampler"].block(seeds.part(done, total), GROUP_ENTRIES, copied=False)
            done += block.subgraphs
            edges += sum(map(len, block.positions))
    return {"subgraphs": total, "edges": edges, **clock.seconds()}


serve(answer, prepare)
