"""Subgraphs: samples of a large typed graph around seed nodes, as records for training graph neural networks."""

from __future__ import annotations

from collections.abc import Mapping

from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Drift, Picture
from superworkflow.infra.contract.superworkflow import Flag, Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import heterograph, probe, records, sample, set_drift


def diagram(flow: Diagram, graph: Source, spec: Source, seeds: Source | None) -> None:
    """Heterograph, sample, records; with a label also probe, which scores the sampled subgraphs."""
    typed = flow.stage(heterograph.STAGE, graph=graph)
    subgraphs = flow.stage(sample.STAGE, graph=typed, spec=spec, seeds=seeds)
    flow.stage(records.STAGE, graph=typed, subgraphs=subgraphs)
    if flow.parameter("probe.label"):
        flow.stage(probe.STAGE, graph=typed, subgraphs=subgraphs)


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
        "spec": "which edges to sample from the seeds on (SamplingSpec in text format)",
        "seeds": "table of seeds: `id`, optionally `split` and `timestamp`, or a folder of part files; by default all "
        "nodes of the spec's set",
    },
    optional=frozenset({"seeds"}),
    diagram=diagram,
    flags={"label": Flag("probe.label", "score the subgraphs by a classifier of this feature of the seeds",
                         "SET.FEATURE")},
    variants={
        "laptop": {"probe": {"resources": {"memory": "6Gi"}}},
        "spark": {stage.name: ON_SPARK for stage in STAGES if "spark" in stage.engines},
    },
    outputs={"records": ("records", "*-of-*"), "schema": ("records", "schema.pbtxt")},
    drift=Drift(("heterograph",), drift),
    outcomes=(
        Metric("probe", "accuracy@validation", headline=True, optional=True),
        Metric("probe", "accuracy@test", headline=True, optional=True),
        Metric("probe", "macro_f1@validation", optional=True),
        Metric("probe", "macro_f1@test", optional=True),
        Picture("sample", "superworkflow.tasks.sample.picture:draw", "spec"),
        Picture("sample", "superworkflow.tasks.sample.drawn:draw", "subgraph"),
    ),
)  # fmt: skip
