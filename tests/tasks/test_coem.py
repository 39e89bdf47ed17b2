"""CoEM against the fixed point of its linear equations, with ids that both sides share."""

import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from superworkflow.flows import load_superworkflow
from superworkflow.tasks.coem import STAGE as COEM
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.publish_fields import STAGE as PUBLISH
from superworkflow.tasks.vertex_fields import STAGE as FIELDS
from tests.tasks.index_helpers import run_stage

SIDE = 60


def test_equals_the_fixed_point(tmp_path: Path) -> None:
    """Nouns 0 to 59, contexts 0 to 59, how often they occur together; nouns 0 to 5 are seeds of two classes."""
    found = load_superworkflow("coem")
    read, *_ = found.stages
    assert [stage.name for stage in found.stages] == ["index", "colour", "vertex_fields", "coem", "publish_fields"]
    rng = np.random.default_rng(2)
    counts = sp.random_array((SIDE, SIDE), density=0.08, rng=rng, data_sampler=lambda size: rng.integers(1, 9, size))
    counts = counts.toarray() + np.eye(SIDE) + np.roll(np.eye(SIDE), 1, axis=1)
    pairs = "".join(f"{n},{c},{counts[n, c]}\n" for n, c in zip(*counts.nonzero(), strict=True))
    (tmp_path / "e.csv").write_text("noun,context,weight\n" + pairs)
    seeds = {noun: noun % 2 for noun in range(6)}
    (tmp_path / "v.csv").write_text("node,label\n" + "".join(f"noun:{n},{'ab'[k]}\n" for n, k in seeds.items()))
    graph = run_stage(read, {}, {"edges": str(tmp_path / "e.csv")}, tmp_path / "i")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "c")
    table = run_stage(FIELDS, {}, {"graph": graph.uri, "table": str(tmp_path / "v.csv")}, tmp_path / "f")
    inputs = {"graph": graph.uri, "colours": colours.uri, "table": table.uri}
    values = run_stage(COEM, {"threshold": 1e-14}, inputs, tmp_path / "v", 1, io.StringIO())
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "p")
    assert colours.stats["colours"] == 2

    whole = np.block([[np.zeros((SIDE, SIDE)), counts], [counts.T, np.zeros((SIDE, SIDE))]])
    step = whole / whole.sum(axis=1, keepdims=True)
    fixed = np.zeros((2 * SIDE, 2))
    fixed[list(seeds), list(seeds.values())] = 1
    step[list(seeds)] = 0
    expected = spsolve(sp.csc_array(np.eye(2 * SIDE) - step), fixed)
    usual = np.delete(expected, list(seeds), axis=0).mean(axis=0)
    rows = made.table("vertices.parquet").to_pylist()
    for row in rows:
        side, _, number = row["node"].partition(":")
        share = expected[int(number) + SIDE * (side == "context")]
        np.testing.assert_allclose(row["share"], share, atol=1e-8)
        is_seed = row["label"] is not None
        assert row["predicted"] == (row["label"] if is_seed else "ab"[int(np.argmax(share - usual))])
    assert len(rows) == 2 * SIDE


def test_few_seeds_in_a_large_graph(tmp_path: Path) -> None:
    """Shares are nearly the same everywhere, and the class of most is right nevertheless; names need no prefix."""
    rng, nouns, words = np.random.default_rng(0), 600, 300
    topic = np.arange(nouns) % 3
    common = rng.integers(0, words, (nouns, 4))
    own = rng.integers(0, words // 6, (nouns, 4)) + topic[:, None] * (words // 6)
    pairs = "".join(f"n{n},w{w},1\n" for n in range(nouns) for w in {*common[n].tolist(), *own[n].tolist()})
    (tmp_path / "e.csv").write_text("noun,context,weight\n" + pairs)
    seeds = {n: n % 3 for n in (*range(12), 13, 16, 19, 22)}  # 4, 8 and 4
    (tmp_path / "v.csv").write_text("node,label\n" + "".join(f"n{n},{'abc'[k]}\n" for n, k in seeds.items()))
    graph = run_stage(load_superworkflow("coem").stages[0], {}, {"edges": str(tmp_path / "e.csv")}, tmp_path / "i")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "c")
    table = run_stage(FIELDS, {}, {"graph": graph.uri, "table": str(tmp_path / "v.csv")}, tmp_path / "f")
    inputs = {"graph": graph.uri, "colours": colours.uri, "table": table.uri}
    values = run_stage(COEM, {}, inputs, tmp_path / "v", 1, io.StringIO())
    made = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, tmp_path / "p")
    every = made.table("vertices.parquet").to_pylist()
    rows = [row for row in every if row["node"].startswith("noun:") and row["label"] is None]
    truth = ["abc"[topic[int(row["node"][6:])]] for row in rows]
    largest = ["abc"[int(np.argmax(row["share"]))] for row in rows]
    assert np.mean([found == wanted for found, wanted in zip(largest, truth, strict=True)]) < 0.5
    assert np.mean([row["predicted"] == wanted for row, wanted in zip(rows, truth, strict=True)]) > 0.65
