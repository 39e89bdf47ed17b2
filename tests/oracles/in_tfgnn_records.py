"""In TF-GNN's environment: every record is read by it, and has the bytes that protobuf would write.

in_tfgnn_records.py FOLDER    with schema.pbtxt and *.tfrecord or *.tfrecord.gz
"""

import sys
from pathlib import Path

import tensorflow as tf
import tensorflow_gnn as tfgnn


def main(folder: Path) -> None:
    schema = tfgnn.read_schema(str(folder / "schema.pbtxt"))
    spec = tfgnn.create_graph_spec_from_schema_pb(schema)
    records = size = 0
    for path in sorted(folder.glob("*.tfrecord*")):
        compression = "GZIP" if path.suffix == ".gz" else ""
        for raw in tf.data.TFRecordDataset(str(path), compression_type=compression).as_numpy_iterator():
            example = tf.train.Example.FromString(raw)
            again = example.SerializeToString(deterministic=True)
            assert again == raw, f"{path}, record {records}: other bytes than protobuf's"
            graph = tfgnn.parse_single_example(spec, raw, validate=True)
            features = example.features.feature
            for name, nodes in graph.node_sets.items():
                sizes = features[f"nodes/{name}.#size"].int64_list.value if f"nodes/{name}.#size" in features else [0]
                assert int(nodes.total_size) == sum(sizes), (path, records, name)
            for name, edges in graph.edge_sets.items():
                source, target = edges.adjacency.source, edges.adjacency.target
                for end, places in ((edges.adjacency.source_name, source), (edges.adjacency.target_name, target)):
                    most = int(graph.node_sets[end].total_size)
                    assert not len(places) or int(tf.reduce_max(places)) < most, (path, records, name)
            records, size = records + 1, size + len(raw)
    assert records, f"{folder} holds no records"
    print(f"{folder}: TF-GNN parsed {records} records of {size / records:.0f} bytes; each is as protobuf writes it")


main(Path(sys.argv[1]))
