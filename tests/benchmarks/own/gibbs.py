"""Our Gibbs sampler on a factor graph and its colours; the graph is loaded and the program compiled before.

python -m tests.benchmarks.own.gibbs GRAPH COLOURS
{"threads", "draws"} -> {"wall_s", "cpu_s", "answer": mean of the states that were drawn}
"""

import sys
from typing import Any

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.gibbs.factors import PROGRAM
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.lib.vertex.stage import coloured_graph
from tests.benchmarks.peers.serving import Clock, serve

graphs: list[Coloured] = []


def prepare() -> dict[str, Any]:
    graphs.append(coloured_graph(*(Dataset.open(each) for each in sys.argv[1:3]), PROGRAM))
    run(2, 1)  # compiles
    return {"variables": int((~graphs[0].given["factor"]).sum())}


def run(draws: int, threads: int) -> float:
    params = PROGRAM.params(max_steps=draws, burn_in=0)
    counts = ChromaticEngine(PROGRAM, params, graphs[0], threads).run().fields["counts"].sum(axis=0)
    return float((counts * range(len(counts))).sum() / counts.sum())


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        found = run(request["draws"], request["threads"])
    return {**clock.seconds(), "answer": found}


serve(answer, prepare)
