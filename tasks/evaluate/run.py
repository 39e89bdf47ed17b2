"""The work of stage `evaluate`."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.evaluate import EvaluateParams, fits_at_once
from superworkflow.tasks.evaluate.classify import Score, check_split, classify
from superworkflow.tasks.evaluate.links import OPERATORS, link_auc, sample_pairs, score_auc, unseen
from superworkflow.tasks.label.table import Labels, open_labels
from superworkflow.tasks.lib.embeddings import Gathered, gather
from superworkflow.tasks.lib.graph.integrity import check_pairs
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast
from superworkflow.tasks.lib.metrics.figures import area_under_curve
from superworkflow.tasks.lib.projection import project

load_kernels_fast()
_SAMPLE, _PAIRS = 1_000_003, 1_000_033
"""Set the random streams of the samples apart from those of the shuffles."""
_PAIR_FILES = ("train_positives", "train_negatives", "positives", "negatives")
_HEADLINE = "link_auc@hadamard"
_TEST = _PAIR_FILES.index("positives")


def run(job: StageRun[EvaluateParams]) -> Output:
    """Judge embeddings; see `tasks.evaluate`.

    Writes `metrics.json`, `scores.parquet` (one row per train ratio and shuffle) and `projection.parquet`.

    With `seen`, link prediction asks only for held-out edges that embeddings of that graph have not been trained on.

    Raises:
        UserError: nothing to judge by, or inputs of different graphs.
    """
    if "labels" not in job.inputs and "holdout" not in job.inputs:
        raise UserError(
            "nothing to judge the embeddings by", where="evaluate",
            remedy="Give labels of nodes (--labels FILE with rows `node,label`), or a holdout for link prediction",
        )  # fmt: skip
    if ("holdout" in job.inputs) != ("holdout_embeddings" in job.inputs):
        raise UserError(
            "link prediction needs both the holdout and embeddings that were trained without its edges",
            where="evaluate", remedy="Give both inputs, holdout and holdout_embeddings, or neither",
        )  # fmt: skip
    params = job.params
    nodes = job.inputs["graph"].parquet("vertices.parquet").read(columns=["node"])["node"]
    metrics: dict[str, float] = {}
    facts: dict[str, Stat] = {}
    scores: list[Score] = []
    labels = None
    if "labels" in job.inputs:
        labels = open_labels(job.inputs["labels"], job.inputs["graph"], len(nodes))
    labelled, kinds = (0, 0) if labels is None else labels.matrix.shape
    dimensions = int(job.inputs["embeddings"].stats.get("dimensions") or 128)
    fits = fits_at_once(int(labelled * max(params.train_ratios)), dimensions, kinds, job.resources)
    # Fits side by side, each in one thread: the same sums for any number of threads.
    with threadpool_limits(1), ThreadPoolExecutor(fits) as pool:
        projected = pool.submit(_project, job, nodes, labels)
        if labels is not None:
            scores, missing = _classification(job, pool, nodes, labels)
            metrics |= summary(scores)
            facts |= {
                "labelled_nodes": len(labels.vertices), "labels": len(labels.names),
                "labelled_nodes_without_vector": missing,
            }  # fmt: skip
        if "holdout" in job.inputs:
            found, counted = _link_prediction(job, nodes)
            metrics |= found
            facts |= counted
        facts["projected_nodes"] = projected.result()
    job.output.json("metrics.json", metrics)
    columns = ("train_ratio", "shuffle", "micro_f1", "macro_f1")
    table = pa.Table.from_pylist(
        [asdict(score) for score in scores],
        schema=pa.schema([(name, pa.int32() if name == "shuffle" else pa.float64()) for name in columns]),
    )
    job.output.table("scores.parquet", table)
    judged = facts.get("labelled_nodes") or facts.get("link_test_pairs") or 0
    return Output(rows=int(judged), stats=facts, metrics=metrics)


def summary(scores: list[Score]) -> dict[str, float]:
    """Mean and standard deviation (of the population of shuffles) per train ratio: `micro_f1@0.5`, …"""
    result: dict[str, float] = {}
    for ratio in dict.fromkeys(score.train_ratio for score in scores):
        for name in ("micro_f1", "macro_f1"):
            values = [getattr(score, name) for score in scores if score.train_ratio == ratio]
            result[f"{name}@{ratio:g}"] = float(np.mean(values))
            result[f"{name}_std@{ratio:g}"] = float(np.std(values))
    return result


def _classification(
    job: StageRun[EvaluateParams], pool: ThreadPoolExecutor, nodes: pa.ChunkedArray, labels: Labels
) -> tuple[list[Score], int]:
    params = job.params
    for ratio in params.train_ratios:
        check_split(len(labels.vertices), ratio, "evaluate.train_ratios")
    found = _gather(job.inputs["embeddings"], nodes, labels.vertices)
    if found.missing:
        job.progress.log(f"{found.missing} of {len(labels.vertices)} labelled nodes have no vector and get zeros")
    # The largest first, so that no long fit is left for the end.
    work = [
        (ratio, shuffle) for ratio in sorted(params.train_ratios, reverse=True) for shuffle in range(params.shuffles)
    ]
    futures = [
        pool.submit(classify, found.vectors, labels.matrix, ratio, shuffle, seed=params.seed, C=params.C)
        for ratio, shuffle in work
    ]
    scores = []
    for done, future in enumerate(_completed(futures), 1):
        score = future.result()
        scores.append(score)
        job.progress.update(done, len(work), "splits", **{f"micro_f1@{score.train_ratio:g}": round(score.micro_f1, 4)})
    return sorted(scores, key=lambda s: (s.train_ratio, s.shuffle)), found.missing


def _link_prediction(job: StageRun[EvaluateParams], nodes: pa.ChunkedArray) -> tuple[dict[str, float], dict[str, Stat]]:
    params, holdout = job.params, job.inputs["holdout"]
    parts = [
        sample_pairs(holdout.array(f"{name}.npy"), params.link_pairs, [params.seed, _PAIRS, number])
        for number, name in enumerate(_PAIR_FILES)
    ]
    if "seen" in job.inputs:
        for number, name in enumerate(_PAIR_FILES):
            check_pairs(f"{holdout.uri}/{name}.npy", parts[number], len(nodes))
        before = len(parts[_TEST])
        parts[_TEST] = unseen(parts[_TEST], nodes, job.inputs["seen"])
        left_out = before - len(parts[_TEST])
        job.progress.log(f"{left_out} of {before} held-out edges are in the other run's graph; left out")
        if not len(parts[_TEST]):
            return {}, {"link_test_pairs": 0}
    if not all(len(part) for part in parts):
        raise UserError(
            "the holdout has no pairs", where=holdout.uri, value=[len(part) for part in parts],
            remedy="Hold out a larger share of the edges, or evaluate with labels alone",
        )  # fmt: skip
    for name, part in zip(_PAIR_FILES, parts, strict=True):
        check_pairs(f"{holdout.uri}/{name}.npy", part, len(nodes))
    ends, rows = np.unique(np.concatenate(parts), return_inverse=True)
    found = _gather(job.inputs["holdout_embeddings"], nodes, ends)
    if found.missing:
        job.progress.log(f"{found.missing} of {len(ends)} vertices of held-out edges have no vector and get zeros")
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    train_positives, train_negatives, positives, negatives = np.split(rows.reshape(-1, 2), cuts)
    train, test = (train_positives, train_negatives), (positives, negatives)
    metrics: dict[str, float] = {}
    strength = 1.0 if params.C == "auto" else params.C
    fits = fits_at_once(len(train_positives) + len(train_negatives), found.vectors.shape[1], 1, job.resources)
    with ThreadPoolExecutor(fits) as pool:
        names = {
            pool.submit(link_auc, found.vectors, train, test, name, strength)
            if name in OPERATORS
            else pool.submit(score_auc, found.vectors, test, name): name
            for name in params.link_operators
        }
        for done, future in enumerate(_completed(list(names)), 1):
            name = f"link_auc@{names[future]}"
            metrics[name] = future.result()
            job.progress.update(done, len(names), "operators", **{name: round(metrics[name], 4)})
    counted: dict[str, Stat] = {
        "link_train_pairs": len(train_positives) + len(train_negatives),
        "link_test_pairs": len(positives) + len(negatives), "link_vertices_without_vector": found.missing,
    }  # fmt: skip
    found_by = {name: metrics[name] for name in (f"link_auc@{kind}" for kind in params.link_operators)}
    if _HEADLINE in found_by and "seen" not in job.inputs:
        degrees = np.diff(holdout.array("indptr.npy")).astype(np.float64)
        if holdout.stats.get("directed"):
            degrees += np.bincount(holdout.array("indices.npy"), minlength=len(degrees))
        simple = (degrees[part[:, 0]] * degrees[part[:, 1]] for part in parts[_TEST:])
        found_by[f"degree_product_{_HEADLINE}"] = area_under_curve(*simple)
    return found_by, counted


def _project(job: StageRun[EvaluateParams], nodes: pa.ChunkedArray, labels: Labels | None) -> int:
    """Write `projection.parquet`: a sample of the labelled nodes, or of all, each with its most frequent label."""
    population = np.arange(len(nodes)) if labels is None else labels.vertices
    limit = min(job.params.projection_sample, len(population))
    chosen = np.sort(np.random.default_rng([job.params.seed, _SAMPLE]).choice(len(population), limit, replace=False))
    names: list[str | None] = [None] * limit
    if labels is not None:
        matrix = labels.matrix[chosen]
        frequent = np.where(matrix, labels.matrix.sum(axis=0), -1).argmax(axis=1)
        names = [labels.names[column] for column in frequent]
    found = _gather(job.inputs["embeddings"], nodes, population[chosen])
    present = np.flatnonzero(np.any(found.vectors != 0, axis=1))
    plane = project(found.vectors[present], job.params.seed) if len(present) else np.zeros((0, 2), np.float32)
    table = pa.table({
        "node": nodes.take(pa.array(population[chosen][present])),
        "x": pa.array(plane[:, 0]), "y": pa.array(plane[:, 1]),
        "label": pa.array([names[row] for row in present], pa.string()),
    })  # fmt: skip
    job.output.table("projection.parquet", table)
    return len(present)


def _gather(embeddings: Dataset, nodes: pa.ChunkedArray, vertices: NDArray[np.int64]) -> Gathered:
    return gather(embeddings, pc.cast(nodes.take(pa.array(vertices)).combine_chunks(), pa.large_string()))


def _completed(futures: list[Future[Any]]) -> Any:
    """As they end; when one fails, those not yet begun are dropped."""
    try:
        yield from as_completed(futures)
    finally:
        for future in futures:
            future.cancel()
