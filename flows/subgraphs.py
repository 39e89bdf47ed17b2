"""Subgraphs: samples of a large typed graph around seed nodes, as records for training graph neural networks."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Drift, Picture
from superworkflow.infra.contract.panel import Panel
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import heterograph, probe, records, sample, set_drift
from superworkflow.tasks.lib import panels
from superworkflow.tasks.lib.formats import IN_MEMORY


def diagram(
    flow: Diagram, graph: Source | None, edges: Source | None, features: Source | None, labels: Source | None,
    spec: Source, seeds: Source | None,
) -> None:  # fmt: skip
    """Heterograph, sample, records; with a label also probe, which scores the sampled subgraphs.

    Raises:
        UserError: there is no graph, or there are two; or nodes have no such label; or the spec does not fit.
    """
    if (graph is None) == (edges is None):
        raise UserError("subgraphs needs exactly one graph", where="graph" if graph is None else "edges",
                        remedy="Give either --graph FILE or --edges FILE")  # fmt: skip
    own = {} if features is None else {"scaling": "none"}  # records have the numbers of the table
    typed = flow.stage(heterograph.STAGE, defaults=own, graph=graph, edges=edges, features=features, labels=labels)
    if label := flow.parameter("probe.label"):
        imported("superworkflow.tasks.probe.labels:check_named")(label, graph, labels)
    subgraphs = flow.stage(sample.STAGE, graph=typed, spec=spec, seeds=seeds)
    flow.stage(records.STAGE, graph=typed, subgraphs=subgraphs)
    if label:
        flow.stage(probe.STAGE, graph=typed, subgraphs=subgraphs)
    imported("superworkflow.tasks.sample.spec:check_spec")(spec, graph, flow.parameter("sample.sizes"))


def drift(flow: Diagram, nodes: Mapping[str, Node], before: Mapping[str, Dataset]) -> Node | None:
    """Drift of the sizes of sets since the deployment's last run."""
    if "heterograph" not in before:
        return None
    return flow.stage(set_drift.STAGE, graph=nodes["heterograph"], earlier_graph=before["heterograph"])


STAGES = (heterograph.STAGE, sample.STAGE, records.STAGE, probe.STAGE, set_drift.STAGE)
ON_SPARK = {"engine": "spark"}

SUPERWORKFLOW = Superworkflow(
    name="subgraphs",
    help="sampled subgraphs of a large typed graph, as records to train on",
    stages=STAGES,
    sources={
        "graph": "a schema of tables of nodes and edges (schema.pbtxt), or its folder",
        "edges": "an edge list or triples instead of a schema: CSV, TSV, whitespace-separated or Parquet, optionally "
        "gzipped; or a folder of part files; the spec names sets `node` and `edge`, or those of the relations",
        "features": "with an edge list, features of its nodes: CSV or TSV with a header, or Parquet, a row for each",
        "labels": "with an edge list, labels of its nodes: rows `node,label` or `node,label,split`",
        "spec": "which edges to sample from the seeds on (SamplingSpec in text format)",
        "seeds": "table of seeds: `id`, optionally `split` and `timestamp`, or a folder of part files; by default all "
        "nodes of the spec's set",
    },
    optional=frozenset({"graph", "edges", "features", "labels", "seeds"}),
    diagram=diagram,
    flags={"label": Flag("probe.label", "score the subgraphs by a classifier of this feature of the seeds",
                         "SET.FEATURE")},
    variants={
        "laptop": {"probe": {"resources": {"memory": "6Gi"}}},
        "spark": {stage.name: ON_SPARK for stage in STAGES if "spark" in stage.engines},
    },
    outputs={"records": ("records", "*-of-*"), "schema": ("records", "schema.pbtxt")},
    in_memory=IN_MEMORY,
    drift=Drift(("heterograph",), drift),
    outcomes=(
        Metric("probe", "accuracy@validation", headline=True, optional=True, baselines="probe"),
        Metric("probe", "accuracy@test", headline=True, optional=True, baselines="probe"),
        Metric("probe", "macro_f1@validation", optional=True, baselines="probe"),
        Metric("probe", "macro_f1@test", optional=True, baselines="probe"),
        Picture("sample", "superworkflow.tasks.sample.picture:draw", "spec"),
        Picture("sample", "superworkflow.tasks.sample.drawn:draw", "subgraph"),
        Panel("sample", "superworkflow.tasks.sample.panels:sizes", "sizes", title="Subgraphs", others=("heterograph",)),
        panels.TYPED_GRAPH,
    ),
)  # fmt: skip
