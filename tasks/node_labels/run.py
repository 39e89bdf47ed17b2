"""The work of stage `node_labels`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.heterograph import NODE_SET
from superworkflow.tasks.heterograph.feature_columns import NodeColumn
from superworkflow.tasks.heterograph.homogeneous import write_labels
from superworkflow.tasks.heterograph.label_leaks import label_leaks
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, warning_stats
from superworkflow.tasks.lib.gnn.column_scaling import ROW
from superworkflow.tasks.lib.graph.dtypes import FEATURES
from superworkflow.tasks.lib.graph.heterograph import SCALING_FILE, HeteroGraph, NodeSet
from superworkflow.tasks.lib.graph.heterograph_writer import write_graph_file
from superworkflow.tasks.node_labels import NodeLabelsParams


def run(job: StageRun[NodeLabelsParams]) -> Output:
    """Write labels and splits; see `tasks.node_labels`.

    Raises:
        UserError: the file cannot be read, or is about other nodes; with its line.
    """
    graph = HeteroGraph.open(job.inputs["graph"])
    names = graph.ids(NODE_SET).combine_chunks()

    def leaks_of(classes: NDArray[np.int64]) -> list[InputWarning]:
        scaling = graph.dataset.json(SCALING_FILE)[NODE_SET]
        columns = [NodeColumn(**each) for each in scaling["columns"]]
        values = graph.node_feature(NODE_SET, FEATURES)
        return label_leaks(values, scaling["kind"] == ROW, columns, classes, "features")

    has_features = SCALING_FILE in graph.dataset
    described, labelled, warnings = write_labels(job, names, leaks_of if has_features else None, 0)
    write_graph_file(job.output, [NodeSet(NODE_SET, len(names), tuple(described))], [])
    return Output(
        rows=labelled["labelled"],
        stats={**labelled, "bytes": job.output.bytes_written, **warning_stats(warnings)},
    )
