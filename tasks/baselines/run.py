"""The work of stage `baselines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.baselines import MOST_JUDGED
from superworkflow.tasks.baselines.edge_scores import judge_edges
from superworkflow.tasks.baselines.feature_scores import feature_scores, ridge_numbers
from superworkflow.tasks.baselines.label_propagation import neighbor_means, propagated_scores
from superworkflow.tasks.baselines.labelled_nodes import LabelledNodes, labelled_nodes, spread_out
from superworkflow.tasks.baselines.random_forest import forest_classes, forest_numbers
from superworkflow.tasks.lib.gnn.objective.edge_labels import has_edge_labels
from superworkflow.tasks.lib.gnn.objective.node_targets import node_targets_of
from superworkflow.tasks.lib.gnn.objective.number_targets import NumberTargets
from superworkflow.tasks.lib.gnn.objective.split_params import SplitParams
from superworkflow.tasks.lib.gnn.sampler.subgraph_sampler import SampledSubgraphs
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.figures import class_scores, f1_scores, number_errors, top_k

load_kernels_fast()
JUDGED = ("validation", "test")
Scores = NDArray[np.floating]
Methods = Mapping[str, Callable[[], tuple[Scores | None, str]]]
"""Predictions of the judged nodes by method, and a note for the log; None where it cannot be used."""
Figures = Callable[[NDArray[np.int64], Scores], Mapping[str, float]]
"""Figures of nodes and their predictions, by name."""


def run(job: StageRun[SplitParams]) -> Output:
    """Judge simpler methods; see `tasks.baselines`.

    Raises:
        UserError: labels or features cannot be used.
    """
    graph = HeteroGraph.open(job.inputs["graph"], job.inputs.get("labels"))
    if has_edge_labels(graph.dataset):
        return judge_edges(job, graph)
    if "subgraphs" in job.inputs:
        given = SampledSubgraphs(job.inputs["subgraphs"], graph)
        graph.splits[given.node_set] = given.splits
    targets = node_targets_of(graph, job.params)
    judged = {split: spread_out(targets.nodes(split), job.params.seed, MOST_JUDGED) for split in JUDGED}
    judged = {split: nodes for split, nodes in judged.items() if len(nodes)}
    for split, nodes in judged.items():
        if len(nodes) < len(targets.nodes(split)):
            job.progress.log(f"{len(nodes):,} of {len(targets.nodes(split)):,} {split} nodes are judged")
    whole = np.concatenate([*judged.values(), np.empty(0, np.int64)])
    metrics: dict[str, float] = {}
    if isinstance(targets, NumberTargets):
        methods, figures, shown_figure = (
            _of_numbers(graph, targets, whole, job.params.seed),
            _errors_of(targets),
            "rmse",
        )
    else:
        labelled = labelled_nodes(targets)
        methods, figures = _of_classes(graph, labelled, whole, job.params.seed), _figures_of(labelled)
        shown_figure = labelled.figure
    with threadpool_limits(limits=1):  # sums in BLAS depend on the number of threads
        for done, method in enumerate(methods if len(whole) else ()):
            job.progress.update(done, len(methods), "methods")
            scores, note = methods[method]()
            name = method.replace("_", " ")
            if note:
                job.progress.log(f"{name}: {note}")
            if scores is not None:
                first = 0
                for split, nodes in judged.items():
                    found = figures(nodes, scores[first : first + len(nodes)])
                    first += len(nodes)
                    metrics |= {f"{method}_{figure}@{split}": value for figure, value in found.items()}
                shown = {split: metrics[f"{method}_{shown_figure}@{split}"] for split in judged}
                job.progress.log(f"{name}: {shown_figure} {', '.join(f'{v:.4f} ({s})' for s, v in shown.items())}")
    job.output.json("metrics.json", metrics)
    return Output(rows=len(whole), metrics=metrics)


def _of_classes(graph: HeteroGraph, labelled: LabelledNodes, judged: NDArray[np.int64], seed: int) -> Methods:
    """Methods for classes, with scores [judged nodes, classes]."""
    return {
        "majority": lambda: (np.tile(labelled.counts(), (len(judged), 1)), ""),
        "features": lambda: feature_scores(graph, labelled, judged, seed),
        "forest": lambda: forest_classes(graph, labelled, judged, seed),
        "label_propagation": lambda: propagated_scores(graph, labelled, judged),
    }


def _of_numbers(graph: HeteroGraph, targets: NumberTargets, judged: NDArray[np.int64], seed: int) -> Methods:
    """Methods for numbers, with predictions [judged nodes]."""
    return {
        "mean": lambda: (np.full(len(judged), targets.mean), ""),
        "features": lambda: ridge_numbers(graph, targets, judged, seed),
        "forest": lambda: forest_numbers(graph, targets, judged, seed),
        "neighbor_mean": lambda: neighbor_means(graph, targets, judged),
    }


def _errors_of(targets: NumberTargets) -> Figures:
    return lambda nodes, found: number_errors(targets.values[nodes], found)


def _figures_of(labelled: LabelledNodes) -> Figures:
    def figures(nodes: NDArray[np.int64], scores: Scores) -> dict[str, float]:
        if labelled.classes is not None:
            accuracy, macro = class_scores(labelled.classes[nodes], scores.argmax(axis=1))
            return {"accuracy": accuracy, "micro_f1": accuracy, "macro_f1": macro}
        truth = labelled.marks(nodes)
        predicted = top_k(scores.astype(np.float64), truth.sum(axis=1))
        micro, macro = f1_scores(truth, predicted)
        return {"accuracy": float((truth == predicted).all(axis=1).mean()), "micro_f1": micro, "macro_f1": macro}

    return figures
