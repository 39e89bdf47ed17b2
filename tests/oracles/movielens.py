"""MovieLens-100K, which the wheel of RecBole holds: a real graph with weights and timestamps, sampled by both.

Every user's subgraph equals the plain sampler's, and how often weighted draws take each movie is held against NumPy's.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import chi2

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema
from superworkflow.tasks.lib.subgraphs.blocks import read_blocks
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.spec import parse_spec
from tests.oracles.environments import python_of
from tests.tasks.index_helpers import run_stage
from tests.tasks.sampling import PlainGraph, PlainSampler, plain, same

_SEED = 'seed_op { op_name: "seed" node_set_name: "user" }'
_DRAWN = """sampling_ops {
  op_name: "drawn" input_op_names: "seed" edge_set_name: "rated" sample_size: 10 strategy: RANDOM_WEIGHTED
}"""
SPEC = f"""{_SEED}
sampling_ops {{ op_name: "best" input_op_names: "seed" edge_set_name: "rated" sample_size: 10 strategy: TOP_K }}
{_DRAWN}
sampling_ops {{
  op_name: "others" input_op_names: ["best", "drawn"] edge_set_name: "rated_by" sample_size: 8 strategy: LATEST_K
}}
sampling_ops {{ op_name: "theirs" input_op_names: "others" edge_set_name: "rated" sample_size: 5 strategy: LATEST_K }}
"""
WEIGHTED = f"{_SEED}\n{_DRAWN}\n"
REPEATS = 1000


def ratings() -> list[tuple[str, str, float, int]]:
    """User, movie, rating and time of each, in the order of the file."""
    found = python_of("recbole").parents[1].glob("lib/python*/site-packages/recbole/dataset_example/ml-100k")
    with (next(found) / "ml-100k.inter").open(newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    return [(f"u{user}", f"m{movie}", float(rating), int(float(when))) for user, movie, rating, when in rows]


def write_movielens(rows: list[tuple[str, str, float, int]], folder: Path) -> dict[str, int]:
    """Write the tables, their schema, spec and seeds; the median time of each user, which is its seed's."""
    folder.mkdir(parents=True)
    users, movies, weights, times = (list(each) for each in zip(*rows, strict=True))
    columns = {"source": users, "target": movies, "weight": pa.array(weights, pa.float32()), "timestamp": times}
    pq.write_table(pa.table(columns), folder / "rated.parquet")
    schema = plain_schema(folder, {}, [EdgeTable("user", "rated", "movie", "rated.parquet")], {"rated_by": "rated"})
    (folder / SCHEMA_FILE).write_text(schema_text(schema))
    (folder / "spec.pbtxt").write_text(SPEC)
    (folder / "weighted.pbtxt").write_text(WEIGHTED)
    mine: dict[str, list[int]] = {}
    for user, _, _, when in rows:
        mine.setdefault(user, []).append(when)
    medians = {user: sorted(whens)[len(whens) // 2] for user, whens in mine.items()}
    lines = [f"{user},train,{when}" for user, when in medians.items()]
    (folder / "seeds.csv").write_text("\n".join(["id,split,timestamp", *lines, ""]))
    return medians


def plain_graph(rows: list[tuple[str, str, float, int]]) -> tuple[PlainGraph, dict[str, int]]:
    """The same as plain Python values, and the numbers of users."""
    names = [sorted({row[end] for row in rows}, key=str.encode) for end in (0, 1)]
    number = [{name: place for place, name in enumerate(each)} for each in names]
    edges = sorted((number[0][user], number[1][movie], row) for row, (user, movie, _, _) in enumerate(rows))
    back = sorted((movie, user, position) for position, (user, movie, _) in enumerate(edges))
    features = {
        name: np.array([rows[row][column] for _, _, row in edges]) for name, column in (("weight", 2), ("timestamp", 3))
    }
    origin = [position for _, _, position in back]
    graph = PlainGraph(
        {"movie": len(names[1]), "user": len(names[0])},
        {"rated": ("user", "movie"), "rated_by": ("movie", "user")},
        {"rated": [edge[:2] for edge in edges], "rated_by": [edge[:2] for edge in back]},
        {"rated": features, "rated_by": {name: values[origin] for name, values in features.items()}},
        rows={"rated": np.array([row for _, _, row in edges])},
    )
    return graph, number[0]


def check_movielens(folder: Path) -> None:
    """Subgraphs of all users are the plain sampler's; weighted draws are distributed as NumPy's."""
    rows = ratings()
    medians = write_movielens(rows, folder / "movielens")
    expected, numbers = plain_graph(rows)

    def made(stage: str, params: dict[str, Any], **inputs: Any) -> Dataset:
        given = {name: str(path) for name, path in inputs.items()}
        return run_stage(load_stage(stage), params, given, folder / f"movielens-{stage}-{len(params)}")

    graph = made("heterograph", {}, graph=folder / "movielens").location.local_path
    seeds, spec = folder / "movielens" / "seeds.csv", folder / "movielens" / "spec.pbtxt"
    began = time.perf_counter()
    sampled = made("sample", {}, graph=graph, spec=spec, seeds=seeds)
    seconds, stats = time.perf_counter() - began, sampled.stats
    oracle, seen = PlainSampler(expected, parse_spec(SPEC, "spec"), SampleParams()), 0
    for block in read_blocks(sampled, "train"):
        for place in range(block.subgraphs):
            user = block.sample_ids[place].as_py()
            wanted = oracle.subgraph([numbers[user]], 0, medians[user])
            assert same(plain(block, expected, place), wanted), user
            seen += 1
    assert seen == len(medians) == 943
    print(f"MovieLens-100K: {seen} subgraphs of {stats['edges']} edges are the plain sampler's; {seconds:.1f} s")
    check_distribution(made, folder, graph, expected)


def check_distribution(made: Any, folder: Path, graph: Any, expected: PlainGraph) -> None:
    """Compare how often the edges of one user are drawn with draws of NumPy's, by a two-sample chi-square test."""
    user = "u1"
    (folder / "one.csv").write_text(f"id,split\n{user},train\n")
    sampled = made("sample", {"repeats": REPEATS}, graph=graph, spec=folder / "movielens" / "weighted.pbtxt",
                   seeds=folder / "one.csv")  # fmt: skip
    ids = sorted({int(each) for block in read_blocks(sampled, "train") for each in block.seeds.tolist()})
    row = [position for position, (source, _) in enumerate(expected.edges["rated"]) if source == ids[0]]
    weights = expected.features["rated"]["weight"][row]
    counts = np.zeros(len(row), np.int64)
    for block in read_blocks(sampled, "train"):
        number = sorted(expected.ends).index("rated")
        np.add.at(counts, block.positions[number] - row[0], 1)
    rng, theirs = np.random.default_rng(0), np.zeros(len(row), np.int64)
    for _ in range(REPEATS):
        theirs[rng.choice(len(row), 10, replace=False, p=weights / weights.sum())] += 1
    assert counts.sum() == theirs.sum() == 10 * REPEATS
    by_rating = [(counts[weights == rating].sum(), theirs[weights == rating].sum()) for rating in range(1, 6)]
    statistic = sum((a - b) ** 2 / (a + b) for a, b in by_rating if a + b)
    probability = float(chi2.sf(statistic, len(by_rating) - 1))
    every = float(chi2.sf(((counts - theirs) ** 2 / np.maximum(counts + theirs, 1)).sum(), len(row) - 1))
    assert min(probability, every) > 1e-4, (probability, every)
    mean = float((counts * weights).sum() / counts.sum())
    assert mean > weights.mean()
    print(f"MovieLens-100K: {REPEATS} weighted draws of 10 of {len(row)} movies as NumPy's: p = {every:.2f}, by rating "
          f"{probability:.2f}; mean rating {mean:.2f}, of all {weights.mean():.2f}")  # fmt: skip
