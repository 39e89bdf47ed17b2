"""TF-GNN: batches of 64 records by `tfgnn.parse_example` in tf.data.

tfgnn_parse.py RECORDS
"""

import os
import sys
from itertools import islice
from pathlib import Path

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")

from serving import Clock, serve

made = {}


def prepare() -> dict:
    import tensorflow as tf
    import tensorflow_gnn as tfgnn

    threads = int(os.environ["OMP_NUM_THREADS"])
    spec = tfgnn.create_graph_spec_from_schema_pb(tfgnn.read_schema(f"{sys.argv[1]}/schema.pbtxt"))
    records = tf.data.TFRecordDataset(sorted(map(str, Path(sys.argv[1]).glob("*.tfrecord")))).repeat().batch(64)
    parsed = records.map(lambda batch: tfgnn.parse_example(spec, batch), num_parallel_calls=threads)
    made["batches"] = iter(parsed.prefetch(2))
    return {}


def answer(request: dict) -> dict:
    with Clock() as clock:
        found = sum(1 for _ in islice(made["batches"], request["batches"]))
    return {"batches": found, **clock.seconds()}


serve(answer, prepare)
