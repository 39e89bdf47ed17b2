"""Stage `evaluate`: what embeddings are worth, by node classification and link prediction.

Node classification follows DeepWalk (Perozzi et al., KDD 2014, section 5), link prediction follows node2vec (Grover
and Leskovec, KDD 2016, section 4.4). Each needs its input: labels of nodes for the one, held-out edges with
embeddings of the graph without them for the other. The product of both nodes' degrees there is the baseline of links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_LABELS = 40
"""Number of labels that estimates assume where the dataset's statistics do not contain it."""

_PROCESS = Process(start_s=0.55, memory_bytes=256 << 20)
"""Resident set of the interpreter with NumPy, Arrow and the compiled kernels, before anything is read."""
_KEPT = 3
"""Share of the smaller protocol's memory that the allocator keeps while the other runs."""

LinkOperator = Literal["average", "hadamard", "weighted-l1", "weighted-l2", "cosine", "dot"]
Ratio = Annotated[float, Field(gt=0, lt=1)]


class EvaluateParams(StageParams):
    """Parameters of the evaluation of embeddings."""

    train_ratios: tuple[Ratio, ...] = Field(
        default=(0.1, 0.5, 0.9),
        min_length=1,
        description="Shares of the labelled nodes to train the classifier on, each above 0 and below 1.",
    )
    shuffles: int = Field(default=10, ge=1, description="Random splits per train ratio; 1 or more.")
    C: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        default="auto",
        description="Inverse strength of the classifier's L2 penalty, above 0; 1 in the literature. auto: of nodes "
        "from 1 to what is 1 for entries of variance 1, the best on halves of the training nodes; of links 1.",
    )
    link_pairs: int = Field(
        default=100_000,
        ge=1,
        description="Most positive and most negative pairs to train on, and to test on; larger holdouts are sampled.",
    )
    link_operators: tuple[LinkOperator, ...] = Field(
        default=("average", "hadamard", "weighted-l1", "weighted-l2", "cosine"),
        min_length=1,
        description="How the two vectors of a pair are scored: by operators of node2vec's table 1 with a classifier "
        "(average, hadamard, weighted-l1, weighted-l2), or without one by cosine or dot product. dot is not among the "
        "defaults: it also ranks by vector length, and scores below chance on ordinary graphs.",
    )
    projection_sample: int = Field(
        default=2000, ge=0, description="Nodes in the two-dimensional picture, sampled if there are more; 0 for none."
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="Seed of the splits, samples and projection.")

    @field_validator("link_operators")
    @classmethod
    def _each_once(cls, operators: tuple[LinkOperator, ...]) -> tuple[LinkOperator, ...]:
        if len(set(operators)) < len(operators):
            raise ValueError("the same operator twice")
        return operators

    @field_validator("train_ratios")
    @classmethod
    def _distinct(cls, ratios: tuple[float, ...]) -> tuple[float, ...]:
        if len({f"{ratio:g}" for ratio in ratios}) < len(ratios):
            raise ValueError("the same train ratio twice")
        return ratios


def fit_bytes(rows: int, dimensions: int, labels: int) -> int:
    """Memory of one fit: features as given and in float64 and float32, each by row and by column; of each label signs,
    logits, their sigmoids, and the temporaries of a step."""
    return rows * ((dimensions + 1) * 28 + min(labels, 64) * 100)


def fits_at_once(rows: int, dimensions: int, labels: int, resources: Resources) -> int:
    """Fits side by side: as many as there are threads and as half of the memory holds, at least one."""
    return max(1, min(resources.threads, resources.memory // 2 // max(1, fit_bytes(rows, dimensions, labels))))


def estimate(params: EvaluateParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Memory of the larger protocol, of as many fits as run side by side; sizes from graph, embeddings and labels."""
    vertices = int(inputs.get("graph", {}).get("vertices") or 0)
    dimensions = int(inputs.get("embeddings", {}).get("dimensions") or 128)
    memory, fits_s, rows = vertices * 40, 0.0, 0
    vector = 4 * dimensions
    batch = min(vertices, 1 << 17) * vector
    protocols, mapped = [0, 0], 0
    if "labels" in inputs:
        rows = int(inputs["labels"].get("labelled_nodes") or vertices)
        kinds = int(inputs["labels"].get("labels") or _LABELS)
        memory += rows * kinds
        trained = int(rows * max(params.train_ratios))
        fits = fits_at_once(trained, dimensions, kinds, resources)
        protocols.append(rows * vector + max(batch, fits * fit_bytes(trained, dimensions, kinds)))
        # 19 ns per labelled node, label and feature over all steps of the solver, of which more nodes take more.
        step_s = 1.9e-8 * (rows / 10_000) ** 0.45
        fits_s += params.shuffles * sum(params.train_ratios) * rows * dimensions * kinds * step_s
        if params.C == "auto":  # six fits on at most 256 nodes
            fits_s += params.shuffles * len(params.train_ratios) * min(trained, 512) * dimensions * kinds * 6.5e-8
    if "seen" in inputs:
        memory += 8 * int(inputs["seen"].get("vertices") or 0)
    if "holdout" in inputs:
        pairs = min(params.link_pairs, int(inputs["holdout"].get("positives") or params.link_pairs))
        fits = min(fits_at_once(2 * pairs, dimensions, 1, resources), 4)
        ends = min(vertices, 8 * pairs)
        protocols.append(ends * vector + batch + fits * fit_bytes(2 * pairs, dimensions, 1))
        mapped = 32 * int(inputs["holdout"].get("positives") or 0) + 32 * int(inputs["holdout"].get("train_pairs") or 0)
        fits_s += 4 * 2 * pairs * dimensions * 1e-7 * (pairs / 50_000) ** 0.32
    smaller, larger = sorted(protocols)[-2:]
    memory += larger + smaller // _KEPT + mapped
    picture_s = 0.0
    if params.projection_sample:
        picture_s = 0.1 + 1.9e-3 * min(vertices or params.projection_sample, params.projection_sample)
    work_s = fits_s + picture_s
    return _PROCESS.estimate(
        memory_bytes=memory,
        cpu_s=work_s,
        output_bytes=100 << 10,
        stats={"labelled_nodes": rows},
        parallel=0.8 * fits_s / max(work_s, 1e-9),  # t-SNE is drawn by one thread
        mapped_bytes=mapped,
    )


STAGE = Stage(
    name="evaluate",
    version="5",
    params=EvaluateParams,
    inputs={
        "graph": Input("index dataset: the graph that the embeddings are of"),
        "embeddings": Input("embed dataset: the embeddings to evaluate"),
        "labels": Input("label dataset: labels of nodes", optional=True),
        "holdout": Input("holdout dataset: held-out edges and pairs without an edge", optional=True),
        "holdout_embeddings": Input("embed dataset of the graph without the held-out edges", optional=True),
        "seen": Input("holdout dataset of another run: edges of its graph are not asked for", optional=True),
    },
    run="superworkflow.tasks.evaluate.run:run",
    estimate=estimate,
    help="Node classification and link prediction with the embeddings.",
    late=("sklearn.manifold",),
    metrics=("micro_f1", "micro_f1_std", "macro_f1", "macro_f1_std", "link_auc", "degree_product_link_auc"),
)
