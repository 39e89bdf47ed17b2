"""Our lasso, from the graph and its colours to the coefficients.

python -m tests.benchmarks.own.lasso SAMPLES FEATURES STRENGTH
{} -> {"wall_s", "cpu_s", "answer": coefficients that are not 0}
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file

from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.feature_graph import STAGE as GRAPH
from superworkflow.tasks.lasso.program import PROGRAM, PreparedParams
from superworkflow.tasks.lib.vertex.run import ChromaticEngine
from superworkflow.tasks.lib.vertex.stage import coloured_graph
from tests.benchmarks.peers.serving import Clock, serve
from tests.benchmarks.peers.word_samples import word_samples
from tests.tasks.index_helpers import run_stage

given: dict[str, Any] = {}


def prepare() -> dict[str, Any]:
    matrix, labels = word_samples(int(sys.argv[1]), int(sys.argv[2]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump_svmlight_file(matrix, labels, str(folder / "samples.svm"))
        graph = run_stage(GRAPH, {}, {"samples": str(folder / "samples.svm")}, folder / "graph", 1)
        colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colours", 1)
        centre = float(labels.mean())
        alpha = float(np.abs(matrix.T @ (labels - centre)).max()) / len(labels) * float(sys.argv[3])
        given["features"] = slice(len(labels), len(labels) + int(graph.stats["features"] or 0))
        given["graph"] = coloured_graph(graph, colours, PROGRAM)
        given["params"] = PreparedParams(
            alpha=alpha, samples=len(labels), intercept=True, centre=centre, penalty=alpha * len(labels),
            deviation=float(np.sum((labels - centre) ** 2)), tolerance=1e-6,
        )  # fmt: skip
        ChromaticEngine(PROGRAM, given["params"], given["graph"]).run()  # compiles
    return {"samples": len(labels)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with Clock() as clock:
        outcome = ChromaticEngine(PROGRAM, given["params"], given["graph"]).run()
    return {**clock.seconds(), "answer": int(np.count_nonzero(outcome.fields["coefficient"][given["features"]]))}


serve(answer, prepare)
