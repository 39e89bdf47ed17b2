"""In TF-GNN's environment: its older sampler makes the same Examples, where nothing is random.

    in_tfgnn_sampler.py GRAPH SPEC RECORDS edge|node

GRAPH has schema.pbtxt and Parquet tables, which are written anew as the TFRecords that the sampler reads.
"""

import logging
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import tensorflow as tf
import tensorflow_gnn as tfgnn
from google.protobuf import text_format
from tensorflow_gnn.sampler import sampling_spec_pb2
from tensorflow_gnn.sampler.unsupported import graph_sampler

Example = tf.train.Example


def write_table(source: Path, path: Path) -> None:
    """A Parquet table as TFRecords."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in pq.read_table(source).to_pylist():
            example = Example()
            for name, value in row.items():
                values = value if isinstance(value, list) else [value]
                key = f"#{name}" if name in ("id", "source", "target") else name
                feature = example.features.feature[key]
                for each in values:
                    if isinstance(each, float):
                        feature.float_list.value.append(each)
                    elif isinstance(each, int) and not key.startswith("#"):
                        feature.int64_list.value.append(each)
                    else:
                        feature.bytes_list.value.append(each if isinstance(each, bytes) else str(each).encode())
            writer.write(example.SerializeToString())


def read(folder: Path) -> dict[bytes, Example]:
    """Examples by their sample_id."""
    found = {}
    for path in sorted(folder.glob("*tfrecord*")):
        for raw in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            example = Example.FromString(raw)
            found[example.features.feature["context/sample_id"].bytes_list.value[0]] = example
    return found


def values_of(example: Example, name: str) -> list:
    """Values of a feature; an absent one has none."""
    feature = example.features.feature.get(name) if name in example.features.feature else None
    kind = feature and feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def main(graph: Path, spec_file: Path, records: Path, aggregation: str) -> None:
    logging.disable(logging.WARNING)
    spec = text_format.Parse(spec_file.read_text(), sampling_spec_pb2.SamplingSpec())
    schema = tfgnn.read_schema(str(graph / "schema.pbtxt"))
    ours = read(records)
    schema_of_records = tfgnn.read_schema(str(records / "schema.pbtxt"))
    with tempfile.TemporaryDirectory() as made:
        tables, out = Path(made) / "tables", Path(made) / "out"
        tables.mkdir()
        out.mkdir()
        for kind, name, items in tfgnn.iter_sets(schema):
            if kind == "context":
                schema.context.metadata.filename = ""
                continue
            file = f"{Path(items.metadata.filename).stem}.tfrecord"
            if not (tables / file).exists():
                write_table(graph / items.metadata.filename, tables / file)
            items.metadata.filename = file
            if kind == "nodes" and "#id" in schema_of_records.node_sets[name].features:
                items.features["#id"].dtype = tf.string.as_datatype_enum
        schema.ClearField("context")
        graph_sampler.run_sample_graph_pipeline(
            schema, spec, graph_sampler.EdgeAggregationMethod(aggregation), str(out / "samples.tfrecord"), str(tables),
            seeds_filename=None, runner_name="DirectRunner",
        )  # fmt: skip
        theirs = read(out)
    assert ours.keys() == theirs.keys(), f"{len(ours)} subgraphs, theirs {len(theirs)}"
    compared = 0
    for sample_id, example in ours.items():
        other = theirs[sample_id]
        names = set(example.features.feature) | set(other.features.feature)
        for name in sorted(names):
            one, two = values_of(example, name), values_of(other, name)
            assert one == two, f"{sample_id!r}, {name}: {one[:10]} ({len(one)}), theirs {two[:10]} ({len(two)})"
            compared += 1
    print(
        f"{records}: {len(ours)} Examples have the {compared} features that TF-GNN's sampler gives them ({aggregation})"
    )


main(*map(Path, sys.argv[1:4]), sys.argv[4])
