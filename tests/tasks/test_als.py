"""Alternating least squares against SciPy's normal equations, its figures against NumPy's, and what is refused."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from superworkflow.__main__ import main
from superworkflow.flows import load_superworkflow
from superworkflow.flows.ratings import READ
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.als import STAGE as ALS
from superworkflow.tasks.colour import STAGE as COLOUR
from superworkflow.tasks.index import STAGE as INDEX
from superworkflow.tasks.lib.vertex.stage import whole_field
from superworkflow.tasks.pagerank import STAGE as PAGERANK
from superworkflow.tasks.publish.serving import load
from superworkflow.tasks.publish_latent_factors import STAGE as PUBLISH
from superworkflow.tasks.publish_latent_factors.model import card
from superworkflow.tasks.recommend import STAGE as RECOMMEND
from superworkflow.tasks.score_ratings import STAGE as SCORE
from superworkflow.tasks.walk import STAGE as WALK
from tests.tasks.index_helpers import run_stage

FACTORS, LAMBDA = 3, 0.07
Rows = list[tuple[int, int, float]]


def write(rows: Rows, path: Path) -> str:
    path.write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rows))
    return str(path)


def ratings(users: int, items: int, count: int) -> Rows:
    """Ratings 1 to 5 in halves; ids of both sides begin at 0."""
    rng = np.random.default_rng(1)
    cells = rng.choice(users * items, count, replace=False)
    return [
        (int(c) // items, int(c) % items, float(r) / 2) for c, r in zip(cells, rng.integers(2, 11, count), strict=True)
    ]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return ratings(6_000, 40, 30_000)


@pytest.fixture(scope="module")
def graph(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    folder = tmp_path_factory.mktemp("ratings")
    made = run_stage(READ, {}, {"edges": write(rows, folder / "r.csv")}, folder / "index")
    return made, run_stage(COLOUR, {}, {"graph": made.uri}, folder / "colour")


def run_als(graph: tuple[Dataset, Dataset], folder: Path, cpu: int = 1, **params: object) -> Dataset:
    inputs = {"graph": graph[0].uri, "colours": graph[1].uri}
    params = {"factors": FACTORS, "regularization": LAMBDA, **params}
    return run_stage(ALS, params, inputs, folder, cpu, io.StringIO())


@pytest.fixture(scope="module")
def values(graph: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Factors after two steps."""
    return run_als(graph, tmp_path_factory.mktemp("als") / "made", max_steps=2)


def tables(graph: Dataset, values: Dataset, folder: Path) -> list[np.ndarray]:
    """Published factors of users and items, [id, factors + 2]; NaN of ids without ratings."""
    made, found = run_stage(PUBLISH, {}, {"graph": graph.uri, "values": values.uri}, folder), []
    for name, size in (("users", 6_000), ("items", 40)):
        table = made.table(f"{name}.parquet")
        factors = np.full((size, FACTORS + 2), np.nan)
        factors[table["node"].cast("int64").to_numpy()] = np.array(table["factor"].to_pylist())
        found.append(factors)
    return found


def solved(rows: Rows, others: np.ndarray, size: int, own: int) -> np.ndarray:
    """Factors of one side by the normal equations in float64, from those of the other."""
    data, found = np.array(sorted(rows, key=lambda row: row[own])), np.full((size, FACTORS + 2), np.nan)
    mean, deviation = data[:, 2].mean(), data[:, 2].std()
    bias = FACTORS + own  # column of the own bias; that of the others comes before or after it
    shifts = (mean * own, mean * (1 - own))
    vertices, begins = np.unique(data[:, own].astype(int), return_index=True)
    for vertex, mine in zip(vertices, np.split(data, begins[1:]), strict=True):
        other = others[mine[:, 1 - own].astype(int)]
        near = np.column_stack([other[:, :FACTORS] / np.sqrt(deviation), np.ones(len(mine))])
        wanted = (mine[:, 2] - mean - (other[:, FACTORS + 1 - own] - shifts[0])) / deviation
        solution = np.linalg.solve(near.T @ near + LAMBDA * len(mine) * np.eye(FACTORS + 1), near.T @ wanted)
        found[vertex, :FACTORS] = solution[:FACTORS] * np.sqrt(deviation)
        found[vertex, bias], found[vertex, FACTORS + 1 - own] = solution[FACTORS] * deviation + shifts[1], 1.0
    return found


@pytest.mark.slow
def test_half_sweeps_solve_the_normal_equations(
    rows: Rows, graph: tuple[Dataset, Dataset], values: Dataset, tmp_path: Path
) -> None:
    two, three = values, run_als(graph, tmp_path / "3", max_steps=3)
    users, items = tables(graph[0], two, tmp_path / "p2")
    later, _ = tables(graph[0], three, tmp_path / "p3")
    np.testing.assert_allclose(items, solved(rows, users, 40, 1), atol=1e-5)
    np.testing.assert_allclose(later, solved(rows, items, 6_000, 0), atol=1e-5)
    assert np.nanmax(np.abs(later - users)) > 1e-3
    errors = [np.sqrt(np.mean([(users[u] @ items[i] - r) ** 2 for u, i, r in rows]))]
    traced = two.table("trace.parquet")["rmse"].to_pylist()
    assert traced[-1] == pytest.approx(errors[0], rel=1e-6)
    assert traced[-1] < traced[0]


def test_threads_change_no_bit(graph: tuple[Dataset, Dataset], values: Dataset, tmp_path: Path) -> None:
    one, two = values, run_als(graph, tmp_path / "2", 2, max_steps=2)
    found = [whole_field(graph[0], each, "factor") for each in (one, two)]
    assert found[0].tobytes() == found[1].tobytes()
    assert graph[1].stats["colours"] == 2


def test_figures_on_held_out_ratings(
    rows: Rows, graph: tuple[Dataset, Dataset], values: Dataset, tmp_path: Path
) -> None:
    users, items = tables(graph[0], values, tmp_path / "p")
    data = np.array(rows)
    test: Rows = [(u, (i + 1) % 40, 6 - r) for u, i, r in rows[:500]]
    test += [(9_999, 1, 2.0), (rows[0][0], 77, 4.0)]
    inputs = {"graph": graph[0].uri, "values": values.uri, "test": write(test, tmp_path / "t.csv")}
    log = io.StringIO()
    scored = run_stage(SCORE, {}, inputs, tmp_path / "score", 1, log)
    mean, wanted = data[:, 2].mean(), np.array([r for _, _, r in test])
    inside = [np.clip(users[u] @ items[i], 1, 5) for u, i, _ in test[:500]]
    of_items = [data[data[:, 1] == i, 2].mean() if i < 40 else mean for _, i, _ in test]
    bias = damped_biases(rows)
    by_biases = np.clip([mean + bias[0].get(u, 0.0) + bias[1].get(i, 0.0) for u, i, _ in test], 1, 5)
    expected = {
        "": np.array([*inside, *by_biases[500:]]), "mean_": np.full(502, mean), "item_mean_": np.array(of_items),
        "biases_": by_biases,
    }  # fmt: skip
    for method, predicted in expected.items():
        error = predicted - wanted
        assert scored.stats[f"metrics.{method}rmse@test"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
        assert scored.stats[f"metrics.{method}mae@test"] == pytest.approx(np.abs(error).mean(), rel=1e-6)
    assert scored.stats["unknown_rows"] == 2
    assert "2 held-out ratings are of a user or an item without others" in log.getvalue()
    assert scored.stats["metrics.rmse@test"] > scored.stats["metrics.mean_rmse@test"]
    assert "rmse@test: ratings are predicted better without factors" in log.getvalue()


def damped_biases(rows: Rows) -> list[dict[int, float]]:
    """Biases of users and of items: each is the sum of what the mean and the other bias leave, by 5 more ratings."""
    mean, found = np.mean([r for *_, r in rows]), [{u: 0.0 for u, *_ in rows}, {i: 0.0 for _, i, _ in rows}]
    for _ in range(30):
        for own in (0, 1):
            rests: dict[int, list[float]] = {}
            for row in rows:
                rests.setdefault(int(row[own]), []).append(row[2] - mean - found[1 - own][int(row[1 - own])])
            found[own] = {vertex: sum(each) / (5 + len(each)) for vertex, each in rests.items()}
    return found


@pytest.mark.parametrize(("scale", "shift"), [(20.0, 0.0), (1.0, -3.0), (0.25, -0.25)])
def test_predictions_do_not_depend_on_the_scale(scale: float, shift: float, tmp_path: Path) -> None:
    """Ratings of up to 100, of either sign or of 0 to 1 are predicted as those of 1 to 5 are."""
    given, found = ratings(300, 40, 3_000), []
    for name, a, b in (("plain", 1.0, 0.0), ("other", scale, shift)):
        edges = write([(u, i, a * r + b) for u, i, r in given], tmp_path / f"{name}.csv")
        graph = run_stage(READ, {}, {"edges": edges}, tmp_path / f"{name}-graph")
        colours = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / f"{name}-colours")
        made = run_als((graph, colours), tmp_path / f"{name}-als", max_steps=5)
        users, items = tables(graph, made, tmp_path / f"{name}-tables")
        found.append((np.array([users[u] @ items[i] for u, i, _ in given]) - b) / a)
    np.testing.assert_allclose(found[0], found[1], atol=2e-5)


def test_held_out_ratings_as_parquet(
    graph: tuple[Dataset, Dataset], values: Dataset, rows: Rows, tmp_path: Path
) -> None:
    columns = list(zip(*rows[:200], strict=True))
    pq.write_table(pa.table(list(map(pa.array, columns)), ["user", "item", "rating"]), tmp_path / "t.parquet")
    names = (str(tmp_path / "t.parquet"), write(rows[:200], tmp_path / "t.csv"))
    scored = [
        run_stage(SCORE, {}, {"graph": graph[0].uri, "values": values.uri, "test": name}, tmp_path / f"score{i}", 1)
        for i, name in enumerate(names)
    ]
    assert scored[0].stats["metrics.rmse@test"] == scored[1].stats["metrics.rmse@test"]


def test_pairs_that_an_earlier_model_has_learned_do_not_judge(
    graph: tuple[Dataset, Dataset], values: Dataset, rows: Rows, tmp_path: Path
) -> None:
    """The earlier graph names its users otherwise, and has pairs of its own, in whatever order."""
    test = rows[:300]
    (tmp_path / "seen.csv").write_text("customer,item,rating\n" + "".join(f"{u},{i},1\n" for u, i, _ in test[100:]))
    seen = run_stage(READ, {}, {"edges": str(tmp_path / "seen.csv")}, tmp_path / "seen")
    assert seen.stats["source_prefix"] != graph[0].stats["source_prefix"]
    files = {name: write(part, tmp_path / f"{name}.csv") for name, part in (("all", test), ("unseen", test[:100]))}
    inputs = {"graph": graph[0].uri, "values": values.uri}
    left = run_stage(SCORE, {}, {**inputs, "test": files["all"], "seen": seen.uri}, tmp_path / "left")
    same = run_stage(SCORE, {}, {**inputs, "test": files["unseen"]}, tmp_path / "same")
    assert left.table("predictions.parquet").equals(same.table("predictions.parquet"))
    assert left.stats["rows"] == 100
    with pytest.raises(UserError, match="earlier model has learned from all held-out ratings"):
        run_stage(SCORE, {}, {**inputs, "test": files["all"], "seen": graph[0].uri}, tmp_path / "none")


def test_the_model_in_use_is_judged_by_tonights_ratings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings of another scale: errors of the two nights are no measure, as those on the same ratings are."""
    for variable in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    first = ratings(60, 20, 700)
    for night, held in enumerate((first, [(u, i, 2 * r) for u, i, r in first])):
        edges = write(held[:600], tmp_path / f"r{night}.csv")
        test = write(held[600:], tmp_path / f"t{night}.csv")
        given = ["run", "als", "--edges", edges, "--test", test, "--store", str(tmp_path / "store"), "--set",
                 "als.max_steps=3", "--register", "ratings", "--json"]  # fmt: skip
        assert main(given) == 0
        found = json.loads(capsys.readouterr().out)
    (decision,) = found["promotion"]
    assert (decision["verdict"], decision["champion"], decision["basis"]) == ("promoted", 1, "rescored")
    assert decision["champion_quality"] > 1.3 * decision["quality"]


def signed(rows: Rows) -> Rows:
    """Ratings -2 to 3, so also 0, of the same order."""
    return [(u, i, 2 * r - 4.0 if r < 2 else r - 2) for u, i, r in rows]


@pytest.mark.parametrize("engine", ["compiled", "relational"])
@pytest.mark.parametrize("form", ["r.csv", "timed.csv", "r.parquet"])
def test_ratings_of_either_sign(rows: Rows, tmp_path: Path, form: str, engine: str) -> None:
    """They are weights as they are, whatever reads them; other programs and walks refuse them."""
    given, path = signed(rows[:3_000]), tmp_path / form
    table = pa.table(list(map(pa.array, zip(*given, strict=True))), ["user", "item", "rating"])
    if form == "timed.csv":
        table = table.append_column("time", pa.array(range(1_600_000_000, 1_600_000_000 + len(table))))
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        csv.write_csv(table, path)
    params = {"engine": engine} | ({"from_time": "1600000000"} if form == "timed.csv" else {})
    graph = run_stage(READ, params | {"negative": "keep"}, {"edges": str(path)}, tmp_path / "graph")
    weights = np.sort(graph.array("weights.npy"))
    np.testing.assert_array_equal(weights, np.sort(np.repeat(np.float32([r for *_, r in given]), 2)))
    assert weights[0] < 0 < weights[-1]
    assert (weights == 0).any()
    coloured = run_stage(COLOUR, {}, {"graph": graph.uri}, tmp_path / "colours")
    found = run_als((graph, coloured), tmp_path / "als", max_steps=2)
    users, items = tables(graph, found, tmp_path / "p")
    np.testing.assert_allclose(items, solved(given, users, 40, 1), atol=1e-5)
    inputs = {"graph": graph.uri, "values": found.uri, "test": str(path)}
    scored = run_stage(SCORE, {"negative": "keep"}, inputs, tmp_path / "score")
    assert scored.stats["metrics.rmse@test"] < scored.stats["metrics.mean_rmse@test"]
    with pytest.raises(UserError, match=r"weights\.npy.*positive finite number \(index.negative=keep"):
        run_stage(WALK, {}, {"graph": graph.uri}, tmp_path / "walks")
    with pytest.raises(UserError, match=r"weights\.npy.*positive finite number \(index.negative=keep"):
        run_stage(PAGERANK, {}, {"graph": graph.uri, "colours": coloured.uri}, tmp_path / "ranks")


def by_own(rows: Rows) -> list[list[tuple[int, int, float]]]:
    """Ratings of each user."""
    found: dict[int, list[tuple[int, int, float]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return list(found.values())


def test_the_model_predicts_and_recommends(
    rows: Rows, graph: tuple[Dataset, Dataset], values: Dataset, tmp_path: Path
) -> None:
    users, items = tables(graph[0], values, tmp_path / "p")
    published = Dataset.open(tmp_path / "p")
    described, model = card(published), load(tmp_path / "p")
    user, item, _ = rows[0]
    options = {name: each for name, each in described.options.items() if name != "task"}
    questions = pd.DataFrame([{"user": user, "item": item}, {"user": user, "item": 77}, {"user": None, "item": item}])
    found = model.predict(questions, {**options, "task": "rating"})
    assert found["rating"][0] == pytest.approx(np.clip(users[user] @ items[item], 1, 5), abs=1e-6)
    assert found["rating"][1:].isna().all()
    assert "node '77' is not among the 40 items with ratings" in found["error"][1]
    assert "lacks its user or item" in found["error"][2]
    scores = items @ users[user]
    order = [each for each in np.argsort(-scores) if (user, each) not in {row[:2] for row in rows}]
    best = model.predict(pd.DataFrame({"user": [user, 9_999]}), {"task": "recommendations", "k": 5})
    assert best["items"][0] == [str(each) for each in order[:5]]
    assert best["ratings"][0] == pytest.approx(scores[order[:5]].clip(1, 5), abs=1e-5)
    assert best["items"][1] is None
    everything = model.predict(pd.DataFrame({"user": [user]}), {"task": "recommendations", "k": 99, "rated": True})
    assert everything["items"][0] == [str(each) for each in np.argsort(-scores)]
    assert described.example[0].keys() == {"user", "item"}
    assert model.predict(pd.DataFrame(described.example), described.options)["error"].tolist() == [""]
    table = run_stage(RECOMMEND, {"k": 7}, {"factors": published.uri}, tmp_path / "best").table(
        "recommendations.parquet"
    )
    by_user = table.to_pandas().groupby("user")
    answers = model.predict(pd.DataFrame({"user": list(by_user.groups)}), {"task": "recommendations", "k": 7})
    assert by_user["item"].agg(list).tolist() == answers["items"].tolist()
    np.testing.assert_allclose(table["rating"].to_numpy(), np.concatenate(answers["ratings"].tolist()), atol=1e-5)
    assert by_user["rank"].agg(list).tolist() == [list(range(1, 1 + len(each))) for each in answers["items"]]
    assert len(by_user) == sum(len({row[1] for row in own}) < 40 for own in by_own(rows))
    few = run_stage(RECOMMEND, {"users": 3, "k": 2}, {"factors": published.uri}, tmp_path / "few")
    assert len(few.table("recommendations.parquet")) == few.stats["rows"] == 6
    most = sorted(map(len, by_own(rows)))[-3:]
    chosen = {int(each) for each in few.table("recommendations.parquet")["user"].to_pylist()}
    assert sorted(sum(row[0] == user for row in rows) for user in chosen) == most
    for wrong, message in (({"task": "rank"}, "unknown task"), ({"k": 0}, "1 item or more")):
        with pytest.raises(ValueError, match=message):
            model.predict(questions, wrong)


def test_what_is_refused(graph: tuple[Dataset, Dataset], values: Dataset, tmp_path: Path) -> None:
    plain = run_stage(INDEX, {"weighted": True}, {"edges": write([(1, 2, 3.0)], tmp_path / "p.csv")}, tmp_path / "i")
    colours = run_stage(COLOUR, {}, {"graph": plain.uri}, tmp_path / "c")
    with pytest.raises(UserError, match=r"program als: the program needs a graph of two node sets"):
        run_als((plain, colours), tmp_path / "als")
    twice = write([(1, 2, 3.0), (1, 2, 4.0)], tmp_path / "twice.csv")
    with pytest.raises(UserError, match=r"twice\.csv, line 3: .* .got .1 2, first in line 2"):
        run_stage(READ, {}, {"edges": twice}, tmp_path / "twice")
    wrong = write([(1, 2, 3.0), (1, 3, float("nan"))], tmp_path / "wrong.csv")
    inputs = {"graph": graph[0].uri, "values": values.uri, "test": wrong}
    with pytest.raises(UserError, match=r"wrong\.csv, line 3"):
        run_stage(SCORE, {}, inputs, tmp_path / "score")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    "names",
    [
        "user_id item_id timestamp rating",
        "timestamp item_id user_id rating",
        "user_id:token item_id:token timestamp:float rating:float",
        "item user date score",
    ],
)
def test_columns_are_found_by_what_they_hold(names: str, form: str, tmp_path: Path) -> None:
    """Times are neither ids nor ratings, and users are the first set wherever their column is."""
    held = {"user": [1, 1, 2], "item": [7, 8, 7], "rating": [4.0, 2.0, 5.0], "time": [881250949, 891717742, 878887116]}
    names = names.split()
    kinds = [next((kind for kind in ("user", "item", "time") if kind in name), "rating") for name in names]
    kinds = ["time" if name == "date" else kind for name, kind in zip(names, kinds, strict=True)]
    table, path = pa.table([held[kind] for kind in kinds], names), tmp_path / f"r.{form}"
    (csv.write_csv if form == "csv" else pq.write_table)(table, path)
    graph = run_stage(READ, {}, {"edges": str(path)}, tmp_path / "graph")
    nodes = graph.table("vertices.parquet", ["node"]).column(0).to_pylist()
    assert sorted(nodes)[:2] == [f"{graph.stats['target_prefix']}{item}" for item in (7, 8)]
    assert sorted(nodes)[2:] == [f"{graph.stats['source_prefix']}{user}" for user in (1, 2)]
    assert sorted(set(graph.array("weights.npy").tolist())) == [2.0, 4.0, 5.0]


def test_rows_without_ratings(tmp_path: Path) -> None:
    for name, text in (("named.csv", "user,item\n1,2\n1,3\n"), ("plain.csv", "1,2\n1,3\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=rf"{name}: each row needs a number besides its two nodes"):
            run_stage(READ, {}, {"edges": str(tmp_path / name)}, tmp_path / "graph")


def test_superworkflow() -> None:
    found = load_superworkflow("als")
    assert [stage.name for stage in found.stages] == [
        "index",
        "colour",
        "als",
        "publish_latent_factors",
        "recommend",
        "score_ratings",
    ]
