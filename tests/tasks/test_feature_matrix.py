"""Stage feature_matrix: which columns of a schema's tables are features, their scaling, and what is warned about."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import load_stage
from superworkflow.tasks.feature_matrix import STAGE
from superworkflow.tasks.heterograph.column_doubts import doubt_of
from superworkflow.tasks.lib.gnn.features import columns_of, features_of, scaling_of
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage
from tests.tasks.test_gnn_quality import write_edges

NODES = 40


def schema_columns() -> dict:
    rng = np.random.default_rng(8)
    ages = rng.integers(18, 80, NODES)
    ages[:2] = 30  # not all different
    return {
        "age": ages, "active": rng.random(NODES) < 0.5, "size": rng.normal(size=NODES).astype(np.float32),
        "words": rng.integers(0, 3, (NODES, 3)), "kind": np.arange(NODES) % 3, "split": np.arange(NODES) % 3,
        "account": rng.permutation(NODES) + 7000, "region_id": np.arange(NODES) % 4,
        "town": rng.permutation(NODES) * 999,
        "joined": 1_600_000_000 + rng.integers(0, 10**7, NODES), "time": np.arange(NODES) % 20,
        "year": 1990 + np.arange(NODES) % 20,
        "uuid": [f"n{i}" for i in range(NODES)], "train_mask": np.arange(NODES) % 2 == 0,
    }  # fmt: skip


def graph_of(folder: Path, columns: dict) -> Dataset:
    ids = [f"v{i:02}" for i in range(NODES)]
    return write_heterograph(
        folder, {"user": Nodes(ids, columns), "town": Nodes(["t"])},
        {"knows": Edges("user", "user", [(ids[i], ids[(i * 7 + 3) % NODES]) for i in range(NODES)])},
    )  # fmt: skip


def made(graph: Dataset, folder: Path, params: dict | None = None, **more: str) -> HeteroGraph:
    given = {"graph": graph.uri, **more}
    return HeteroGraph.open(run_stage(STAGE, {"label": "user.kind", **(params or {})}, given, folder))


def test_single_numbers_are_features_and_labels_ids_and_times_are_not(tmp_path):
    columns = schema_columns()
    graph = made(graph_of(tmp_path / "graph", columns), tmp_path / "made", {"scaling": "none"})
    read = ["active", "age", "size", "town", "words", "year"]
    assert columns_of(graph, "user") == tuple((name, 3 if name == "words" else 1) for name in read)
    assert np.array_equal(features_of(graph, "user"), np.column_stack([columns[name] for name in read]).astype("f4"))
    assert features_of(graph, "town") is None
    assert graph.dataset.stats["values.nodes.user"] == 8
    assert graph.node_feature("user", "kind").tolist() == columns["kind"].tolist()
    assert graph.node_feature("user", "uuid").to_pylist() == [name.encode() for name in columns["uuid"]]
    warned = " ".join(str(value) for key, value in graph.dataset.stats.items() if key.startswith("input_warning"))
    for words in (
        "column user.account: a column of whole numbers that are all different", "got 7000 to 7039",
        "Set heterograph.take=user.account", "column user.region_id: a column of ids", "got 0 to 3",
        "different, as ids are, is read as a feature (got 0 to 38961). Set heterograph.leave_out=user.town",
        "column user.joined: a column of Unix times", "got 2020-09-", "column user.time: a column of times",
        "to leave it out if they are ids", "column user.year: a column of years is read as a feature (got 1990",
        "column user.uuid: a column of ids",
    ):  # fmt: skip
        assert words in warned
    assert not any(f"user.{name}:" in warned for name in ("active", "age", "size", "words", "kind", "split"))


def test_texts_and_missing_values_are_those_of_a_table_of_features(tmp_path):
    """Texts become categories or numbers; decimals may be missing; what is neither is named."""
    columns = {
        "colour": ["red", "green", "NA", "red"] * (NODES // 4), "size": ["3", "", "5", "null"] * (NODES // 4),
        "price": np.array([1, np.nan, 2, 3], np.float32)[np.arange(NODES) % 4], "kind": ["a", "b"] * (NODES // 2),
        "born": [f"2001-01-{1 + i % 9:02}" for i in range(NODES)], "empty": [""] * NODES, "nan": np.full(NODES, np.nan),
        "vip": ["yes", "", "yes", ""] * (NODES // 4),
        "mixed": ["1", "2", "3", "unknown"] * (NODES // 4), "photo": [bytes([255, i]) for i in range(NODES)],
    }  # fmt: skip
    graph = made(graph_of(tmp_path / "graph", columns), tmp_path / "made", {"scaling": "none"})
    assert columns_of(graph, "user") == (("colour", 2), ("price", 1), ("size", 1), ("vip", 1))
    rows = [[0, 1, 1, 3, 1], [1, 0, 2, 4, 0], [1 / 3, 2 / 3, 2, 5, 1], [0, 1, 3, 4, 0]]
    assert np.allclose(features_of(graph, "user")[:4], rows)
    assert scaling_of(graph, "user")["categories"] == {"colour": ["green", "red"]}
    warned = " ".join(str(value) for key, value in graph.dataset.stats.items() if key.startswith("input_warning"))
    for words in (
        "column user.born: a column of dates", "column empty: a column without values", "(got 1, 2, …)",
        "column nan: a column without values",
        "60 values of features are missing; they are the means of their columns, or 0 where all others are the same",
        "(got colour: 10, price: 10, size: 20, …)",
    ):  # fmt: skip
        assert words in warned
    assert "kind" not in warned
    network = run_stage(
        load_stage("train"), {"label": "user.kind", "epochs": 1, "hidden": 4, "fanouts": "5,5"},
        {"graph": str(tmp_path / "made")}, tmp_path / "network",
    )  # fmt: skip
    others = {"colour": ["blue", "red"] * (NODES // 2), "size": ["7", "9"] * (NODES // 2), "price": columns["price"],
              "vip": ["", "yes"] * (NODES // 2)}  # fmt: skip
    other = made(graph_of(tmp_path / "others", others), tmp_path / "found", network=network.uri)
    assert columns_of(other, "user") == columns_of(graph, "user")
    assert np.allclose(features_of(other, "user")[:2], [[1 / 3, 2 / 3, 1, 7, 0], [0, 1, 2, 9, 1]])  # blue is missing
    with pytest.raises(UserError, match=r"feature price of a node is not a finite number"):
        made(graph_of(tmp_path / "bad", {**columns, "price": np.full(NODES, np.inf)}), tmp_path / "no")


def test_whole_numbers_of_text_may_have_a_plus() -> None:
    assert doubt_of("degrees", pa.array(["+5", "-3", "4.0", "+5"])) is None
    assert str(doubt_of("year", pa.array(["+2001", "1999"]))).count("1999 to 2001") == 1


def test_parameters_take_columns_and_leave_them_out(tmp_path):
    given = graph_of(tmp_path / "graph", schema_columns())
    params = {"take": "user.time, user.region_id", "leave_out": "user.words, user.year", "label": "user.active"}
    graph = made(given, tmp_path / "made", params)
    assert [name for name, _ in columns_of(graph, "user")] == ["age", "kind", "region_id", "size", "time", "town"]
    with pytest.raises(UserError, match=r"heterograph.take.*'user.nme'") as refused:
        made(given, tmp_path / "other", {"take": "user.nme"})
    assert "user.age" in str(refused.value)


def test_features_are_scaled_and_a_network_scales_another_graph(tmp_path):
    columns = schema_columns()
    graph = made(graph_of(tmp_path / "graph", columns), tmp_path / "made")
    ages = columns["age"].astype(float)
    assert scaling_of(graph, "user")["kind"] == "standard"
    assert np.allclose(features_of(graph, "user")[:, 1], (ages - ages.mean()) / ages.std(), atol=1e-5)
    params = {"label": "user.kind", "epochs": 1, "hidden": 4, "fanouts": "5,5"}
    network = run_stage(load_stage("train"), params, {"graph": str(tmp_path / "made")}, tmp_path / "network")
    others = {**columns, "age": columns["age"] + 100, "height": columns["size"]}
    other = graph_of(tmp_path / "others", {name: values for name, values in others.items() if name != "kind"})
    found = made(other, tmp_path / "found", network=network.uri)
    assert columns_of(found, "user") == columns_of(graph, "user")
    assert np.allclose(features_of(found, "user")[:, 1], (ages + 100 - ages.mean()) / ages.std(), atol=1e-4)


def test_a_feature_that_gives_away_the_label_is_named(tmp_path):
    columns = {"kind": np.arange(NODES) % 3, "code": np.array([7.5, 1, 3], np.float32)[np.arange(NODES) % 3]}
    graph = made(graph_of(tmp_path / "graph", columns), tmp_path / "made")
    assert "gives away the label" in graph.dataset.stats["input_warning.1"]
    assert "(got code)" in graph.dataset.stats["input_warning.1"]


def test_cora_as_a_table_of_numbers(shared_data, tmp_path):
    """1,433 columns of 0 and 1 become the matrix that a file of features becomes."""
    folder = tmp_path / "cora"
    given = write_edges(shared_data / "planetoid", "cora", folder)  # its features are replaced
    papers = pq.read_table(folder / "paper.parquet")
    words = np.array(papers["feat"].to_pylist()) > 0
    split = dict(line.split(",") for line in (folder / "seeds.csv").read_text().splitlines()[1:])
    table = {f"w{i:04}": words[:, i].astype(np.int64) for i in range(words.shape[1])}
    pq.write_table(pa.table({"node": papers["id"], **table}), folder / "features.parquet")
    splits = pa.array([split.get(str(paper), "") for paper in papers["id"].to_pylist()])
    pq.write_table(
        pa.table({"id": papers["id"], "label": papers["label"], "split": splits, **table}), folder / "paper.parquet"
    )
    entries = "".join(f'features {{ key: "{name}" value {{ dtype: DT_INT64 }} }}\n' for name in (*table, "label"))
    (folder / "schema.pbtxt").write_text(
        f'node_sets {{ key: "paper" value {{ metadata {{ filename: "paper.parquet" }}\n{entries}'
        'features { key: "split" value { dtype: DT_STRING } } } }\n'
        'edge_sets { key: "cites" value { source: "paper" target: "paper" metadata { filename: "cites.parquet" } } }\n'
    )
    listed = HeteroGraph.open(run_stage(load_stage("heterograph"), {}, given, tmp_path / "listed"))
    run_stage(load_stage("heterograph"), {}, {"graph": str(folder)}, tmp_path / "typed")
    inputs = {"graph": str(tmp_path / "typed")}
    typed = HeteroGraph.open(run_stage(STAGE, {"label": "paper.label"}, inputs, tmp_path / "matrix"))
    assert np.array_equal(features_of(typed, "paper"), features_of(listed, "node"))
    assert scaling_of(typed, "paper")["kind"] == "row"
