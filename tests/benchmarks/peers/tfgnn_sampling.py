"""TF-GNN's sampler in memory: the Keras model that it makes of a spec, one thread, 64 seeds a call.

tfgnn_sampling.py GRAPH SPEC
{"subgraphs", "seed"} -> {"subgraphs", "edges", "wall_s", "cpu_s"}
"""

import json
import os
import sys
from pathlib import Path

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1")

import numpy as np
from serving import Clock, serve

MERGED = 64
made = {}


def prepare() -> dict:
    import tensorflow as tf
    import tensorflow_gnn as tfgnn
    from google.protobuf import text_format
    from tensorflow_gnn.experimental import sampler
    from tensorflow_gnn.sampler import sampling_spec_pb2

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    folder = Path(sys.argv[1])
    described = json.loads((folder / "graph.json").read_text())
    counts = {each["name"]: each["count"] for each in described["node_sets"]}
    schema, ends = tfgnn.GraphSchema(), {}
    for name in counts:
        schema.node_sets[name].description = name
    for number, each in enumerate(described["edge_sets"]):
        edges = schema.edge_sets[each["name"]]
        edges.source, edges.target = each["source"], each["target"]
        indptr, indices = (np.load(folder / f"edges-{number}-{name}.npy") for name in ("indptr", "indices"))
        sources = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        ends[each["name"]] = tf.constant(sources), tf.constant(indices), counts[each["source"]]

    def edge_sampler(op):
        source, target, nodes = ends[op.edge_set_name]
        return sampler.InMemUniformEdgesSampler(
            nodes, source, target, sample_size=op.sample_size, edge_set_name=op.edge_set_name, name=op.op_name
        )

    spec = text_format.Parse(Path(sys.argv[2]).read_text(), sampling_spec_pb2.SamplingSpec())
    model = sampler.create_sampling_model_from_spec(schema, spec, edge_sampler, seed_node_dtype=tf.int32)
    signature = [tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)]
    made.update(tf=tf, papers=counts["paper"], model=tf.function(model, input_signature=signature))
    return {}


def answer(request: dict) -> dict:
    tf = made["tf"]
    seeds = np.random.default_rng(request["seed"]).integers(0, made["papers"], request["subgraphs"]).astype(np.int32)
    edges = 0
    with Clock() as clock:
        for first in range(0, len(seeds), MERGED):
            graph = made["model"](tf.RaggedTensor.from_tensor(seeds[first : first + MERGED, None]))
            edges += sum(int(tf.reduce_sum(each.sizes)) for each in graph.edge_sets.values())
    return {"subgraphs": len(seeds), "edges": edges, **clock.seconds()}


serve(answer, prepare)
