"""Stage `feature_matrix`: the columns of a schema's node tables that a network reads, as one scaled matrix a node set.

Read are numbers and truth values of a fixed shape, single ones too, and single texts by the rules for the features of
an edge list (`heterograph.feature_columns`). A missing value is the mean of its column, with a warning. Never read are
the label, the feature `split`, the masks `train_mask`, `val_mask` and `test_mask`, and, unless `heterograph.take` names
them, single values that seem to be ids or times (`heterograph.column_doubts`), with a warning. Where a network is
given, its columns are read, and its scaling and categories are applied; else features are scaled as those of an edge
list are (`heterograph.scaling`).

The graph is that of stage heterograph. Its other features of nodes stay as they are, for labels and splits; the matrix
is the feature `features`, float or half [nodes, values], and `columns.json` and `scaling.json` have, by node set, the
columns of the matrix and their scaling. It is the same from every engine that made the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, Stats
from superworkflow.tasks.heterograph import FeatureParams
from superworkflow.tasks.heterograph.bins import bins_of
from superworkflow.tasks.lib.gnn.estimates import feature_values

_SINGLES = 16
"""Numbers of a set that are taken for columns of one each; vectors have more."""
_FILL_BYTES = 160 << 20
_PROCESS = Process(start_s=0.6, memory_bytes=140 << 20)


class FeatureMatrixParams(FeatureParams):
    """Parameters that say what is a feature."""

    label: str = Field(default="", description="What is learned, as SET.FEATURE, and so no feature; empty: nothing.")


def estimate(params: FeatureMatrixParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each value is read, scaled and written once; the rest of the graph is copied.

    Sets of few numbers are taken for single ones, which may become several; see `bins`.
    """
    graph = dict(inputs.get("graph", {}))
    before = feature_values(graph)
    for name in [each for each in graph if each.startswith("values.nodes.")]:
        width, nodes = int(graph[name] or 0), int(graph.get(name.removeprefix("values.")) or 0)
        graph[name] = width * (bins_of(nodes, params.scaling, width) or 1) if width <= _SINGLES else width
    values = feature_values(graph)
    size = int(graph.get("bytes") or 0) + 4 * (values - before)
    return _PROCESS.estimate(
        memory_bytes=min(8 * values, _FILL_BYTES),
        cpu_s=1.2e-8 * values + 1e-9 * size,
        output_bytes=size,
        stats={**graph, "bytes": size},
        mapped_bytes=4 * values,
    )


STAGE = Stage(
    name="feature_matrix",
    version="5",
    params=FeatureMatrixParams,
    params_of=("heterograph", "train"),
    inputs={
        "graph": Input("heterograph dataset: the graph of a schema"),
        "network": Input(
            "train dataset: the network for which the graph is made; its columns are read, and its scaling is applied",
            optional=True,
        ),
    },
    run="superworkflow.tasks.feature_matrix.run:run",
    estimate=estimate,
    help="columns of a schema's nodes that are features, as one scaled matrix",
)
