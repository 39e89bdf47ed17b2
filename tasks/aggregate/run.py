"""The work of stage `aggregate`."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.aggregate import AggregateParams
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.gnn.edge_weights import degrees_of
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.precomputed_means import GCN, sums_file
from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.gnn.whole_graph.gather_kernels import gather_scaled
from superworkflow.tasks.lib.graph.heterograph import CsrRows, HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
_PIECE_BYTES = 64 << 20


def run(job: StageRun[AggregateParams]) -> Output:
    """Write the means; see `tasks.aggregate`.

    Raises:
        UserError: a feature is not a finite number, or the graph has more edge sets than GCN takes.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"])
    features = {name: features_of(graph, name) for name in graph.node_sets}
    made = [(number, each) for number, each in enumerate(graph.edge_sets.values()) if features[each.target] is not None]
    form = job.params.form
    if form == GCN and (len(graph.node_sets), len(graph.edge_sets)) != (1, 1):
        raise UserError("GCN takes a graph of one node set and one edge set", where="aggregate.form", value=form,
                        remedy="Leave aggregate.form out")  # fmt: skip
    total, done = sum(graph.node_sets[each.source].count for _, each in made), 0
    for number, edges in made:
        values = features[edges.target]
        assert values is not None
        rows = graph.rows(edges.name)
        nodes, width = len(rows.indptr) - 1, values.shape[1]
        scales = np.asarray(1 / np.sqrt(degrees_of(rows, None) + 1), np.float32)
        piece = max(1, _PIECE_BYTES // (4 * width))
        with job.output.file(sums_file(number, form)) as path, path.open("wb") as stream:
            write_header(stream, (nodes, width), np.dtype("<f4"))
            for first in range(0, nodes, piece):
                out = np.empty((min(piece, nodes - first), width), np.float32)
                _aggregate(form, values, rows, scales, first, out)
                stream.write(out.data)
                job.progress.update(done + first + len(out), total, "nodes")
        done += nodes
    return Output(rows=total, stats={"nodes": total, "bytes": job.output.bytes_written, "edge_sets": len(made)})


def _aggregate(
    form: str, values: NDArray[Any], rows: CsrRows, scales: NDArray[np.float32], first: int, out: NDArray[np.float32]
) -> None:
    """Fill the rows of the nodes from `first` on."""
    read, (indptr, indices) = read_only(as_read(values)), rows
    if form == GCN:
        gather_scaled(read, scales, read_only(indptr), read_only(indices), first, out)
        return
    starts = indptr[first : first + len(out) + 1]
    sum_edges(read, read_only(starts - starts[0]), read_only(indices[starts[0] : starts[-1]]), out)
    out /= np.maximum(np.diff(starts), 1).astype(np.float32)[:, None]
