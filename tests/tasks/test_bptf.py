"""Bayesian factorization: each draw against its distribution in closed form, and predictions on held-out ratings."""

import csv
import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from superworkflow.flows import load_superworkflow
from superworkflow.flows.ratings import READ
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.bptf import STAGE as BPTF
from superworkflow.tasks.bptf.posterior import draw_side
from superworkflow.tasks.bptf.program import PROGRAM, BptfParams, finish
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.lib.vertex.program import Sync
from superworkflow.tasks.lib.vertex.run import ChromaticEngine, Coloured
from superworkflow.tasks.lib.vertex.stage import whole_field
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.publish_latent_factors import STAGE as PUBLISH
from superworkflow.tasks.score_ratings import STAGE as SCORE
from tests.tasks.index_helpers import run_stage

USERS, ITEMS, SIZE = 4000, 5, 3
COMPILED = {"factors": 2, "draws": 10}
"""Sizes that a kernel is compiled for, once for all tests that do not depend on them."""
MOVIELENS = Path(os.environ.get("SUPERWORKFLOW_TEST_DATA", "none")) / "ml-100k" / "ml-100k.inter"


def alike() -> Coloured:
    """Users who all rate 3 of 5 items, with the same ratings; users are the first colour."""
    ratings = np.zeros((USERS, ITEMS))
    ratings[:, :3] = [1.0, 4.0, 5.0]
    ratings[: USERS // 2, 3:] = [2.0, 3.0]
    whole = sp.csr_array(sp.block_array([[None, ratings], [ratings.T, None]]))
    side = np.repeat(np.array([0, 1], np.int32), [USERS, ITEMS])
    order = np.arange(USERS + ITEMS, dtype=np.int32)
    return Coloured(
        whole.indptr.astype(np.int64), whole.indices.astype(np.int32), whole.data.astype(np.float32), order,
        np.array([0, USERS, USERS + ITEMS]), given={"side": side},
        rows={"slice": (np.zeros(USERS + ITEMS + 1, np.int64), np.empty(0, np.int32))},
    )  # fmt: skip


def nothing(scope: Any, params: Any) -> None:
    scope.mean = 0.0


def test_users_are_drawn_from_their_distribution() -> None:
    """Those with the same ratings have the same normal distribution given the items."""
    params, graph, models = BptfParams(factors=SIZE, max_steps=2, burn_in=1, draws=1), alike(), []
    sync = PROGRAM.syncs["model"]

    def noted(totals: Any, run: Any) -> Any:
        assert sync.finalize is not None
        models.append(sync.finalize(totals, run))
        return models[-1]

    noting = dataclasses.replace(
        PROGRAM, syncs={"model": Sync(sync.fold, finalize=noted, length=sync.length, size=sync.size)}
    )
    one = params.model_copy(update={"max_steps": 1, "burn_in": 0})
    begun = ChromaticEngine(dataclasses.replace(noting, update=nothing), one, graph).run().fields["factor"]
    models.clear()
    made = ChromaticEngine(noting, one, graph).run().fields["factor"]
    mean, deviation, alpha = models[0][:3]
    given = np.concatenate([np.tile([1, 4, 5], USERS), np.tile([2, 3], USERS // 2)])
    np.testing.assert_allclose([mean, deviation, alpha], [given.mean(), given.std(), 1.0], rtol=1e-9)
    prior, precision = models[0][4 : 4 + SIZE], models[0][4 + SIZE : 4 + SIZE + SIZE**2].reshape(SIZE, SIZE)
    near = begun[USERS : USERS + 3].astype(float)
    right = alpha * near.T @ ((np.array([1, 4, 5]) - mean) / deviation) + precision @ prior
    covariance = np.linalg.inv(precision + alpha * near.T @ near)
    drawn = made[USERS // 2 : USERS].astype(float)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (drawn - covariance @ right).T)
    assert np.abs(white.mean(axis=1)).max() < 5 / np.sqrt(USERS / 2)
    assert np.abs(np.cov(white) - np.eye(SIZE)).max() < 8 / np.sqrt(USERS / 2)
    assert np.abs((white**4).mean() - 3) < 0.4


def test_precision_is_drawn_from_its_distribution() -> None:
    """Means of draws are those of the Gaussian-Wishart posterior."""
    rng = np.random.default_rng(0)
    factors = rng.normal([1, -2, 0], [1, 0.5, 2], (30, SIZE))
    products = np.tril(factors.T @ factors)
    drawn = np.array([draw_side(30, factors.sum(axis=0), products, rng) for _ in range(4000)])
    mean = factors.mean(axis=0)
    inverse = np.eye(SIZE) + 30 * np.cov(factors.T, bias=True) + 2 * 30 / 32 * np.outer(mean, mean)
    expected = (SIZE + 30) * np.linalg.inv(inverse)
    precision = drawn[:, SIZE:].reshape(-1, SIZE, SIZE)
    np.testing.assert_allclose(precision.mean(axis=0), expected, atol=6 * precision.std(axis=0).max() / np.sqrt(4000))
    np.testing.assert_allclose(precision, precision.transpose(0, 2, 1))
    np.testing.assert_allclose(drawn[:, :SIZE].mean(axis=0), 30 * mean / 32, atol=0.03)
    # The covariance of the mean is that of Student's t: the inverse of the mean precision over 32 and its moments.
    spread = inverse / (32 * (SIZE + 30 - SIZE - 1))
    np.testing.assert_allclose(np.cov(drawn[:, :SIZE].T), spread, atol=0.15 * spread.max())


def test_products_are_average_predictions() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=(5, 4 * 2)).astype(np.float32)
    fields = {"drawn": drawn, "side": np.array([0, 0, 0, 1, 1]), "mean": np.full(5, 3.5), "deviation": np.full(5, 1.2)}
    rows = finish(fields, BptfParams(factors=2, draws=4))["factor"]
    draws = drawn.reshape(5, 4, 2)
    expected = 3.5 + 1.2 * np.einsum("usk,isk->ui", draws[:3], draws[3:]) / 4
    np.testing.assert_allclose(rows[:3] @ rows[3:].T, expected, rtol=1e-5)


def write(rows: list[tuple[str, str, float]], path: Path) -> str:
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rows))
    return str(path)


def scored(rows: list[Any], tests: list[Any], folder: Path, cpu: int = 1, **params: Any) -> tuple[Dataset, Dataset]:
    """Datasets of the program and of its figures."""
    folder.mkdir()
    graph = run_stage(READ, {}, {"edges": write(rows, folder / "r.csv")}, folder / "index")
    colours = run_stage(COLOUR, {}, {"graph": graph.uri}, folder / "colours")
    values = run_stage(BPTF, params, {"graph": graph.uri, "colours": colours.uri}, folder / "bptf", cpu)
    run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder / "published")
    inputs = {"graph": graph.uri, "values": values.uri, "test": write(tests, folder / "t.csv")}
    return values, run_stage(SCORE, {}, inputs, folder / "score")


def test_predictions_and_threads(tmp_path: Path) -> None:
    """Ratings of rank 2 with noise 0.3, on a scale of tens, are predicted within little more; threads change no bit."""
    rng = np.random.default_rng(2)
    users, items = rng.normal(size=(5_000, 2)), rng.normal(size=(60, 2))
    cells = rng.choice(5_000 * 60, 60_000, replace=False)
    rows = [
        (str(c // 60), str(c % 60), round(300 + 10 * (users[c // 60] @ items[c % 60] + rng.normal(0, 0.3)), 3))
        for c in cells.tolist()
    ]
    params = {**COMPILED, "max_steps": 60, "burn_in": 20}
    one, figures = scored(rows[:50_000], rows[50_000:], tmp_path / "1", 1, **params)
    two, _ = scored(rows[:50_000], rows[50_000:], tmp_path / "2", 2, **params)
    other, _ = scored(rows[:50_000], rows[50_000:], tmp_path / "3", 1, seed=1, **params)
    files = [each.files("factor-*.npy") for each in (one, two, other)]
    made = [b"".join(d.array(f).tobytes() for f in fs) for d, fs in zip((one, two, other), files, strict=True)]
    assert made[0] == made[1] != made[2]
    assert 3.0 < figures.stats["metrics.rmse@test"] < 3.7
    assert figures.stats["metrics.mean_rmse@test"] > 10


@pytest.mark.slow
def test_a_verified_run(tmp_path: Path) -> None:
    rows = [(str(u), str(i), float((u * i) % 5 + 1)) for u in range(20) for i in range(6) if (u + i) % 3]
    params = {**COMPILED, "max_steps": 14, "burn_in": 2}
    (plain, _), (verified, _) = (
        scored(rows, rows[:9], tmp_path / str(verify), verify=verify, **params) for verify in (False, True)
    )
    assert plain.array("factor-00000.npy").tobytes() == verified.array("factor-00000.npy").tobytes()


def test_equal_ratings(tmp_path: Path) -> None:
    """They have no deviation by which they could be divided."""
    rows = [(str(u), str(i), 4.0) for u in range(20) for i in range(6)]
    values, _ = scored(rows, rows[:9], tmp_path / "r", max_steps=40, burn_in=10, **COMPILED)
    factor = values.array("factor-00000.npy")
    items = factor[:, 0] == 1
    products = factor[~items] @ factor[items].T
    assert products.shape == (20, 6)
    np.testing.assert_allclose(products, 4, atol=0.5)


def test_the_model_predicts_and_recommends(tmp_path: Path) -> None:
    """Users like items of their own parity, which is what the model says of pairs that nobody has rated."""
    rows = [(str(u), str(i), 5.0 - 4 * ((u + i) % 2)) for u in range(30) for i in range(20) if u != i]
    scored(rows, rows[:9], tmp_path / "r", max_steps=60, burn_in=20, **COMPILED)
    model = load(tmp_path / "r" / "published")
    questions = pd.DataFrame([{"user": "3", "item": "3"}, {"user": "3", "item": "8"}, {"user": "3", "item": "77"}])
    found = model.predict(questions, {"task": "rating"})
    assert found["rating"][0] > 4
    assert found["rating"][1] < 2
    assert "node '77' is not among" in found["error"][2]
    best = model.predict(pd.DataFrame({"user": ["4"]}), {"task": "recommendations", "k": 1})
    assert best["items"][0] == ["4"]


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="fewer draws come after burn_in than are kept"):
        parse_params(BptfParams, {"max_steps": 60, "burn_in": 20, "draws": 41}, "bptf")


def test_superworkflow() -> None:
    stages = [stage.name for stage in load_superworkflow("bptf").stages]
    assert stages == ["index", "colour", "time_slices", "bptf", "publish_latent_factors", "recommend", "score_ratings"]


@pytest.mark.slow
@pytest.mark.skipif(not MOVIELENS.is_file(), reason="needs ml-100k.inter")
def test_movielens(tmp_path: Path) -> None:
    with MOVIELENS.open(newline="") as stream:
        rows = [(user, item, float(rating)) for user, item, rating, _ in list(csv.reader(stream, delimiter="\t"))[1:]]
    random.Random(0).shuffle(rows)
    values, figures = scored(rows[20_000:], rows[:20_000], tmp_path / "ml")
    assert figures.stats["metrics.rmse@test"] < 0.91
    assert whole_field(Dataset.open(tmp_path / "ml" / "index"), values, "factor").shape == (2625, 801)
