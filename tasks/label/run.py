"""The work of stage `label`."""

from __future__ import annotations

from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.label import LabelParams
from superworkflow.tasks.label.match import match
from superworkflow.tasks.label.table import write_labels
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.edge_list.label_file import NOTE, check_several, read_labels


def run(job: StageRun[LabelParams]) -> Output:
    """Match a file of labels with a graph; see `tasks.label`.

    Raises:
        UserError: the file cannot be read, or says nothing about the nodes of this graph.
    """
    source = job.sources["labels"]
    nodes = job.inputs["graph"].parquet("vertices.parquet").read(columns=["node"])["node"]
    rows, warnings = read_labels(source, job.scratch, nodes)
    if not job.params.several_labels:
        check_several(rows, "label.several_labels")
    labels, unknown = match(rows, source.uri, nodes, job.params.max_unknown)
    share = unknown / int(rows.times.sum())
    if rows.missing:
        job.progress.log(f"{rows.missing} {NOTE}")
    if unknown:
        job.progress.log(f"warning: {unknown} labels ({share:.1%}) are dropped: their nodes are not in the graph")
    log_warnings(job.progress, warnings)
    write_labels(job.output, labels)
    return Output(
        rows=len(labels.kinds),
        stats={
            "labelled_nodes": len(labels.vertices), "labels": len(labels.names), "unknown_labels": unknown,
            "bytes": job.output.bytes_written, **warning_stats(warnings),
        },
        drift={"labels_unknown_share": share},
    )  # fmt: skip
