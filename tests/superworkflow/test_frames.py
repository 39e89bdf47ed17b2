"""Sources in memory: each form gives the same table, and equal values one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from superworkflow import UserError
from superworkflow.flows import load_superworkflow
from superworkflow.frames import content_of, source_uri
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.interface import given_sources
from superworkflow.tasks.lib.graph.schema import read_schema

ENDS = np.array([[0, 1], [1, 2], [2, 0], [3, 1], [4, 3]])
WEIGHTS = np.array([1.0, 0.5, 2.0, 4.0, 0.25])


def _graph(weighted: bool) -> nx.Graph[Any]:
    graph = nx.DiGraph()
    for (first, second), weight in zip(ENDS.tolist(), WEIGHTS.tolist(), strict=True):
        graph.add_edge(first, second, **({"weight": weight} if weighted else {}))
    return graph


def _duckdb() -> Any:
    import duckdb

    rows = ", ".join(f"({first}, {second})" for first, second in ENDS.tolist())
    return duckdb.sql(f"SELECT * FROM (VALUES {rows}) AS edges(source, target)")


FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(ENDS, columns=["source", "target"]),
    "filtered pandas": lambda: pd.DataFrame(np.repeat(ENDS, 2, 0), columns=["source", "target"])[::2],
    "categories": lambda: pd.DataFrame(ENDS, columns=["source", "target"]).astype("category"),
    "Arrow": lambda: pa.table({"source": ENDS[:, 0], "target": ENDS[:, 1]}),
    "DuckDB": _duckdb,
    "columns": lambda: {"source": ENDS[:, 0].tolist(), "target": ENDS[:, 1]},
    "columns of pandas": lambda: {"source": pd.Series(ENDS[:, 0]), "target": pd.Series(ENDS[:, 1])},
    "columns of Arrow": lambda: {"source": pa.array(ENDS[:, 0]), "target": pa.array(ENDS[:, 1])},
    "array": lambda: ENDS,
    "array of floats": lambda: ENDS.astype(float),
    "edge index": lambda: ENDS.T,
    "PyG": lambda: SimpleNamespace(edge_index=__import__("torch").from_numpy(ENDS.T)),
    "NetworkX": lambda: _graph(weighted=False),
}
WEIGHTED: dict[str, Callable[[], Any]] = {
    "array": lambda: np.column_stack([ENDS, WEIGHTS]),
    "SciPy": lambda: sp.csr_array((WEIGHTS, ENDS.T), shape=(5, 5)),
    "NetworkX": lambda: _graph(weighted=True),
}


def _table(name: str, value: Any) -> pa.Table:
    return content_of(load_superworkflow("gnn"), name, value)[0]


def _is_directed(value: Any) -> bool:
    return "directed" in content_of(load_superworkflow("gnn"), "edges", value)[1]


def _uri(value: Any, store: Store) -> str:
    return source_uri(load_superworkflow("gnn"), "edges", value, store)[0]


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_edges(form: str) -> None:
    table = _table("edges", FORMS[form]())
    assert table.column_names == ["source", "target"]
    assert _rows(table) == sorted(map(tuple, ENDS.tolist()))


@pytest.mark.parametrize("form", WEIGHTED)
def test_weighted_edges(form: str) -> None:
    table = _table("edges", WEIGHTED[form]())
    assert table.column_names == ["source", "target", "weight"]
    assert _rows(table) == sorted((*ends, weight) for ends, weight in zip(ENDS.tolist(), WEIGHTS, strict=True))


def test_other_libraries() -> None:
    igraph, polars = pytest.importorskip("igraph"), pytest.importorskip("polars")
    graph = igraph.Graph(ENDS.tolist(), directed=True)
    graph.es["weight"] = WEIGHTS.tolist()
    assert _rows(_table("edges", graph)) == _rows(_table("edges", WEIGHTED["array"]()))
    assert _is_directed(graph)
    frame = polars.DataFrame({"node": ["a", "b"], "label": polars.Series(["x", "y"], dtype=polars.Categorical)})
    assert _table("labels", frame).schema == pa.schema({"node": pa.string(), "label": pa.string()})


def test_dgl(tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    import torch

    single = dgl.graph((torch.from_numpy(ENDS[:, 0]), torch.from_numpy(ENDS[:, 1])))
    assert _rows(_table("edges", single)) == _rows(_table("edges", FORMS["array"]()))
    single.edata["weight"] = torch.from_numpy(WEIGHTS)
    assert _rows(_table("edges", single)) == _rows(_table("edges", WEIGHTED["array"]()))
    ends = (torch.tensor([0, 1]), torch.tensor([1, 2]))
    several = dgl.heterograph({("paper", "cites", "paper"): ends, ("author", "writes", "paper"): ends})
    several.nodes["paper"].data["x"] = torch.ones(3, 2)
    with pytest.raises(UserError, match="several types of edges"):
        _table("edges", several)
    uri, _ = source_uri(load_superworkflow("gnn"), "graph", several, Store(tmp_path / "store"))
    schema = read_schema(Path(uri).read_text(), uri)
    assert [(each.name, each.shape) for each in schema.node_sets["paper"].features] == [("x", (2,))]
    assert set(schema.edge_sets) == {"cites", "writes"}


def test_names_of_nodes() -> None:
    graph = nx.Graph([("a", "b"), ("b", 3)])
    assert _rows(_table("edges", graph)) == [("a", "b"), ("b", "3")]
    assert not _is_directed(graph)
    assert _is_directed(_graph(weighted=False))
    assert not _is_directed(FORMS["PyG"]())


def test_nodes_of_graphs_are_kept_apart() -> None:
    """`1` and `"1"` became one node."""
    with pytest.raises(UserError, match=r"two nodes have one name as text \(got '1'\)"):
        _table("edges", nx.Graph([(1, "a"), ("1", "a")]))


def test_nodes_without_edges() -> None:
    """They were left out: a graph had fewer components than NetworkX counts."""
    graph = nx.Graph([(0, 1), (1, 2)])
    graph.add_nodes_from([3, 4])
    assert _rows(_table("edges", graph))[2:] == [(3, 3), (4, 4)]
    graph[0][1]["weight"], graph[1][2]["weight"] = 2.0, 0.5
    assert _rows(_table("edges", graph)) == [(0, 1, 2.0), (1, 2, 0.5), (3, 3, 1.0), (4, 4, 1.0)]


@pytest.mark.parametrize("edges", [2, 3])
def test_few_edges_of_pyg(edges: int) -> None:
    """An `edge_index` of 3 edges was read as 2 edges with weights, one of 2 edges as its transpose."""
    ends = np.arange(edges + 1)
    data = SimpleNamespace(edge_index=np.stack([ends[:-1], ends[1:]]), edge_weight=ends[1:] / 2, num_nodes=edges + 2)
    alone = (edges + 1, edges + 1, 1.0)
    assert _rows(_table("edges", data)) == [*zip(ends[:-1], ends[1:], ends[1:] / 2, strict=True), alone]


def test_matrices_that_are_not_square() -> None:
    """Row 1 and column 1 are two nodes: the names of the columns make stages warn."""
    assert _table("edges", sp.csr_array([[0, 1, 0], [0, 0, 1]])).column_names == ["row_id", "column_id", "weight"]


def test_flags_are_keywords(store: Store) -> None:
    """A flag counts more than the direction of the graph, and a parameter more than the flag."""
    gnn, graph = load_superworkflow("gnn"), _graph(weighted=False)
    for params, flags, expected in (
        ({}, {}, True),
        ({}, {"directed": False}, False),
        ({"heterograph.directed": True}, {"directed": False}, True),
    ):
        assert given_sources(gnn, {"edges": graph, **flags}, params, store)[1]["heterograph"]["directed"] is expected
    assert given_sources(gnn, {"label": "paper.venue"}, {}, store) == ({}, {"train": {"label": "paper.venue"}})


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a folder that nobody can write")
def test_a_store_that_cannot_be_written() -> None:
    """It was an error of the operating system's."""
    with pytest.raises(UserError, match=r"/sys/store: cannot be opened or written: .*permissions and free space"):
        _uri(FORMS["pandas"](), Store("/sys/store"))


@pytest.mark.parametrize("ids", [[1, "b"], [2**70, 3]])
def test_ids_that_make_no_column(ids: list[Any], store: Store) -> None:
    """Errors of Arrow's, and of Python's, came through."""
    with pytest.raises(UserError, match="edges: columns make no table"):
        _uri(pd.DataFrame({"source": ids, "target": ids}), store)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series({"a": "x", "b": "y"}),
        pd.Series({"a": "x", "b": "y"}, name="label"),
        {"a": "x", "b": "y"},
        pd.DataFrame({"node": ["a", "b"], "label": ["x", "y"]}).set_index("node"),
    ],
)
def test_labels(labels: Any) -> None:
    table = _table("labels", labels)
    assert table.column_names == ["node", "label"]
    assert _rows(table) == [("a", "x"), ("b", "y")]


def test_missing_labels() -> None:
    """NaN among texts is how pandas has them; it was an error."""
    given = {"a": "x", "b": float("nan"), "c": "y"}
    for labels in (given, pd.Series(given), pd.Series(given).astype("category"), pd.Series(given, dtype="string")):
        assert _table("labels", labels)["label"].to_pylist() == ["x", None, "y"]


@pytest.mark.parametrize("shape", [(1, 1), (5, 4), (3, 1)])
def test_a_row_for_each_node(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(shape[0]).integers(-2, 3, shape).astype(np.float32)
    table = _table("features", matrix)
    assert table.column_names == ["node", *(f"feature_{place}" for place in range(matrix.shape[1]))]
    assert np.array_equal(np.column_stack(table.columns[1:]), matrix)
    assert table["node"].to_pylist() == list(range(len(matrix)))
    sparse = _table("features", sp.coo_array(matrix)) if matrix.any() else None
    if sparse is not None:
        back = sp.coo_array((sparse["value"], (sparse["node"], sparse["column"])), shape=matrix.shape)
        assert np.array_equal(back.toarray(), matrix)


def test_lattices(store: Store) -> None:
    volume = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    uri, flags = source_uri(load_superworkflow("bp"), "lattice", volume, store)
    assert flags == ()
    with Location.of(uri).open() as stream:
        assert np.array_equal(np.load(stream), volume)


def test_tensors() -> None:
    import torch

    assert _table("labels", torch.tensor([2, 0])).to_pydict() == {"node": [0, 1], "label": [2, 0]}


def test_equal_values_are_one_file(store: Store) -> None:
    uris = {_uri(FORMS[form](), store) for form in ("pandas", "Arrow", "categories", "array")}
    assert len(uris) == 1
    other = _uri(ENDS[::-1].copy(), store)
    assert other not in uris
    for uri, count in ((*uris, 5), (other, 5)):
        with Location.of(uri).open() as stream:
            assert pq.read_table(stream).num_rows == count
    assert sorted(store.root.join("frames").walk_files()) == sorted(Location.of(uri).name for uri in (*uris, other))
    assert _uri("s3://bucket/edges.csv", store) == "s3://bucket/edges.csv"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("edges", 3, "edges: is no source (got 'int')"),
        ("edges", np.zeros((4, 5)), "edges: is of another shape (got '[4, 5]'). Give [edges, 2], [edges, 3]"),
        ("edges", np.array([[0.5, 1.0]]), "numbers of nodes are not whole"),
        ("edges", {"source": pd.Series([1, 2]), "target": [1]}, "edges: columns make no table (got 'Column 1 named t"),
        ("edges", np.zeros((0, 2)), "edges: has no row"),
        ("features", np.zeros((2, 2, 2)), "features: is of another shape (got '[2, 2, 2]')"),
        ("labels", nx.Graph([(0, 1)]), "labels: is no source (got 'Graph')"),
        ("labels", np.zeros((2, 2)), "labels: is of another shape (got '[2, 2]'). Give [nodes]"),
        ("edges", pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns have one name (got 'a')"),
        ("edges", pa.table([[1], [2]], names=["a", "a"]), "two columns have one name (got 'a')"),
    ],
)
def test_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        _table(name, value)
    assert message in str(refused.value)


def test_typed_tables_are_a_folder_with_a_schema(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    papers = pd.DataFrame({"id": ["a", "b"], "year": [2001, 2002]})
    cites = {"source": ["a"], "target": ["b"], "weight": [0.5]}
    given = {"paper": papers, ("paper", "cites", "paper"): cites, ("author", "writes", "paper"): cites}
    uri, _ = source_uri(load_superworkflow("gnn"), "graph", given, store)
    schema = read_schema(Path(uri).read_text(), uri)
    assert list(schema.node_sets) == ["paper", "author"]
    assert [(each.name, each.dtype) for each in schema.node_sets["paper"].features] == [("year", "int64")]
    assert schema.edge_sets["writes"].source == "author"
    assert [each.name for each in schema.edge_sets["cites"].features] == ["weight"]
    table = pq.read_table(Path(uri).parent / schema.node_sets["paper"].metadata.filename)
    assert table.to_pydict() == papers.to_dict("list")
    assert source_uri(load_superworkflow("gnn"), "graph", dict(given), store)[0] == uri
    for wrong in ({"paper": papers}, {**given, 3: papers}):
        with pytest.raises(UserError, match="is no typed graph"):
            source_uri(load_superworkflow("gnn"), "graph", wrong, store)


def test_a_set_with_the_rows_of_another_turned_is_its_reverse(tmp_path: Path) -> None:
    """Links that are held out of the one are then held out of the other."""
    likes = pd.DataFrame({"source": ["u", "v", "u"], "target": ["i", "i", "j"], "stars": [1.0, 2.0, 3.0]})
    turned = likes.rename(columns={"source": "target", "target": "source"})[::-1]
    given = {
        ("user", "likes", "item"): likes, ("item", "rev_likes", "user"): turned,
        ("item", "bought_by", "user"): turned[1:], ("item", "seen_by", "user"): turned.assign(source="i"),
    }  # fmt: skip
    uri, _ = source_uri(load_superworkflow("gnn"), "graph", given, Store(tmp_path / "store"))
    sets = read_schema(Path(uri).read_text(), uri).edge_sets
    assert {name for name, each in sets.items() if ("edge_type", "reversed") in each.metadata.extra} == {"rev_likes"}
    assert sets["rev_likes"].metadata.filename == sets["likes"].metadata.filename
    assert (sets["rev_likes"].source, sets["rev_likes"].target) == ("item", "user")


def test_heterodata(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["paper"].x, data["paper"].y = torch.ones(3, 2), torch.tensor([0, 1, 1])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["author", "cites", "paper"].edge_index = torch.tensor([[0, 0], [1, 2]])
    data["author"].num_nodes = 1
    uri, _ = source_uri(load_superworkflow("gnn"), "graph", data, Store(tmp_path / "store"))
    schema = read_schema(Path(uri).read_text(), uri)
    assert [(each.name, each.shape) for each in schema.node_sets["paper"].features] == [("x", (2,)), ("y", ())]
    assert set(schema.edge_sets) == {"paper_cites_paper", "author_cites_paper"}
