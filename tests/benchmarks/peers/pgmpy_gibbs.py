"""Gibbs sampler of pgmpy on a model in the UAI format; reading it and making its conditional tables come before.

pgmpy_gibbs.py MODEL
{"draws"} -> {"wall_s", "cpu_s", "answer": mean of the states that were drawn}
"""

import sys

from pgmpy.readwrite import UAIReader
from pgmpy.sampling import GibbsSampling
from serving import Clock, serve

samplers: list = []


def prepare() -> dict:
    samplers.append(GibbsSampling(UAIReader(sys.argv[1]).get_model()))
    return {"variables": len(samplers[0].variables)}


def answer(request: dict) -> dict:
    with Clock() as clock:
        found = samplers[0].sample(size=request["draws"], seed=1)
    return {**clock.seconds(), "answer": float(found.to_numpy(dtype=float).mean())}


serve(answer, prepare)
