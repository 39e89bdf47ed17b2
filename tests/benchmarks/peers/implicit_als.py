"""Alternating least squares of implicit, by conjugate gradients or Cholesky's decomposition; one iteration's figure.

implicit_als.py USERS ITEMS RATINGS FACTORS CG(0|1)
{"threads"} -> {"wall_s", "cpu_s", "answer": ratings}
"""

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from implicit.cpu.als import AlternatingLeastSquares
from rating_samples import ratings
from serving import Clock, serve

ITERATIONS = 4
given: dict = {}


def prepare() -> dict:
    given["ratings"] = ratings(*map(int, sys.argv[1:4]))
    return {"ratings": given["ratings"].nnz}


def answer(request: dict) -> dict:
    clocks = Clock(), Clock()
    for clock, iterations in zip(clocks, (1, 1 + ITERATIONS), strict=True):
        model = AlternatingLeastSquares(
            factors=int(sys.argv[4]), regularization=0.1, use_cg=sys.argv[5] == "1", iterations=iterations,
            num_threads=request["threads"], random_state=0,
        )  # fmt: skip
        with clock:
            model.fit(given["ratings"], show_progress=False)
    first, last = (clock.seconds() for clock in clocks)
    made = {name: (last[name] - first[name]) / ITERATIONS for name in first}
    return {**made, "answer": given["ratings"].nnz}


serve(answer, prepare)
