"""The work of stage `publish_latent_factors`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.edge_list.bipartite import side_vertices
from superworkflow.tasks.lib.vertex.stage import whole_field


def run(job: StageRun[StageParams]) -> Output:
    """Write the tables; see `tasks.publish_latent_factors`.

    Raises:
        UserError: the factors are of another graph.
    """
    graph, factors = job.inputs["graph"], whole_field(job.inputs["graph"], job.inputs["values"], "factor")
    with graph.parquet("vertices.parquet") as file:
        names = file.read(["node"]).column(0).combine_chunks()
    counts = []
    for title, prefix, vertices in zip(
        ("users", "items"), ("source_prefix", "target_prefix"), side_vertices(names, graph.stats), strict=True
    ):
        plain = pc.utf8_slice_codeunits(names.take(pa.array(vertices)), len(str(graph.stats[prefix])))
        values = pa.FixedSizeListArray.from_arrays(
            np.ascontiguousarray(factors[vertices]).reshape(-1), factors.shape[1]
        )
        with job.output.file(f"{title}.parquet") as path:
            pq.write_table(pa.table({"node": plain, "factor": values}), path, compression="zstd")
        counts.append(len(vertices))
    return Output(rows=len(factors), stats={"users": counts[0], "items": counts[1], "factors": factors.shape[1]})
