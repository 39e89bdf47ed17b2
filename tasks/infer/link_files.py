"""Files of a network that predicts links: vectors of both ends' nodes, and scores of the held-out pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from superworkflow.infra.contract.stage import Output
from superworkflow.infra.storage.dataset import FileWriter
from superworkflow.tasks.infer.at_times import AtTimes
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.gnn.model.network import Network
from superworkflow.tasks.lib.gnn.sampler.links import HELD_OUT, read_held_out, scores_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph

PREDICTIONS, VECTORS, TARGET_VECTORS = "predictions.parquet", "embeddings.parquet", "target_embeddings.parquet"
_GROUP_BYTES = 4 << 20
RowsByNodeSet = Mapping[str, NDArray[np.float32]]


def write_links(
    output: FileWriter, graph: HeteroGraph, network: Network, rows: RowsByNodeSet, at_times: AtTimes | None
) -> Output:  # fmt: skip
    """Write the rows of both ends' node sets, and the decoder's scores of the held-out pairs."""
    held_out = read_held_out(graph)
    edges = graph.edge_sets[held_out.edges]
    ids = {name: graph.ids(name).combine_chunks() for name in (edges.source, edges.target)}
    files = {VECTORS: edges.source}
    if edges.source != edges.target:
        files[TARGET_VECTORS] = edges.target
    for file, name in files.items():
        with output.file(file) as path:
            write_vectors(path, ids[name], rows[name])
    width = network.shape.head.width
    factors = np.ones(width, np.float32) if network.factors is None else network.factors.detach().cpu().numpy()
    output.array("factors.npy", factors)
    parts, timed = [], {} if at_times is None else at_times.pairs(held_out, factors)
    for split in HELD_OUT:
        for linked, pairs in ((True, held_out.links[split]), (False, held_out.others[split])):
            found = timed.get((split, linked))
            found = scores_of(rows[edges.source], rows[edges.target], factors, pairs) if found is None else found
            scores = torch.from_numpy(found)
            parts.append(pa.table({
                "source": ids[edges.source].take(column(pairs[:, 0])).cast(pa.string()),
                "target": ids[edges.target].take(column(pairs[:, 1])).cast(pa.string()),
                "linked": pa.array(np.full(len(pairs), linked)),
                "split": pa.array([split] * len(pairs), pa.string()),
                "score": column(scores.numpy()),
                "probability": column(torch.sigmoid(scores).numpy()),
            }))  # fmt: skip
    with output.file(PREDICTIONS) as path:
        pq.write_table(pa.concat_tables(parts), path, compression="zstd", row_group_size=1 << 17)
    count = sum(len(rows[name]) for name in files.values())
    pairs_there = sum(map(len, parts))
    stats = {"rows": count, "nodes": count, "dimensions": width, "pairs": pairs_there}
    return Output(rows=count, stats=stats if at_times is None else stats | {"timed": pairs_there})


def write_vectors(path: Path, names: pa.Array, vectors: NDArray[np.float32]) -> None:
    """Write nodes and vectors, a row group at a time."""
    width = vectors.shape[1]
    schema = pa.schema([("node", pa.string()), ("vector", pa.list_(pa.float32(), width))])
    size = max(1, _GROUP_BYTES // (4 * width))
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        for first in range(0, len(vectors), size):
            part = vectors[first : first + size]
            values = pa.FixedSizeListArray.from_arrays(column(part.reshape(-1)), width)
            batch = [names[first : first + size].cast(pa.string()), values]
            writer.write_table(pa.Table.from_arrays(batch, schema=schema), row_group_size=size)
