"""A small typed graph with features of several types and edges in an order of their own, as tables with a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PAPERS, AUTHORS, TOPICS = 60, 25, 9

SCHEMA = """
node_sets { key: "author" value { features { key: "name" value { dtype: DT_STRING } }
  metadata { filename: "author.parquet" } } }
node_sets { key: "paper" value {
  features { key: "words" value { dtype: DT_FLOAT shape { dim { size: 3 } } } }
  features { key: "year" value { dtype: DT_INT64 } }
  metadata { filename: "paper.parquet" } } }
node_sets { key: "topic" value { features { key: "level" value { dtype: DT_INT64 } }
  metadata { filename: "topic.parquet" } } }
edge_sets { key: "cites" value { source: "paper" target: "paper"
  features { key: "weight" value { dtype: DT_FLOAT } } metadata { filename: "cites.parquet" } } }
edge_sets { key: "has_topic" value { source: "paper" target: "topic" metadata { filename: "has_topic.parquet" } } }
edge_sets { key: "writes" value { source: "author" target: "paper"
  features { key: "weight" value { dtype: DT_FLOAT } } features { key: "place" value { dtype: DT_INT64 } }
  metadata { filename: "writes.parquet" } } }
edge_sets { key: "written" value { source: "paper" target: "author"
  features { key: "weight" value { dtype: DT_FLOAT } } features { key: "place" value { dtype: DT_INT64 } }
  metadata { filename: "writes.parquet" extra { key: "edge_type" value: "reversed" } } } }
"""

SPEC = """
seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops { op_name: "cited" input_op_names: "seed" edge_set_name: "cites" sample_size: 3 strategy: TOP_K }
sampling_ops { op_name: "by" input_op_names: ["seed", "cited"] edge_set_name: "written" sample_size: 2 strategy: TOP_K }
sampling_ops { op_name: "also" input_op_names: "by" edge_set_name: "writes" sample_size: 500 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "few" input_op_names: ["cited", "also"] edge_set_name: "has_topic" sample_size: 1
  strategy: TOP_K }
sampling_ops { op_name: "on" input_op_names: "seed" edge_set_name: "has_topic" sample_size: 500
  strategy: RANDOM_WEIGHTED }
"""


def write_toy(folder: Path) -> Path:
    """Write `schema.pbtxt`, `spec.pbtxt` and the tables."""
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True)
    papers = [f"paper {i}" for i in rng.permutation(PAPERS)]
    authors, topics = [f"a{i}" for i in rng.permutation(AUTHORS)], [f"t{i}" for i in rng.permutation(TOPICS)]

    def write(name: str, /, **columns: object) -> None:
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")

    words = pa.array(rng.normal(size=(PAPERS, 3)).astype(np.float32).tolist(), pa.list_(pa.float32(), 3))
    write("paper", id=papers, words=words, year=rng.integers(-5, 2_000_000_000_000, PAPERS))
    write("author", id=authors, name=[f"Ä {name}" for name in authors])
    write("topic", id=topics, level=rng.integers(0, 4, TOPICS))
    for name, sources, targets, count in (
        ("cites", papers, papers, 400), ("has_topic", papers, topics, 150), ("writes", authors, papers, 180)
    ):  # fmt: skip
        pairs = rng.permutation(np.unique(rng.integers(0, [len(sources), len(targets)], (count, 2)), axis=0))
        columns: dict[str, object] = {
            "source": [sources[s] for s, _ in pairs], "target": [targets[t] for _, t in pairs]
        }  # fmt: skip
        if name != "has_topic":
            columns["weight"] = rng.integers(0, 3, len(pairs)).astype(np.float32)  # many are equal
        if name == "writes":
            columns["place"] = rng.integers(0, 300, len(pairs))
        write(name, **columns)
    (folder / "schema.pbtxt").write_text(SCHEMA)
    (folder / "spec.pbtxt").write_text(SPEC)
    return folder
