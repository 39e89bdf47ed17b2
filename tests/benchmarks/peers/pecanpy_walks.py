"""Random walks of PecanPy's SparseOTF: its compiled kernel alone, without the translation to labels behind it.

    pecanpy_walks.py CSR.npz WEIGHTED(0|1)
    {"p", "q", "walk_length", "walks"} -> {"steps", "wall_s", "cpu_s"}

The kernel is compiled for each graph and p, q; that is done on a few short walks before the first measured ones.
"""

import sys

import numpy as np
from numba_progress import ProgressBar
from pecanpy import pecanpy
from serving import Clock, serve

graph: pecanpy.SparseOTF
steppers: tuple = ()
compiled_for: tuple = ()


def prepare() -> dict:
    global graph
    graph = pecanpy.SparseOTF(workers=2, verbose=False, random_state=1)
    graph.read_npz(sys.argv[1], weighted=sys.argv[2] == "1")
    return {"vertices": graph.num_nodes, "edges": int(graph.num_edges)}


def walk(starts: np.ndarray, length: int, seed: int) -> np.ndarray:
    with ProgressBar(total=len(starts), disable=True) as progress:
        return graph._random_walks(len(starts), length, seed, starts, *steppers, progress)


def answer(request: dict) -> dict:
    global steppers, compiled_for
    if compiled_for != (request["p"], request["q"]):
        graph.p, graph.q = compiled_for = request["p"], request["q"]
        graph._preprocess_transition_probs()
        steppers = graph.get_has_nbrs(), graph.get_move_forward()
        walk(np.arange(4, dtype=np.uint32), 3, 1)
    random = np.random.default_rng(request["seed"])
    starts = random.permutation(graph.num_nodes)[: request["walks"]].astype(np.uint32)
    starts = np.resize(starts, request["walks"])
    with Clock() as clock:
        # Its walk_length counts steps.
        walks = walk(starts, request["walk_length"] - 1, request["seed"])
    return {"steps": int(walks[:, -1].sum()) - len(walks), **clock.seconds()}


serve(answer, prepare)
