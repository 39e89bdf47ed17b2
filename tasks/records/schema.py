"""The schema of records: that of the graph, without files, for TF-GNN's parser."""

from __future__ import annotations

from superworkflow.tasks.lib.graph.heterograph import Feature
from superworkflow.tasks.lib.graph.schema import (
    SCHEMA_FILE,
    ContextSchema,
    EdgeSetSchema,
    GraphSchema,
    NodeSetSchema,
    SchemaFeature,
    schema_text,
)
from superworkflow.tasks.records.features import READOUT, READOUT_ENDS, FeatureSource

__all__ = ["SCHEMA_FILE", "schema_of_records"]


def schema_of_records(source: FeatureSource) -> str:
    """The text of `schema.pbtxt`: what the Examples of subgraphs with these features hold."""
    graph, seed_sets = source.graph, source.seed_sets
    link = len(seed_sets) == 2
    nodes = {each.name: NodeSetSchema(each.name, _features(each.features)) for each in graph.node_sets.values()}
    edges = {
        each.name: EdgeSetSchema(each.name, each.source, each.target, _features(each.features))
        for each in graph.edge_sets.values()
    }
    if link:
        nodes[READOUT] = NodeSetSchema(READOUT)
        for end, name in zip(READOUT_ENDS, seed_sets, strict=True):
            edges[end] = EdgeSetSchema(end, name, READOUT)
    context = (SchemaFeature("sample_id", "string"), SchemaFeature("seed_id", "string", (2,) if link else ()))
    return schema_text(GraphSchema(nodes, edges, ContextSchema(context), "SUBGRAPH", tuple(dict.fromkeys(seed_sets))))


def _features(features: tuple[Feature, ...]) -> tuple[SchemaFeature, ...]:
    return tuple(SchemaFeature(each.name, each.dtype, each.shape) for each in features)
