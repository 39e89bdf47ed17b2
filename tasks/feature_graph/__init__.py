"""Stage `feature_graph`: samples and their features become a graph of two node sets.

The file is in the svmlight format (`label index:value …`), or a table (`tables`). Vertices are the samples, in the
file's order; then the features that occur, the most frequent first; then, with `intercept`, a constant feature that is
1 in every sample. An edge joins a sample and each of its features. Zeros are no edges. With `labels=numbers` the
constant feature is there several times, once for each `VALUES` values of a sample on average: the intercept is the sum
of their coefficients, and a sweep that updates them at even places takes far fewer steps than one that has the
intercept once.

Files: `indptr.npy` int64 [vertices + 1], `indices.npy` int32 [arcs], ascending in each row; `side.npy` int32
[vertices], 0 of samples, 1 of features, 2 of constant ones; `feature.npy` int64 [features], their indices in the
file, or among the features of `table.json`; `scale.npy` and `mean.npy` float64 [features], by what values are divided,
if they are, and what is subtracted before;
`value.npy` float64 and `value_indptr.npy` int64 [vertices + 1], values in the rows of the vertices that a program
updates, and empty rows of the others. With `labels=numbers`, features are updated, and `label.npy` float64 [vertices]
has those of samples; with `labels=classes`, samples are updated, `label.npy` is int32 [vertices], the number of the
class, and `classes.json` has the labels by number. The stats have `samples`, `features`, `problems` (binary ones of the
classes) and `updated_side`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

_PROCESS = Process(start_s=1.2, memory_bytes=190 << 20)
_VALUE_BYTES = 10
"""Of a feature and its value in the file."""
MOST_CLASSES = 1000
VALUES = 4
"""Values of a sample, on average, for each constant feature."""


class SamplesParams(StageParams):
    """Parameters of samples."""

    label: str = Field(
        default="", description="Column of a table that is predicted; by default label, target, class or y, else the "
        "last one.",
    )  # fmt: skip
    take: str = Field(
        default="", description="Columns that are features although they look like ids or times, with commas between "
        "them. Dates become days since 1970.",
    )  # fmt: skip
    leave_out: str = Field(default="", description="Columns that are no features, with commas between them.")
    labels: Literal["numbers", "classes"] = Field(
        default="numbers", description="numbers: a sample's label is a number that features predict. classes: it is "
        "the number of its class.",
    )  # fmt: skip
    intercept: bool = Field(default=True, description="Whether there is a constant feature, 1 in every sample.")
    scale: Literal["auto"] | bool = Field(
        default="auto", description="Whether a feature's values are divided, before they are learned from, by their "
        "deviation, with an intercept less their mean if at least half are not 0, else of classes by the largest "
        "absolute one; auto: those of a table, and if sizes of features differ more than 100-fold. Coefficients are "
        "published in the file's units.",
    )  # fmt: skip


class ClassesParams(SamplesParams):
    """Parameters of samples with classes."""

    labels: Literal["numbers", "classes"] = Field(default="classes", description="As of numbers.")


def estimate(params: SamplesParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Sizes by values that are not zero and by rows, else by the file's bytes."""
    file = inputs.get("samples", {})
    given = int(file.get("bytes") or 0)
    edges, samples = int(file.get("values") or given // _VALUE_BYTES), int(file.get("rows") or given // 300)
    features, table = int(file.get("features") or samples), int(file.get("table_bytes") or 0)
    constants = edges // max(VALUES * samples, 1) if params.labels == "numbers" else 1
    edges, vertices = edges + max(1, constants) * samples * params.intercept, samples + features
    return _PROCESS.estimate(
        memory_bytes=max(2 * table, 80 * edges + table // 2) + 40 * vertices,
        cpu_s=3.5e-7 * edges + 1.2e-8 * table + 3e-8 * int(file.get("text_bytes") or given),
        output_bytes=16 * edges + 36 * vertices,
        stats={"vertices": vertices, "edges": edges, "samples": samples, "features": features, "distance": 2},
    )  # fmt: skip


STAGE = Stage(
    name="feature_graph",
    version="5",
    params=SamplesParams,
    inputs={
        "samples": Input(
            "samples in the svmlight format or a table, optionally gzipped",
            file=True,
            stats="superworkflow.tasks.feature_graph.sizes:sample_stats",
        )
    },
    run="superworkflow.tasks.feature_graph.run:run",
    estimate=estimate,
    help="graph of samples and their features",
)
