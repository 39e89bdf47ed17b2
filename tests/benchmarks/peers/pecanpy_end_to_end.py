"""PecanPy and gensim: an edge list file to vectors, as PecanPy's `embed` does it.

pecanpy_end_to_end.py EDGES.tsv OUT.npy LABELS.txt P Q DIMENSIONS NUM_WALKS WALK_LENGTH WINDOW
-> {"compile_s", …}: of the wall time, what compiling the kernels took, on a few short walks
"""

import sys
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec
from pecanpy import pecanpy
from serving import Clock, serve

edges, out, labels = sys.argv[1:4]
p, q = map(float, sys.argv[4:6])
dimensions, num_walks, walk_length, window = map(int, sys.argv[6:10])


class Compiled(pecanpy.SparseOTF):
    """Keeps the functions that its kernel is compiled for, which are otherwise new in each call."""

    def __init__(self, **options: object):
        super().__init__(**options)
        self._kept: dict[str, object] = {}

    def get_has_nbrs(self) -> object:
        return self._kept.setdefault("has_nbrs", None) or self._keep("has_nbrs", super().get_has_nbrs())

    def get_move_forward(self) -> object:
        return self._kept.setdefault("move_forward", None) or self._keep("move_forward", super().get_move_forward())

    def _keep(self, name: str, value: object) -> object:
        self._kept[name] = value
        return value


def run() -> dict:
    graph = Compiled(p=p, q=q, workers=2, verbose=False, random_state=1)
    with Clock() as reading:
        graph.read_edg(edges, weighted=False, directed=False)
    with Clock() as compiling:
        graph.simulate_walks(1, 1)
    with Clock() as walking:
        walks = graph.simulate_walks(num_walks, walk_length)
    with Clock() as training:
        model = Word2Vec(walks, vector_size=dimensions, window=window, sg=1, min_count=0, workers=2, epochs=1, seed=1)
    np.save(out, model.wv[graph.nodes])
    Path(labels).write_text("\n".join(graph.nodes))
    return {
        "compile_s": compiling.wall_s, "compile_cpu_s": compiling.cpu_s, "read_s": reading.wall_s,
        "walk_s": walking.wall_s, "train_s": training.wall_s, "tokens": sum(map(len, walks)),
    }  # fmt: skip


serve(lambda request: {}, run)
