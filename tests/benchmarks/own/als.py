"""Our alternating least squares on ratings in memory; the figure is that of one iteration.

python -m tests.benchmarks.own.als USERS ITEMS RATINGS FACTORS
{"threads"} -> {"wall_s", "cpu_s", "answer": root mean squared error after the last iteration}
"""

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from superworkflow.tasks.als.program import PROGRAM
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from tests.benchmarks.peers.rating_samples import ratings
from tests.benchmarks.peers.serving import Clock, serve

ITERATIONS = 4
graphs: list[Coloured] = []


def prepare() -> dict[str, Any]:
    users, items, count, _ = map(int, sys.argv[1:])
    given = ratings(users, items, count)
    both = sp.csr_array(sp.block_array([[None, given], [given.T.tocsr(), None]]))
    both.sort_indices()
    side = np.repeat(np.array([0, 1], np.int32), [users, items])
    graphs.append(
        Coloured(both.indptr.astype(np.int64), both.indices.astype(np.int32), both.data.astype(np.float32),
                 np.arange(users + items, dtype=np.int32), np.array([0, users, users + items]), given={"side": side})
    )  # fmt: skip
    run(1, 1)  # compiles
    return {"ratings": given.nnz}


def run(iterations: int, threads: int) -> float:
    params = PROGRAM.params(factors=int(sys.argv[4]), max_steps=iterations)
    return float(ChromaticEngine(PROGRAM, params, graphs[0], threads).run().globals["rmse"])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    clocks, found = (Clock(), Clock()), 0.0
    for clock, iterations in zip(clocks, (1, 1 + ITERATIONS), strict=True):
        with clock:
            found = run(iterations, request["threads"])
    first, last = (clock.seconds() for clock in clocks)
    return {name: (last[name] - first[name]) / ITERATIONS for name in first} | {"answer": found}


serve(answer, prepare)
