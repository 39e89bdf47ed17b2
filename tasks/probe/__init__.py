"""Stage `probe`: what sampled subgraphs are worth, by a linear classifier of their seeds.

Features of nodes are carried as means along the sampled edges to the seed, as the simplified graph convolution does (Wu
et al., ICML 2019): a block of features for each path of ops in the spec, the seed's own first. A logistic regression
learns the label from them; nothing else is learned, so that a sweep over sizes takes seconds. Features are the columns
that `feature_matrix` chooses; single numbers are brought to mean 0 and deviation 1, means of 16 values and more to
length 1, those without negative values after taking their square roots. A seed has no label by the rule of
`tasks.lib.graph.missing_labels`.

Baselines are the most frequent label (`majority_accuracy@test`, …) and the same classifier of the seeds' own features
(`features_…`); a warning says if one is better.

Files: `metrics.json`, and `predictions.parquet` with columns `split`, `sample_id`, `label`, `predicted`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats
from superworkflow.tasks.lib.subgraphs.shard_layout import GROUP_ENTRIES, SPLITS

_CLASSES, _DIMENSIONS = 60, 512
"""Assumed by estimates: inputs' statistics lack the labels, and those of older datasets the features."""
_PROCESS = Process(start_s=0.6, memory_bytes=250 << 20)
_ENTRY_BYTES = 80
"""Bytes of a node or an edge of the subgraphs that are read together."""


class ProbeParams(StageParams):
    """Parameters of the evaluation of subgraphs."""

    label: str = Field(
        default="",
        description="The seeds' label as SET.FEATURE: a feature of whole numbers or text of the node set that is "
        "sampled from. It is never among the features.",
    )
    take: str = Field(
        default="",
        description="Columns that are features although they look like ids or times, as SET.FEATURE with commas "
        "between them.",
    )
    leave_out: str = Field(
        default="", description="Columns that are no features, as SET.FEATURE with commas between them."
    )
    C: float = Field(
        default=10.0, ge=0.01, le=1000, description="Inverse strength of the classifier's L2 penalty; 0.01 to 1000.",
        json_schema_extra={"search": {"type": "float", "low": 0.01, "high": 1000, "log": True}},
    )  # fmt: skip
    train_subgraphs: int = Field(
        default=20_000, ge=2, description="Most subgraphs to train on; of more, some at even distances are taken."
    )
    test_subgraphs: int = Field(
        default=20_000, ge=1, description="Most subgraphs to validate on, and most to test on; as above."
    )


def estimate(params: ProbeParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Means of all judged subgraphs as they are read and as they are scaled, and what the classifier has of them."""
    sampled, graph = inputs.get("subgraphs", {}), inputs.get("graph", {})
    total = int(sampled.get("subgraphs") or 10_000)
    edges = int(sampled.get("edges") or 100 * total)
    limits = dict.fromkeys(SPLITS, params.test_subgraphs) | {"train": params.train_subgraphs}
    counts = {split: min(most, int(sampled.get(f"subgraphs.{split}") or total)) for split, most in limits.items()}
    train, judged = counts["train"], min(sum(counts.values()), total)
    wide = int(sampled.get("path_values") or _DIMENSIONS)
    dimensions = min(wide, train)
    fit = train * ((dimensions + 1) * 28 + min(_CLASSES, 64) * 100) + 32 * dimensions**2
    if dimensions < wide:  # rows in double precision, for their place in the space of those to train on
        fit = max(fit, 8 * wide * max(2 * train, judged - train))
    read = _ENTRY_BYTES * min(GROUP_ENTRIES, edges + int(sampled.get("nodes") or edges))
    features = sum(
        4 * int(graph.get(name) or 0) * int(graph.get(name.removeprefix("values.")) or 0)
        for name in graph
        if name.startswith("values.nodes.")
    )
    fits_s = 1.9e-8 * max(train / 10_000, 0.1) ** 0.45 * train * dimensions * _CLASSES
    fits_s += 2e-7 * dimensions**2 * _CLASSES + (1e-9 * judged * dimensions * wide if dimensions < wide else 0.0)
    read_s = 2e-8 * edges + 1e-7 * edges * judged / max(total, 1)
    return _PROCESS.estimate(
        memory_bytes=features + read + judged * (3 * wide + dimensions) * 2 + fit,
        cpu_s=fits_s + read_s,
        output_bytes=40 * judged,
        parallel=0.3,
        mapped_bytes=features,
    )


STAGE = Stage(
    name="probe",
    version="4",
    params=ProbeParams,
    inputs={
        "graph": Input("heterograph dataset: the graph that was sampled"),
        "subgraphs": Input("sample dataset: the subgraphs to judge"),
    },
    run="superworkflow.tasks.probe.run:run",
    estimate=estimate,
    help="Accuracy of a linear classifier on means along sampled edges.",
    metrics=tuple(method + figure for method in ("", "majority_", "features_") for figure in ("accuracy", "macro_f1")),
)
