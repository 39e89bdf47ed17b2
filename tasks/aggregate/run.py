"""The work of stage `aggregate`."""

from __future__ import annotations

import numba as nb
import numpy as np

from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.gnn.features import features_of
from superworkflow.tasks.lib.gnn.precomputed_means import sums_file
from superworkflow.tasks.lib.gnn.sampler.kernels import sum_edges
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.kernels.arrays import read_only
from superworkflow.tasks.lib.kernels.float16 import as_read
from superworkflow.tasks.lib.kernels.numba_cache import load_kernels_fast

load_kernels_fast()
_PIECE_BYTES = 64 << 20


def run(job: StageRun[StageParams]) -> Output:
    """Write the means; see `tasks.aggregate`.

    Raises:
        UserError: a feature is not a finite number.
    """
    nb.set_num_threads(min(job.threads, nb.get_num_threads()))
    graph = HeteroGraph.open(job.inputs["graph"])
    features = {name: features_of(graph, name) for name in graph.node_sets}
    made = [(number, each) for number, each in enumerate(graph.edge_sets.values()) if features[each.target] is not None]
    total, done = sum(graph.node_sets[each.source].count for _, each in made), 0
    for number, edges in made:
        values = features[edges.target]
        assert values is not None
        indptr, indices = graph.rows(edges.name)
        nodes, width = len(indptr) - 1, values.shape[1]
        piece = max(1, _PIECE_BYTES // (4 * width))
        with job.output.file(sums_file(number)) as path, path.open("wb") as stream:
            write_header(stream, (nodes, width), np.dtype("<f4"))
            for first in range(0, nodes, piece):
                starts = indptr[first : first + piece + 1]
                means = np.empty((len(starts) - 1, width), np.float32)
                ends = read_only(indices[starts[0] : starts[-1]])
                sum_edges(read_only(as_read(values)), read_only(starts - starts[0]), ends, means)
                means /= np.maximum(np.diff(starts), 1).astype(np.float32)[:, None]
                stream.write(means.data)
                job.progress.update(done + first + len(means), total, "nodes")
        done += nodes
    return Output(rows=total, stats={"nodes": total, "bytes": job.output.bytes_written, "edge_sets": len(made)})
