"""The work of stage `publish`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.tasks.lib.embeddings import batches, dimensions_of, open_embeddings, vectors_of
from superworkflow.tasks.lib.formats.npy import write_header
from superworkflow.tasks.lib.model_bundle import sorted_order, write_names
from superworkflow.tasks.publish import PublishParams

BUNDLE_FORMAT = 1
_BATCH_ROWS = 1 << 13


def run(job: StageRun[PublishParams]) -> Output:
    """Write the bundle.

    `vectors.npy` float32 `[n, d]` and `norms.npy` float32 `[n]` in the order of the embeddings; `nodes.npy` uint8, the
    nodes' UTF-8 one after the other, cut at `node_offsets.npy` int64 `[n + 1]`; `node_order.npy` int64 `[n]`, the rows
    in ascending byte order of their nodes, for look-up by bisection; `bundle.json`.

    Raises:
        UserError: there are no embeddings, or a node has two.
    """
    embeddings, out = job.inputs["embeddings"], job.output
    with open_embeddings(embeddings) as file:
        n, d = file.metadata.num_rows, dimensions_of(file.schema_arrow, embeddings)
        if n == 0:
            raise UserError("no embeddings to publish", where=embeddings.uri, remedy="Train on a graph with edges")
        labels = []
        norms = np.empty(n, dtype=np.float32)
        with out.file("vectors.npy") as path:
            # Written row by row rather than mapped: a full disk is then an error and not a signal.
            with path.open("wb") as stream:
                write_header(stream, (n, d), np.dtype("<f4"))
                done = 0
                for batch in batches(file, _BATCH_ROWS):
                    vectors = vectors_of(batch, d)
                    stream.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                    norms[done : done + len(vectors)] = np.linalg.norm(vectors, axis=1)
                    labels.append(batch["node"].cast(pa.large_string()))
                    done += len(vectors)
                    job.progress.update(done, n, "embeddings")
    out.array("norms.npy", norms)
    nodes = pa.concat_arrays(labels)
    order = sorted_order(nodes, "embeddings", embeddings.uri)
    write_names(out, nodes)
    out.array("node_order.npy", order.to_numpy().astype(np.int64))
    evaluation = job.inputs.get("evaluation")
    out.json("bundle.json", {
        "format": BUNDLE_FORMAT, "nodes": n, "dimensions": d, "metric": job.params.metric,
        "embeddings": embeddings.digest, "evaluation": evaluation.digest if evaluation else None,
        "metrics": evaluation.json("metrics.json") if evaluation else {},
    })  # fmt: skip
    return Output(rows=n, stats={"nodes": n, "dimensions": d, "metric": job.params.metric})
