"""Citation graphs with the split of Yang et al. (ICML 2016) as tables, from the files that Planetoid has."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema

SPEC = """seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "cites" sample_size: 5 strategy: RANDOM_UNIFORM }
sampling_ops { op_name: "two" input_op_names: "one" edge_set_name: "cites" sample_size: 5 strategy: RANDOM_UNIFORM }
"""


def write_planetoid(source: Path, name: str, folder: Path) -> Path:
    """Write `schema.pbtxt`, `spec.pbtxt`, `seeds.csv` and tables of papers, with rows of words that sum to 1."""
    folder.mkdir(parents=True)

    def part(kind: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an old SciPy's matrices
            return pickle.loads((source / f"ind.{name}.{kind}").read_bytes(), encoding="latin1")

    words, labels, graph = part("allx").toarray(), part("ally"), part("graph")
    train, test = part("x").shape[0], np.loadtxt(source / f"ind.{name}.test.index", dtype=np.int64)
    papers = max(len(graph), int(test.max()) + 1)
    feat, one_hot = np.zeros((papers, words.shape[1]), np.float32), np.zeros((papers, labels.shape[1]))
    feat[: len(words)], one_hot[: len(labels)] = words, labels
    feat[test], one_hot[test] = part("tx").toarray(), part("ty")
    feat /= np.maximum(feat.sum(axis=1, keepdims=True), 1)
    label = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    pairs = {(u, v) for u, others in graph.items() for v in others if u != v}
    pairs |= {(v, u) for u, v in pairs}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(feat.reshape(-1)), feat.shape[1])
    pq.write_table(pa.table({"id": np.arange(papers), "feat": vectors, "label": label}), folder / "paper.parquet")
    ends = np.array(sorted(pairs)).T
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "cites.parquet")
    splits = [("train", range(train)), ("validation", range(train, train + 500)), ("test", test)]
    rows = "".join(f"{paper},{split}\n" for split, which in splits for paper in which)
    (folder / "seeds.csv").write_text(f"id,split\n{rows}")
    (folder / "spec.pbtxt").write_text(SPEC)
    schema = plain_schema(
        folder, {"paper": "paper.parquet"}, [EdgeTable("paper", "cites", "paper", "cites.parquet")], {}
    )
    (folder / SCHEMA_FILE).write_text(schema_text(schema))
    return folder
