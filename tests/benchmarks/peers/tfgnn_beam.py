"""TF-GNN's maintained sampler, `tfgnn_sampler`, on Beam's DirectRunner.

tfgnn_beam.py convert TABLES OUT            Parquet tables with a schema, as the TFRecords that it reads
tfgnn_beam.py sample OUT SPEC SEEDS SAMPLES    -> {"subgraphs"}
"""

import json
import os
import sys
from pathlib import Path

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")

ENDS = ("id", "source", "target")


def convert(tables: Path, out: Path) -> None:
    import pyarrow.parquet as pq
    import tensorflow as tf
    import tensorflow_gnn as tfgnn
    from google.protobuf import text_format

    schema = tfgnn.read_schema(str(tables / "schema.pbtxt"))
    out.mkdir(parents=True)
    schema.ClearField("context")
    for kind, _, items in tfgnn.iter_sets(schema):
        if kind == "context":
            continue
        if kind == "nodes" and not items.features:  # its code for sets without any loses its own edges
            items.features["name"].dtype = tf.string.as_datatype_enum
        (source,) = tables.glob(items.metadata.filename.replace("@", "-?????-of-*"))
        items.metadata.filename = f"{source.stem}.tfrecord"
        if (out / items.metadata.filename).exists():
            continue
        with tf.io.TFRecordWriter(str(out / items.metadata.filename)) as writer:
            for row in pq.read_table(source).to_pylist():
                example = tf.train.Example()
                if "name" in items.features and kind == "nodes":
                    row["name"] = row["id"]
                for key, value in row.items():
                    feature = example.features.feature[f"#{key}" if key in ENDS else key]
                    values = value if isinstance(value, list) else [value]
                    if isinstance(values[0], float):
                        feature.float_list.value.extend(values)
                    elif isinstance(values[0], int) and key not in ENDS:
                        feature.int64_list.value.extend(values)
                    else:
                        feature.bytes_list.value.extend(str(each).encode() for each in values)
                writer.write(example.SerializeToString())
    (out / "schema.pbtxt").write_text(text_format.MessageToString(schema))


def sample(folder: Path, spec: Path, seeds: Path, samples: Path) -> None:
    import tensorflow as tf
    from absl import app
    from tensorflow_gnn.experimental.sampler.beam import sampler

    os.chdir(folder)
    samples.mkdir(parents=True)
    sys.argv = [
        "tfgnn_sampler", "--data_path=.", "--graph_schema=schema.pbtxt", f"--sampling_spec={spec}",
        f"--input_seeds={seeds}", f"--output_samples={samples}/samples.tfrecord", "--runner=DirectRunner",
    ]  # fmt: skip
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sampler.define_flags()
    try:
        app.run(sampler.app_main)
    except SystemExit as ended:
        if ended.code:
            raise
    found = sum(1 for path in samples.glob("samples.tfrecord*") for _ in tf.data.TFRecordDataset(str(path)))
    answers.write(json.dumps({"subgraphs": found}) + "\n")
    answers.flush()


if __name__ == "__main__":
    {"convert": convert, "sample": sample}[sys.argv[1]](*(Path(each).resolve() for each in sys.argv[2:]))
