"""Two sets of nodes whose ids coincide, and rows without an id: the same graph on every engine, as counted by hand."""

import csv
import gzip
import io
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import STAGE as HETEROGRAPH
from superworkflow.tasks.holdout import STAGE as HOLDOUT
from superworkflow.tasks.holdout_links import STAGE as HOLDOUT_LINKS
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.detect import detect
from superworkflow.tasks.lib.edge_list.missing_ids import NAMES
from superworkflow.tasks.lib.gnn import random_streams
from superworkflow.tasks.lib.gnn.objective.link_prediction import LinkPrediction
from superworkflow.tasks.lib.gnn.sampler.negative_sampling import PAIRS
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.metrics.ranks import filtered_ranks
from tests.members import IN_TURN
from tests.tasks.index_helpers import Graph, run_index, run_stage
from tests.tasks.test_index_on_members import make, same

ENGINES = pytest.mark.parametrize("engine", ["compiled", "relational"])
FORMS = ["csv", "quoted.csv", "tsv", "txt.gz", "parquet"]
NONE = ["", None, "  ", *NAMES]
Rows = list[tuple[Any, ...]]


def write(folder: Path, form: str, rows: Rows, names: tuple[str, ...] = ("user_id", "item_id", "weight")) -> Path:
    """A file of rows; of text, None is an empty field."""
    path = folder / f"edges.{form}"
    names = names[: len(rows[0])]
    if form == "parquet":
        pq.write_table(
            pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}), path
        )
        return path
    mark = {"csv": ",", "tsv": "\t", "gz": " "}[form.rpartition(".")[2]]
    quote = '"' if form == "quoted.csv" else ""
    lines = [mark.join(names)] + [
        mark.join([f"{quote}{'' if end is None else end}{quote}" for end in row[:2]] + [str(each) for each in row[2:]])
        for row in rows
    ]
    text = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if form.endswith("gz") else text)
    return path


def expected(rows: Rows, sides: tuple[str, str] | None, drop: bool) -> dict[tuple[str, str], float]:
    """Arcs of the undirected graph, with summed weights, by plain Python."""
    arcs: dict[tuple[str, str], float] = defaultdict(float)
    for source, target, *weight in rows:
        if drop and (source in NONE or target in NONE):
            continue
        one, two = (f"{sides[0]}{source}", f"{sides[1]}{target}") if sides else (source, target)
        if one != two:
            for arc in ((one, two), (two, one)):
                arcs[arc] += weight[0] if weight else 1
    return dict(arcs) if rows and len(rows[0]) == 3 else dict.fromkeys(arcs, 1.0)


def drawn(count: int, weighted: bool, missing: bool, blanks: bool = True) -> Rows:
    """Rows of names that both columns share; whole weights, whose sums are exact."""
    draw = random.Random(count)
    none = [each for each in NONE if blanks or (each or "").strip(" ").removeprefix("#N/A")]

    def name() -> Any:
        return draw.choice(none) if missing and draw.random() < 0.1 else str(int(draw.paretovariate(0.7)) % 90)

    return [(name(), name(), *([draw.randrange(1, 9)] if weighted else [])) for _ in range(count)]


@ENGINES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("bipartite", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_graph_is_that_of_plain_python(
    tmp_path: Path, form: str, bipartite: bool, drop: bool, weighted: bool, engine: str
) -> None:
    rows = drawn(3000, weighted, drop, blanks=form != "txt.gz")
    path = write(tmp_path, form, rows)
    graph = run_index(path, engine, bipartite=bipartite, missing="drop" if drop else "auto")
    arcs = expected(rows, ("user:", "item:") if bipartite else None, drop)
    assert graph.arcs() == arcs
    gone = sum(row[0] in NONE or row[1] in NONE for row in rows)
    assert bool(gone) == drop
    assert graph.stats.get("missing_dropped", 0) == gone
    assert graph.stats["rows_read"] == len(rows) - gone
    nodes = {node for arc in arcs for node in arc}
    loops = {row[0] for row in rows if row[0] == row[1]} - set(NONE) if not bipartite else set()
    assert set(graph.labels) == nodes | loops
    if bipartite:
        assert graph.stats["bipartite"] is True
        assert graph.stats["source_vertices"] == sum(node.startswith("user:") for node in nodes)
        assert graph.stats["self_loops_dropped"] == 0
    else:
        assert "bipartite" not in graph.stats


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(("form", "params"), [
    ("csv", {"bipartite": True, "missing": "drop"}),
    ("quoted.csv", {"bipartite": True, "missing": "drop", "negative": "drop"}),
    ("parquet", {"missing": "drop", "directed": True, "max_degree": 9}),
], ids=["csv", "quoted", "parquet"])  # fmt: skip
def test_tasks_make_the_same_files(tmp_path: Path, form: str, params: dict[str, Any]) -> None:
    rows = drawn(4000, True, True)
    made = same(write(tmp_path, form, rows), tmp_path, **params)
    assert made.stats["missing_dropped"] == sum(row[0] in NONE or row[1] in NONE for row in rows)


def konect(folder: Path, kind: str = "bip unweighted") -> Path:
    path = folder / "out.small"
    path.write_text(f"% {kind}\n% 4 2 3\n1 1 \n1 2 \n2 2 \n2 3 \n")
    return path


@ENGINES
def test_a_bipartite_file_of_konect(tmp_path: Path, engine: str) -> None:
    path, log = konect(tmp_path), io.StringIO()
    graph = run_index(path, engine, log=log)
    assert sorted(graph.labels) == ["left:1", "left:2", "right:1", "right:2", "right:3"]
    assert graph.stats["edges"] == 4
    assert "two sets of nodes, named left:… and right:…" in log.getvalue()
    assert run_index(path, engine, format="whitespace").labels == graph.labels
    assert run_index(path, engine, bipartite=False).stats["vertices"] == 3
    assert run_index(konect(tmp_path, "sym unweighted"), engine).stats["vertices"] == 3


@pytest.mark.usefixtures("in_turn")
def test_konect_in_parts(tmp_path: Path, shared_data: Path) -> None:
    path = tmp_path / "out.crime"
    path.write_bytes((shared_data / "formats" / "out.moreno_crime_crime").read_bytes())
    assert same(path, tmp_path).stats["vertices"] == 1380


@ENGINES
@pytest.mark.parametrize(
    ("name", "params", "found"),
    [
        ("out.moreno_crime_crime", {}, {"vertices": 1380, "edges": 1476, "source_vertices": 829, "rows_read": 1476}),
        (
            "openflights-routes.dat",
            {"source": 3, "target": 5, "missing": "drop"},
            {"missing_dropped": 0, "vertices": 3425, "edges": 19256},
        ),
        ("openflights-routes.dat", {"source": 4, "target": 6, "missing": "drop"}, {"missing_dropped": 423}),
    ],
    ids=["crime", "codes", "numbers"],
)
def test_real_files(tmp_path: Path, shared_data: Path, name: str, params: dict, found: dict, engine: str) -> None:
    path = tmp_path / name
    path.write_bytes((shared_data / "formats" / name).read_bytes())
    stats = run_index(path, engine, **params).stats
    assert {key: stats[key] for key in found} == found
    if found.get("missing_dropped"):
        with path.open(encoding="utf-8") as stream:
            pairs = {frozenset((row[3], row[5])) for row in csv.reader(stream) if "\\N" not in (row[3], row[5])}
        assert stats["edges"] == sum(len(pair) == 2 for pair in pairs)
        assert stats["vertices"] == len(frozenset().union(*pairs))


@ENGINES
@pytest.mark.parametrize(
    ("names", "params", "sides"),
    [
        (("userId", "movieId"), {}, ("user:", "movie:")),
        (("User-ID", "ISBN"), {}, ("User:", "ISBN:")),
        (("customer", "product name"), {}, ("customer:", "product_name:")),
        (("id", "id "), {}, ("left:", "right:")),
        (("user_id", "item_id"), {"source_prefix": "u/"}, ("u/", "item:")),
        (("user_id", "item_id"), {"source_prefix": "u", "target_prefix": "i", "bipartite": "auto"}, ("u", "i")),
    ],
)
def test_names_of_the_sides(
    tmp_path: Path, names: tuple[str, str], params: dict[str, Any], sides: tuple[str, str], engine: str
) -> None:
    path = write(tmp_path, "csv", [("1", "1"), ("2", "1"), ("2", "3")], names)
    graph = run_index(path, engine, **{"bipartite": True, "header": True, **params})
    assert set(graph.labels) == {sides[0] + "1", sides[0] + "2", sides[1] + "1", sides[1] + "3"}


def test_prefixes_that_names_could_share_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [("1", "1"), ("2", "1")])
    for prefixes in (("a", "a"), ("a", "ab"), ("ab", "a"), ("", "b")):
        with pytest.raises(
            UserError, match=r"index.source_prefix, index.target_prefix.*so that their names could be the same"
        ):
            run_index(path, source_prefix=prefixes[0], target_prefix=prefixes[1])
    with pytest.raises(ValidationError, match="bipartite is false"):
        IndexParams(bipartite=False, source_prefix="u")


@ENGINES
def test_directed_and_repeated_rows(tmp_path: Path, engine: str) -> None:
    path = write(tmp_path, "csv", [("1", "2"), ("2", "1"), ("1", "1")])
    graph = run_index(path, engine, bipartite=True, directed=True, duplicates="error")
    assert set(graph.arcs()) == {("user:1", "item:2"), ("user:2", "item:1"), ("user:1", "item:1")}
    path = write(tmp_path, "csv", [("1", "2"), ("2", "1"), ("1", "1"), ("1", "1")])
    with pytest.raises(UserError, match=r"line 5: the edge occurs again.*first in line 4"):
        run_index(path, engine, bipartite=True, duplicates="error")


def warnings(path: Path, **params: object) -> list[str]:
    with path.open("rb") as stream:
        return [str(each) for each in detect(stream, IndexParams(**params), str(path)).warnings]


SHARED = [("1", "1"), ("1", "7"), ("5", "2")]


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("names", "rows", "found"),
    [
        (("user_id", "item_id"), SHARED, "1 to 5 and 1 to 7"),
        (("userId", "movieId"), [("1", "4"), ("9", "5")], "1 to 9 and 4 to 5"),
        (("customer", "product"), SHARED, "1 to 5"),
        (("userid", "bookid"), SHARED, "1 to 5"),
        (("drug_id", "protein_id"), SHARED, "1 to 5"),
        (("author", "paper"), [("x", "y"), ("y", "z")], "'y' in both"),
        (("user_id", "item_id"), [("1", "10"), ("5", "20")], None),
        (("user_id", "item_id"), [("u1", "i1"), ("u2", "i1")], None),
        (("user_id", "friend_id"), SHARED, None),
        (("from_station_id", "to_station_id"), SHARED, None),
        (("citing", "cited"), SHARED, None),
        (("user1_id", "user2_id"), SHARED, None),
        (("protein_a", "protein_b"), SHARED, None),
        (("source", "target"), SHARED, None),
        (("page", "link"), SHARED, None),
    ],
)
def test_two_kinds_of_nodes_are_doubted(
    tmp_path: Path, form: str, names: tuple[str, str], rows: Rows, found: str | None
) -> None:
    path = write(tmp_path, form, rows, names)
    said = warnings(path, header="auto" if form == "parquet" else True)
    if found is None:
        assert said == []
        return
    (warning,) = said
    assert all(word in warning for word in (found, f"columns {names[0]} and {names[1]}", "index.bipartite=true"))
    for bipartite in (True, False):
        assert warnings(path, header="auto" if form == "parquet" else True, bipartite=bipartite) == []


RATINGS = "1\t1\t5\t874965758\n1\t2\t3\t876893171\n2\t1\t4\t888550871\n"


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        (RATINGS, True),
        (RATINGS.replace("\t3\t", "\t3.5\t"), True),
        (RATINGS.replace("\t3\t", "\t-3\t"), False),
        (RATINGS.replace("\t3\t", "\t300\t"), False),
        (RATINGS.replace("\n1\t", "\nu1\t").replace("\n2\t", "\nu2\t").replace("1\t1\t5", "u1\t3\t5"), False),
        ("1 2 5\n2 1 3\n1 3 4\n", False),
    ],
    ids=["stars", "halves", "trust", "counts", "names", "weights"],
)
def test_ratings_without_a_header_are_doubted(tmp_path: Path, text: str, doubted: bool) -> None:
    path = tmp_path / "u.data"
    path.write_text(text)
    said = [each for each in warnings(path) if "index.bipartite=true" in each]
    assert len(said) == doubted
    assert all("1 to 2 and 1 to 2" in each for each in said)
    assert not [each for each in warnings(path, bipartite=False) if "bipartite" in each]


def test_a_header_of_two_kinds_is_found_or_doubted(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("user_id,item_id\nu1,i1\nu2,i1\nu2,i2\n")
    assert run_index(path).labels == ["i1", "u2", "i2", "u1"]
    path.write_text("author,paper\na1,p1\na2,p1\n")
    (warning,) = warnings(path)
    assert all(word in warning for word in ("first row looks like names of columns", "author, paper", "index.header"))
    assert warnings(path, header=True) == warnings(path, header=False) == []
    path.write_text("author,paper\npaper,tree\ntree,author\n")
    assert warnings(path) == []
    path.write_text("order_id,user_id\nuser_id,item_id\nitem_id,order_id\n")
    assert run_index(path).stats["vertices"] == 3


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("country,neighbour\nKenya,Uganda\nUganda,Rwanda\n", True),  # a usual word for an end
        ("iata,state\n" + "".join(f"0{i}M,AK\n" for i in range(5)), True),  # small letters, as no other name is
        ("iata,state\n00M,ak\n01M,tx\n02M,ca\n03M,il\n", False),
        ("iata,state\n00M,AK\n", False),
        ("friend,bob\nbob,eve\neve,friend\n", False),
    ],
)
def test_a_first_row_of_usual_or_other_words_is_doubted(tmp_path: Path, text: str, doubted: bool) -> None:
    path = tmp_path / "g.csv"
    path.write_text(text)
    assert ["first row looks like names of columns" in each for each in warnings(path)] == [True] * doubted


def test_double_colons_are_refused_with_their_command(tmp_path: Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text("1::1193::5::978300760\n1::661::3::978302109\n")
    with pytest.raises(UserError, match=r"sed 's/::/\\t/g' .*ratings.dat > edges.tsv"):
        run_index(path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_missing_ids_are_doubted_until_a_parameter_says_more(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form, [("a", "NULL"), ("b", "NULL"), ("c", "a")], ("source", "target"))
    (warning,) = warnings(path)
    assert "'NULL' in 2 ends" in warning
    assert "index.missing=drop" in warning
    assert warnings(path, missing="keep") == warnings(path, missing="drop") == []


@ENGINES
@pytest.mark.parametrize("form", FORMS)
def test_missing_as_nodes_and_as_errors(tmp_path: Path, form: str, engine: str) -> None:
    path = write(tmp_path, form, [("a", "b"), ("b", "NULL"), ("c", "a")], ("source", "target"))
    assert run_index(path, engine, missing="keep").labels == run_index(path, engine).labels
    assert "NULL" in run_index(path, engine, missing="keep").labels
    with pytest.raises(UserError, match=r"(line 3|row 2): a node has a name of missing values.*index.missing to drop"):
        run_index(path, engine, missing="error")
    if form == "txt.gz":
        return
    path = write(tmp_path, form, [("a", "b"), ("b", None), ("c", "a")], ("source", "target"))
    for missing in ("auto", "keep", "error"):
        with pytest.raises(UserError, match=r"(line 3|row 2): the row has an empty node.*index.missing=drop"):
            run_index(path, engine, missing=missing)
        with pytest.raises(UserError, match=r"(line 3|row 2): the row has an empty node"):
            run_index(path, engine, missing=missing, bipartite=True)


@ENGINES
def test_a_dropped_row_is_not_read_further(tmp_path: Path, engine: str) -> None:
    path, log = tmp_path / "g.csv", io.StringIO()
    path.write_text("source,target,weight\na,b,1\n\\N,b,\\N\nlone,NA,-3\nb,c,2\n")
    graph = run_index(path, engine, missing="drop", log=log)
    assert sorted(graph.labels) == ["a", "b", "c"]
    assert "2 rows without an id are left out" in log.getvalue()
    path.write_text("source,target,weight\na,b,1\nNA\nb,c,2\n")
    with pytest.raises(UserError, match=r"line 3: the row has too few columns"):
        run_index(path, engine, missing="drop")
    path.write_text("source,target,weight\na,b,1\nNA,b,1\nb,c,heavy\n")
    with pytest.raises(UserError, match=r"line 4: the weight is not a positive number"):
        run_index(path, engine, missing="drop")
    path.write_text("source,target\nNA,b\nb,NA\n")
    with pytest.raises(UserError, match="the file has no rows"):
        run_index(path, engine, missing="drop")
    path.write_bytes(b"source,target\na,b\nNA,b\xff\n")
    with pytest.raises(UserError, match="line 3: the text is not UTF-8"):
        run_index(path, engine, missing="drop")


@pytest.mark.usefixtures("in_turn")
def test_errors_in_parts(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [("a", "b"), ("b", "NULL"), ("c", "a")], ("source", "target"))
    with pytest.raises(UserError, match=r"line 3: a node has a name of missing values"):
        make(path, tmp_path / "out", IN_TURN, missing="error")


def pairs_of(graph: Graph, folder: Path, name: str, **params: Any) -> tuple[np.ndarray, dict[str, Any]]:
    held = run_stage(HOLDOUT, params, {"graph": graph.dataset.uri}, folder)
    return held.array(name), dict(held.stats)


@pytest.mark.parametrize("directed", [False, True])
def test_pairs_without_an_edge_are_of_two_sides(tmp_path: Path, shared_data: Path, directed: bool) -> None:
    path = tmp_path / "out.crime"
    path.write_bytes((shared_data / "formats" / "out.moreno_crime_crime").read_bytes())
    graph = run_index(path, directed=directed)
    joined = set(zip(*(side.tolist() for side in graph.matrix().nonzero()), strict=True))
    left = np.array([label.startswith("left:") for label in graph.labels])
    held = run_stage(HOLDOUT, {}, {"graph": graph.dataset.uri}, tmp_path / "held")
    drawn_pairs = np.concatenate([held.array(name) for name in ("negatives.npy", "train_negatives.npy")])
    assert len(np.unique(drawn_pairs, axis=0)) == len(drawn_pairs) > 900
    assert (left[drawn_pairs[:, 0]] != left[drawn_pairs[:, 1]]).all()
    assert left[drawn_pairs[:, 0]].all() or not directed
    assert (drawn_pairs[:, 0] < drawn_pairs[:, 1]).all() or directed
    assert not joined & set(map(tuple, drawn_pairs.tolist()))
    assert held.stats["bipartite"] is True
    assert run_index(path, bipartite=False).stats["vertices"] == 829


def test_pairs_across_the_sides_are_uniform(tmp_path: Path) -> None:
    """Chi-square over 100 splits: each pair of a user and an item without an edge is drawn alike."""
    path = write(tmp_path, "csv", [(str(i), str((i + step) % 6)) for i in range(6) for step in (0, 1, 2)])
    graph = run_index(path, bipartite=True)
    counts = np.zeros((12, 12))
    for seed in range(100):
        pairs, _ = pairs_of(graph, tmp_path / f"h{seed}", "negatives.npy", fraction=0.3, seed=seed, max_pairs=1)
        np.add.at(counts, tuple(pairs.T), 1)
    left = np.array([label.startswith("user:") for label in graph.labels])
    free = np.triu((graph.matrix().toarray() == 0) & (left[:, None] != left), 1)
    assert free.sum() == 18
    assert counts[~free].sum() == 0
    mean = counts[free].mean()
    # 17 degrees of freedom, 99.9% point; without replacement the statistic is smaller.
    assert ((counts[free] - mean) ** 2 / mean).sum() < 40.8


def test_a_complete_bipartite_graph_has_no_pairs_left(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [(str(i), str(j)) for i in range(5) for j in range(5)])
    with pytest.raises(UserError, match=r"too few pairs of vertices of different sides without an edge.*got 0"):
        pairs_of(run_index(path, bipartite=True), tmp_path / "h", "negatives.npy")


def test_typed_graphs_hold_links_out_across_the_sides(tmp_path: Path, shared_data: Path) -> None:
    path = tmp_path / "out.crime"
    path.write_bytes((shared_data / "formats" / "out.moreno_crime_crime").read_bytes())
    whole = run_stage(HETEROGRAPH, {}, {"edges": str(path)}, tmp_path / "graph")
    assert whole.stats["nodes"] == 1380
    assert whole.stats["source_vertices"] == 829
    held = run_stage(HOLDOUT_LINKS, {}, {"graph": whole.uri}, tmp_path / "held")
    graph = HeteroGraph.open(whole)
    left = np.array([name.startswith("left:") for name in graph.ids("node").to_pylist()])
    rows = graph.rows("edge")
    joined = set(zip(np.repeat(np.arange(1380), np.diff(rows.indptr)).tolist(), rows.indices.tolist(), strict=True))
    others = np.concatenate([held.array(f"non-links-{part}.npy") for part in ("validation", "test")])
    assert len(others) == len({tuple(pair) for pair in others.tolist()}) == 73 + 147
    assert (left[others[:, 0]] != left[others[:, 1]]).all()
    assert (others[:, 0] < others[:, 1]).all()
    assert not joined & {tuple(pair) for pair in others.tolist()}
    objective = LinkPrediction(HeteroGraph.open(held), "dot", 4, 3, by=PAIRS, seed=1, batch=100)
    example = objective.example(np.arange(100), (random_streams.TRAINING, 0, 0))
    sources, targets, _, *tiles, wrong = (
        each if each.dtype == bool else example.nodes["node"][each] for each in example.wanted
    )
    assert len(sources) == 100
    assert (left[sources] != left[targets]).all()
    assert wrong.shape == (34, 3, 3)
    assert wrong.mean() < 0.05
    assert left[tiles[0]].all()
    assert not left[tiles[1]].any()


def test_ranks_are_among_the_other_side() -> None:
    sources = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    links, sides = np.array([[0, 2]]), np.array([1, 1, 2, 2], np.int8)
    assert filtered_ranks(sources, sources, links, links, True, sides).tolist() == [2.0]
    assert filtered_ranks(sources, sources, links[:, ::-1], links, True, sides).tolist() == [2.0]
    assert filtered_ranks(sources[::-1], sources[::-1], links, links, True, sides).tolist() == [1.0]


def test_typed_graphs_name_their_own_parameters(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [("1", "NULL"), ("2", "NULL"), ("2", "1"), ("3", "2")])
    made = run_stage(HETEROGRAPH, {}, {"edges": str(path)}, tmp_path / "plain")
    said = [str(text) for name, text in made.stats.items() if "warning" in name]
    assert ["heterograph.missing=drop" in said[0], "heterograph.bipartite=true" in said[1]] == [True, True]
    params = {"missing": "drop", "bipartite": True}
    made = run_stage(HETEROGRAPH, params, {"edges": str(path)}, tmp_path / "settled")
    assert not any("warning" in name for name in made.stats)
    assert made.stats["missing_dropped"] == 2
    assert sorted(HeteroGraph.open(made).ids("node").to_pylist()) == ["item:1", "item:2", "user:2", "user:3"]
    path.write_text("source,target\na,b\n,b\n")
    with pytest.raises(
        UserError, match=r"the row has an empty node.*heterograph.missing=drop to leave such rows out\.$"
    ):
        run_stage(HETEROGRAPH, {}, {"edges": str(path)}, tmp_path / "empty")
