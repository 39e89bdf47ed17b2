"""GNN: a trained network that predicts classes or numbers of the nodes or edges of a whole new graph."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import feature_matrix, heterograph, infer, partition, shard, tabulate
from superworkflow.tasks.lib.formats import IN_MEMORY
from superworkflow.tasks.lib.gnn.model.config import LINKS, read_shape


class GnnPredictOptions(StageParams):
    """Options of the pipeline itself."""

    partitioned: bool = Field(
        default=False,
        description="Partition the graph, so that `infer` can run on a worker group. The predictions are the same.",
    )


def diagram(
    flow: Diagram, network: Dataset, graph: Source | None, edges: Source | None, features: Source | None
) -> None:
    """Heterograph, infer, tabulate.

    An edge list is read as the network's was, unless parameters say otherwise.
    """
    check_network(network)
    check_graph(graph, edges, features)
    scaled = network if features is not None else None
    reading = {} if edges is None else reading_of(network)
    typed = flow.stage(heterograph.STAGE, defaults=reading, graph=graph, edges=edges, features=features, network=scaled)
    if graph is not None:
        typed = flow.stage(feature_matrix.STAGE, graph=typed, network=network)
    shards = None
    if flow.option("partitioned"):
        shards = flow.stage(shard.STAGE, graph=typed, partition=flow.stage(partition.STAGE, graph=typed))
    found = flow.stage(infer.STAGE, graph=typed, network=network, shards=shards)
    flow.stage(tabulate.STAGE, predictions=found)


def check_network(network: Dataset) -> None:
    """Refuse a network that cannot read another graph.

    Raises:
        UserError: its nodes have learned embeddings, or it predicts links.
    """
    shape = read_shape(network)
    if shape.embedded():
        raise UserError(
            "the network has learned an embedding of each node, and nodes of another graph have none",
            where=network.uri, value=", ".join(shape.embedded()),
            remedy="Ask the registered model for single new nodes, which get the mean of their neighbours' embeddings, "
            "or train with features",
        )  # fmt: skip
    if shape.head.task == LINKS:
        raise UserError("the network predicts links, and not classes of nodes", where=network.uri,
                        remedy="Ask the registered model for pairs; their nodes may be new")  # fmt: skip


def reading_of(network: Dataset) -> dict[str, Any]:
    """Parameters of stage heterograph by which an edge list becomes a graph that the network reads.

    They are in the network itself: its edge sets, the features of edges that its layers read, and the times.
    """
    shape = read_shape(network)
    names = [name for name, _ in shape.edge_columns.get(heterograph.EDGE_SET, ())]
    own = (heterograph.WEIGHT, heterograph.TIMESTAMP)
    columns = dict.fromkeys(name.partition("=")[0] for name in names if name not in own)
    found: dict[str, Any] = {"edge_features": ",".join(columns)} if columns else {}
    if shape.head.of_pairs:
        found["other_columns"] = shape.head.label
    if any(each.name == heterograph.REVERSE_EDGE_SET for each in shape.relations):
        found["directed"] = True
    if shape.times is not None or heterograph.TIMESTAMP in names:
        found["time"] = "auto"
    return found


def check_graph(graph: Source | None, edges: Source | None, features: Source | None) -> None:
    """Refuse combinations of sources that do not define one graph.

    Raises:
        UserError: names the sources to give.
    """
    if (graph is None) == (edges is None):
        raise UserError("a prediction needs exactly one graph", where="graph" if graph is None else "edges",
                        remedy="Give either --edges FILE with --features FILE, or --graph FILE")  # fmt: skip
    if graph is not None and features is not None:
        raise UserError("with a schema, features are columns of its tables", where="features", value=features.uri,
                        remedy="Leave it out")  # fmt: skip


SUPERWORKFLOW = Superworkflow(
    name="gnn_predict",
    help="classes or numbers of the nodes or edges of a new graph, by a network that gnn or full_graph has trained",
    stages=(heterograph.STAGE, feature_matrix.STAGE, partition.STAGE, shard.STAGE, infer.STAGE, tabulate.STAGE),
    sources={
        "network": "the trained network, a dataset of stage train or train_full",
        "graph": "a schema of tables of nodes and edges (schema.pbtxt), its folder, or DGL's metadata.json",
        "edges": "an edge list instead of a schema: CSV, TSV, whitespace-separated or Parquet, optionally gzipped",
        "features": "with an edge list, features of its nodes: CSV or TSV with a header, or Parquet, a row for "
        "each node",
    },
    optional=frozenset({"graph", "edges", "features"}),
    datasets=frozenset({"network"}),
    applies={"network": ("train", "train_full")},
    in_memory=IN_MEMORY,
    diagram=diagram,
    options=GnnPredictOptions,
    outputs={"predictions": ("tabulate", "predictions.parquet"), "embeddings": ("infer", "embeddings.parquet")},
)  # fmt: skip
