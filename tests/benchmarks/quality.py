"""Node classification of both sides' vectors by the evaluate stage's own code."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from superworkflow.tasks.evaluate.classify import classify
from superworkflow.tasks.evaluate.run import summary
from superworkflow.tasks.label.match import match
from superworkflow.tasks.lib.edge_list.label_file import parse
from tests.benchmarks.graphs import GraphFiles

SHUFFLES, RATIO = 10, 0.5


def f1(graph: GraphFiles, vectors: NDArray[np.float32], index: Path | None = None) -> dict[str, float]:
    """Micro- and Macro-F1 at 50% training, the mean of 10 shuffles.

    Args:
        graph: with its labels.
        vectors: `[vertices, d]` in the order of the index dataset's vertices.
        index: that dataset; the graph's own by default.
    """
    table = pq.read_table((index or graph.index(False)) / "vertices.parquet", columns=["node"])
    where = graph.labels.name
    labels, _ = match(parse(graph.labels, where), where, table["node"], "error")
    chosen = np.ascontiguousarray(vectors[labels.vertices])
    with threadpool_limits(1), ThreadPoolExecutor(2) as pool:
        scores = list(
            pool.map(lambda shuffle: classify(chosen, labels.matrix, RATIO, shuffle, seed=0, C=1.0), range(SHUFFLES))
        )
    found = summary(scores)
    return {"micro_f1": round(found[f"micro_f1@{RATIO}"], 4), "macro_f1": round(found[f"macro_f1@{RATIO}"], 4)}


def embeddings_of(embed: Path, index: Path) -> NDArray[np.float32]:
    """Vectors of an embed dataset in the order of the index dataset's vertices; every vertex has one."""
    table = pq.read_table(embed / "embeddings.parquet")
    nodes = pq.read_table(index / "vertices.parquet", columns=["node"])["node"].to_pylist()
    place = {node: row for row, node in enumerate(table["node"].to_pylist())}
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in table["vector"].chunks])
    vectors: NDArray[np.float32] = flat.reshape(len(table), -1)[[place[node] for node in nodes]]
    return vectors
