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
    rows = made.table("vertices.parquet").to_pylist()
    for row in rows:
        side, _, number = row["node"].partition(":")
        share = expected[int(number) + SIDE * (side == "context")]
        np.testing.assert_allclose(row["share"], share, atol=1e-8)
        assert row["predicted"] == "ab"[int(np.argmax(share))]
    assert len(rows) == 2 * SIDE
