"""Slices of time: those of edges, the chain of their factors against its joint distribution, and a planted drift."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superworkflow.flows import load_superworkflow
from superworkflow.flows.ratings import READ
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import build_request
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.bptf import STAGE as BPTF
from superworkflow.tasks.bptf.posterior import draw_chain, draw_slices
from superworkflow.tasks.bptf.program import BptfParams, finish, report
from superworkflow.tasks.bptf.results import slice_factors
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.publish_latent_factors import STAGE as PUBLISH
from superworkflow.tasks.score_ratings import STAGE as SCORE
from superworkflow.tasks.time_slices import STAGE as SLICES
from superworkflow.tasks.time_slices.run import arc_times, slice_starts, slices_of
from tests.tasks.index_helpers import run_stage

Row = tuple[int, int, float, int]


def test_times_of_arcs() -> None:
    """The latest of each edge's rows, in both directions; rows without an edge are nothing."""
    rng = np.random.default_rng(0)
    pairs = {(u, v) for u, v in rng.integers(0, 12, (60, 2)).tolist() if u != v}
    both = sorted(pairs | {(v, u) for u, v in pairs})
    indptr = np.searchsorted([u for u, _ in both], np.arange(13))
    source, target, time = rng.integers(0, 12, (2, 300)), None, rng.integers(-5, 99, 300)
    source, target = source
    found = arc_times(indptr, np.array([v for _, v in both], np.int32), (source, target, time))
    rows = list(zip(source.tolist(), target.tolist(), time.tolist(), strict=True))
    for (u, v), each in zip(both, found.tolist(), strict=True):
        own = [t for a, b, t in rows if (a, b) in ((u, v), (v, u))]
        assert each == (max(own) if own else np.iinfo(np.int64).min)
    assert not len(arc_times(np.zeros(4, np.int64), np.empty(0, np.int32), (source % 3, target % 3, time)))


def test_slices_have_as_many_times() -> None:
    times = np.random.default_rng(1).permutation(1000) * 7 - 50
    starts = slice_starts(times, 8)
    numbers = slices_of(times, starts)
    np.testing.assert_array_equal(np.bincount(numbers), np.full(8, 125))
    assert all(times[numbers == k].max() < times[numbers == k + 1].min() for k in range(7))
    np.testing.assert_array_equal(slices_of(np.array([-999, starts[0] - 1, starts[0], 99_999]), starts), [0, 0, 1, 7])
    assert slice_starts(np.array([5, 5, 5, 9]), 4).tolist() == [9]
    assert slice_starts(np.array([5, 5]), 3).tolist() == []


def test_the_chain_is_drawn_from_its_joint_distribution() -> None:
    """Many sweeps over 3 slices have the mean and the covariance of the normal distribution of all their factors."""
    rng = np.random.default_rng(2)
    slices, size, precision = 3, 2, 1.7
    design = rng.normal(size=(slices, 4, size))
    ratings = rng.normal(size=(slices, 4))
    root = rng.normal(size=(size, size))
    mean, steps = np.array([0.5, -1.0]), root @ root.T + np.eye(size)
    products = np.einsum("kna,knb->kab", design, design)
    sums = np.einsum("kn,kna->ka", ratings, design)
    joint = np.zeros((slices, size, slices, size))
    for k in range(slices):
        joint[k, :, k] = precision * products[k] + steps * (1 if k == slices - 1 else 2)
        if k:
            joint[k, :, k - 1] = joint[k - 1, :, k] = -steps
    right = precision * sums
    right[0] += steps @ mean
    covariance = np.linalg.inv(joint.reshape(slices * size, -1))
    expected = (covariance @ right.ravel()).reshape(slices, size)
    factors, drawn = np.ones((slices, size)), []
    for number in range(12_000):
        factors = draw_slices(factors, (mean, steps), sums, np.tril(products), precision, rng)
        if number >= 100:
            drawn.append(factors.ravel())
    np.testing.assert_allclose(np.mean(drawn, axis=0), expected.ravel(), atol=0.03)
    np.testing.assert_allclose(np.cov(np.array(drawn).T), covariance, atol=0.03 * covariance.max())


def test_steps_between_slices_are_drawn_from_their_distribution() -> None:
    """Their precision has the mean of its Wishart posterior, and the first mean that of Student's t."""
    rng = np.random.default_rng(3)
    factors = np.cumsum(rng.normal(0, 0.5, (40, 2)), axis=0)
    drawn = [draw_chain(factors, rng) for _ in range(4000)]
    change, first = np.diff(factors, axis=0), factors[0] - 1
    inverse = np.eye(2) + change.T @ change + 2 / 3 * np.outer(first, first)
    precision = np.array([each[1] for each in drawn])
    np.testing.assert_allclose(precision.mean(axis=0), 42 * np.linalg.inv(inverse), atol=0.15)
    means = np.array([each[0] for each in drawn])
    np.testing.assert_allclose(means.mean(axis=0), (2 + factors[0]) / 3, atol=0.03)
    np.testing.assert_allclose(np.cov(means.T), inverse / (3 * (42 - 3)), atol=0.02)


def test_products_are_average_predictions() -> None:
    rng, params = np.random.default_rng(4), BptfParams(factors=2, draws=4, slices=3)
    drawn, times = rng.normal(size=(5, 4 * 2)).astype(np.float32), rng.normal(size=(4, 3, 2))
    fields = {"drawn": drawn, "side": np.array([0, 0, 0, 1, 1]), "mean": np.full(5, 3.5), "deviation": np.full(5, 1.2)}
    rows = finish(fields, params)["factor"]
    found = report({"model": [9.0, 8.0, *times.ravel()], "rmse": 1.0}, params)
    assert found["model"] == [9.0, 8.0]
    draws = drawn.reshape(5, 4, 2)
    expected = 3.5 + 1.2 * np.einsum("usk,isk,stk->uit", draws[:3], draws[3:], times) / 4
    made = np.einsum("ud,id,td->uit", rows[:3], rows[3:], np.array(found["slice_factors"]))
    np.testing.assert_allclose(made, expected, rtol=1e-5)


def drifting(count: int) -> list[Row]:
    """Ratings by users and items of two factors, the first of which turns its sign in the course of time."""
    rng = np.random.default_rng(5)
    users, items = rng.normal(size=(600, 2)), rng.normal(size=(50, 2))
    cells = rng.choice(600 * 50, count, replace=False)
    times = rng.integers(0, 1000, count)
    turned = np.stack([np.cos(0.8 * np.pi * times / 1000), np.ones(count)], axis=1)
    clean = (users[cells // 50] * items[cells % 50] * turned).sum(axis=1)
    ratings = 30 + 2 * (clean + rng.normal(0, 0.3, count))
    return [(c // 50, c % 50, round(r, 3), 1_100_000_000 + t)
            for c, r, t in zip(cells.tolist(), ratings.tolist(), times.tolist(), strict=True)]  # fmt: skip


def write(rows: list[Row], path: Path) -> str:
    path.write_text("user,item,rating,when\n" + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))
    return str(path)


PARAMS: dict[str, Any] = {"factors": 4, "max_steps": 60, "burn_in": 20, "draws": 20}


def scored(rows: list[Row], tests: list[Row], folder: Path, slices: int, cpu: int = 1) -> tuple[Dataset, Dataset]:
    """Datasets of the program and of its figures."""
    folder.mkdir()
    reading, edges = {"time": "when"}, write(rows, folder / "r.csv")
    graph = run_stage(READ, reading, {"edges": edges}, folder / "index")
    inputs = {"graph": graph.uri, "colours": run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colours").uri}
    divided: dict[str, str] = {}
    if slices > 1:
        made = run_stage(SLICES, reading | {"slices": slices}, {"graph": graph.uri, "edges": edges}, folder / "slices")
        inputs["arcs"] = divided["slices"] = made.uri
    values = run_stage(BPTF, {**PARAMS, "slices": slices}, inputs, folder / "bptf", cpu)
    given = {"graph": graph.uri, "values": values.uri, **divided}
    run_stage(PUBLISH, {}, given, folder / "published")
    return values, run_stage(SCORE, reading, {**given, "test": write(tests, folder / "t.csv")}, folder / "score")


@pytest.mark.slow
def test_a_planted_drift(tmp_path: Path) -> None:
    """Ratings with noise 0.6 are predicted within little more by ten slices, and not without; threads change no bit."""
    rows = drifting(16_000)
    rows, tests = rows[:14_000], rows[14_000:]
    (one, timed), (two, _), (_, plain) = (
        scored(rows, tests, tmp_path / f"{slices}-{cpu}", slices, cpu) for slices, cpu in ((10, 1), (10, 2), (1, 1))
    )
    assert timed.stats["metrics.rmse@test"] < 0.75 < 1.2 < plain.stats["metrics.rmse@test"]
    factors = slice_factors(one)
    assert factors is not None
    assert factors.shape == (10, 81)
    for name in ("factor-00000.npy", "globals.json"):
        assert one.local(name).read_bytes() == two.local(name).read_bytes()
    assert timed.table("predictions.parquet")["time"].to_pylist() == [t for *_, t in tests]
    starts = Dataset.open(tmp_path / "10-1" / "published").table("slices.parquet")["start"].to_pylist()
    assert starts[0] is None
    assert starts[1:] == pytest.approx(1_100_000_000 + np.arange(100, 1000, 100), abs=15)
    late = [row for row in tests if row[3] >= starts[-1]]
    model = load(tmp_path / "10-1" / "published")
    import pandas as pd

    found = model.predict(pd.DataFrame({"user": [str(u) for u, *_ in late], "item": [str(i) for _, i, *_ in late]}), {})
    assert np.sqrt(np.mean((found["rating"] - [r for *_, r, _ in late]) ** 2)) < 0.9


def test_what_is_refused(tmp_path: Path) -> None:
    rows = [(u, i, 1.0 + (u + i) % 5, 1_100_000_000 + (u > 3)) for u in range(8) for i in range(6)]
    edges = write(rows, tmp_path / "r.csv")
    graph = run_stage(READ, {"time": "when"}, {"edges": edges}, tmp_path / "index")
    with pytest.raises(UserError, match=r"bptf\.slices: .* too many are equal.*got 3.\. Set 2 or fewer"):
        run_stage(SLICES, {"time": "when", "slices": 3}, {"graph": graph.uri, "edges": edges}, tmp_path / "s")
    other = write(rows[:-1], tmp_path / "other.csv")
    with pytest.raises(UserError, match=r"other\.csv: an edge of the graph has no row"):
        run_stage(SLICES, {"time": "when", "slices": 2}, {"graph": graph.uri, "edges": other}, tmp_path / "s")
    (tmp_path / "wrong.csv").write_text(Path(edges).read_text() + "1,2,3.0,soon\n")
    with pytest.raises(UserError, match=r"wrong\.csv, column when: the time is neither a number nor a date .*soon"):
        run_stage(SLICES, {"time": "when", "slices": 2}, {"graph": graph.uri, "edges": str(tmp_path / "wrong.csv")},
                  tmp_path / "s", log=io.StringIO())  # fmt: skip


@pytest.mark.parametrize(
    ("head", "time", "why"),
    [
        ("user,item,rating", "", r"t\.csv: held-out ratings need times .*, or set bptf\.slices=1"),
        ("user,item,rating,when", ",2024-05-01", r"t\.csv: .* of another kind .*got '1 in a second, and 0'"),
    ],
)
def test_held_out_ratings_without_fitting_times_are_refused_before_anything_runs(
    tmp_path: Path, head: str, time: str, why: str
) -> None:
    (tmp_path / "t.csv").write_text(f"{head}\n" + "".join(f"u{k},i{k % 3},{k % 5}{time}\n" for k in range(9)))
    edges = write([(u, i, 1.0 + (u + i) % 5, 10 + u) for u in range(8) for i in range(6)], tmp_path / "r.csv")
    with pytest.raises(UserError, match=why):
        build_request(load_superworkflow("bptf"), sources={"edges": edges, "test": str(tmp_path / "t.csv")},
                      assignments=["bptf.slices=2", "index.time=when"], store=str(tmp_path / "store"))  # fmt: skip
