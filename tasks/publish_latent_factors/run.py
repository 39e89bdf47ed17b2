"""The work of stage `publish_latent_factors`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.bptf.results import slice_factors
from superworkflow.tasks.lib.edge_list.bipartite import side_vertices
from superworkflow.tasks.lib.model_bundle import sorted_order, write_names
from superworkflow.tasks.lib.vertex.stage import whole_field
from superworkflow.tasks.time_slices import STARTS

BUNDLE_FORMAT = 1


def run(job: StageRun[StageParams]) -> Output:
    """Write the tables and the model; see `tasks.publish_latent_factors`.

    Raises:
        UserError: the factors are of another graph.
    """
    graph, factors = job.inputs["graph"], whole_field(job.inputs["graph"], job.inputs["values"], "factor")
    names = graph.table("vertices.parquet", ["node"]).column(0).combine_chunks()
    ordered, in_slices = [], slice_factors(job.inputs["values"])
    if in_slices is not None:
        starts = [None, *job.inputs["slices"].array(STARTS).tolist()]
        job.output.table("slices.parquet", pa.table({"start": starts, "factor": in_slices.tolist()}))
    for side, prefix, vertices in zip(
        ("user", "item"), ("source_prefix", "target_prefix"), side_vertices(names, graph.stats), strict=True
    ):
        plain = pc.utf8_slice_codeunits(names.take(pa.array(vertices)), len(str(graph.stats[prefix])))
        values = np.ascontiguousarray(factors[vertices])
        rows = pa.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])
        job.output.table(f"{side}s.parquet", pa.table({"node": plain, "factor": rows}))
        nodes = plain.cast(pa.large_string())
        order = sorted_order(nodes, "factors", graph.uri).to_numpy()
        write_names(job.output, nodes.take(pa.array(order)), f"{side}_")
        if in_slices is not None and side == "user":
            values = (values * in_slices[-1]).astype(np.float32)
        job.output.array(f"{side}_factors.npy", values[order])
        ordered.append(vertices[order])
    indptr, indices = graph.array("indptr.npy"), graph.array("indices.npy")
    shape = (len(names), len(names))
    rated = sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape)[ordered[0]][:, ordered[1]]
    rated.sort_indices()
    job.output.array("rated.npy", rated.indices.astype(np.int32))
    job.output.array("rated_offsets.npy", rated.indptr.astype(np.int64))
    ratings, counts = graph.array("weights.npy"), [len(each) for each in ordered]
    facts = {"users": counts[0], "items": counts[1], "factors": factors.shape[1]}
    job.output.json("bundle.json", {
        "format": BUNDLE_FORMAT, "task": "ratings", **facts, "least": float(ratings.min()),
        "most": float(ratings.max()), "values": job.inputs["values"].digest,
    })  # fmt: skip
    return Output(rows=len(factors), stats=facts)
