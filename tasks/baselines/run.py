"""The work of stage `baselines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.baselines import METHODS, MOST_JUDGED
from superworkflow.tasks.baselines.feature_scores import feature_scores
from superworkflow.tasks.baselines.label_propagation import propagated_scores
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes, labelled_nodes, spread_out
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.f1 import class_scores, f1_scores, top_k

load_kernels_fast()
JUDGED = ("validation", "test")
Scores = NDArray[np.floating]


def run(job: StageRun[SplitParams]) -> Output:
    """Judge simpler methods; see `tasks.baselines`.

    Raises:
        UserError: labels or features cannot be used.
    """
    graph = HeteroGraph.open(job.inputs["graph"], job.inputs.get("labels"))
    labelled = labelled_nodes(graph, job.params)
    judged = {split: spread_out(labelled.nodes(split), job.params.seed, MOST_JUDGED) for split in JUDGED}
    judged = {split: nodes for split, nodes in judged.items() if len(nodes)}
    for split, nodes in judged.items():
        if len(nodes) < len(labelled.nodes(split)):
            job.progress.log(f"{len(nodes):,} of {len(labelled.nodes(split)):,} {split} nodes are judged")
    whole = np.concatenate([*judged.values(), np.empty(0, np.int64)])
    metrics: dict[str, float] = {}
    methods: dict[str, Callable[[], tuple[Scores | None, str]]] = {
        "majority": lambda: (np.tile(labelled.counts(), (len(whole), 1)), ""),
        "features": lambda: feature_scores(graph, labelled, whole, job.params.seed),
        "label_propagation": lambda: propagated_scores(graph, labelled, whole),
    }
    with threadpool_limits(limits=1):  # sums in BLAS depend on the number of threads
        for done, method in enumerate(METHODS if len(whole) else ()):
            job.progress.update(done, len(METHODS), "methods")
            scores, note = methods[method]()
            name = method.replace("_", " ")
            if note:
                job.progress.log(f"{name}: {note}")
            if scores is not None:
                metrics |= dict(_figures(method, scores, labelled, judged))
                shown = {split: metrics[f"{method}_{labelled.figure}@{split}"] for split in judged}
                job.progress.log(f"{name}: {labelled.figure} {', '.join(f'{v:.4f} ({s})' for s, v in shown.items())}")
    job.output.json("metrics.json", metrics)
    return Output(rows=len(whole), metrics=metrics)


def _figures(
    method: str, scores: Scores, labelled: LabelledNodes, judged: dict[str, NDArray[np.int64]]
) -> Iterator[tuple[str, float]]:
    first = 0
    for split, nodes in judged.items():
        part = scores[first : first + len(nodes)]
        first += len(nodes)
        if labelled.classes is not None:
            accuracy, macro = class_scores(labelled.classes[nodes], part.argmax(axis=1))
            micro = accuracy
        else:
            truth = labelled.marks(nodes)
            predicted = top_k(part.astype(np.float64), truth.sum(axis=1))
            micro, macro = f1_scores(truth, predicted)
            accuracy = float((truth == predicted).all(axis=1).mean())
        for figure, value in (("accuracy", accuracy), ("micro_f1", micro), ("macro_f1", macro)):
            yield f"{method}_{figure}@{split}", value
