"""Doubtful edge lists: read with a warning that names the parameter, refused, or read as the parameter says."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.heterograph import STAGE as HETEROGRAPH
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.detect import detect
from tests.members import IN_TURN
from tests.tasks.index_helpers import run_index, run_stage
from tests.tasks.test_index_on_members import make

ENGINES = pytest.mark.parametrize("engine", ["compiled", "relational"])


def warnings(path: Path, **params: object) -> list[str]:
    with path.open("rb") as stream:
        return [str(each) for each in detect(stream, IndexParams(**params), str(path)).warnings]


def counts(path: Path, engine: str = "relational", **params: object) -> tuple[int, int, int]:
    """Rows read, vertices and edges."""
    stats = run_index(path, engine, **params).stats
    return stats["rows_read"], stats["vertices"], stats["edges"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b 1082040961\nb c 1082155839\n", ["column 3", "Unix times", "2004-04-15 to 2004-04-16", "index.weight=3"]),
        ("a b 1082040961000\nb c 1082155839000\n", ["Unix times", "2004-04-15"]),
        ("source,target,at\na,b,1082040961\nb,c,1082155839\n", ["column at", "Unix times", "index.weight=at"]),
        ("a,b,x,-2\nb,c,y,5\n", ["column 4", "-2 to 5", "index.weight=4 and index.negative"]),
        ("source,target,strength\na,b,2\nb,c,7\n", ["column strength", "2 to 7", "index.weight=strength"]),
        ("a b 007\nb c 008\n", ["a column of numbers is not used", "7 to 8"]),
        ("a,\\N\nb,\\N\nc,a\n", ["a name of missing values", "'\\\\N' in 2 ends"]),
        ("source,target\na,NULL\nb,NULL\nc,a\n", ["a name of missing values", "'NULL' in 2 ends"]),
        ("1.0,2.0\n2.0,3.0\n", ["numbers with a point", "astype('int64')"]),
        ("a,1.0\nb,2.0\nc,nan\n", ["numbers with a point", "'1.0'"]),
        ("1.23E+05,a\n4.5e+07,b\na,b\n", ["rounded numbers", "column 1", "'1.23E+05'"]),
        ("100001\t1e+05\n100002\t1e+05\n", ["rounded numbers", "column 2", "R and pandas"]),
        ("0.25,a\n1.5,b\n-.75,c\n", ["fractions are read as nodes", "column 1", "index.source"]),
        ("TP53,2-Mar\nTP53,1-Sep\nBRCA1,TP53\n", ["MAR2", "column 2", "'2-Mar'"]),
        ("gene,x\nSep-01,TP53\nx,gene\n", ["MAR2", "column 1", "'Sep-01'"]),
        ("2020-01-01,a\n2020-01-02,b\n2020-01-02,c\n", ["dates are read as nodes", "column 1", "index.source"]),
        ("2020-01-01T10:00:00Z\ta\n2020-01-02T11:30:00Z\tb\n", ["dates are read as nodes"]),
        ('u,v\na,"[1, 2]"\nb,"[3]"\n', ["a list is read as one node", "column v", "explode"]),
        ("1.0,2\n2,3\n2.0,1.0\n", ["with and without a point are different nodes", "'2.0' and '2'"]),
        ("a,b\n b,c\nc,a\n", ["differ only by blanks", "' b' and 'b'"]),
        ("e\u0301,b\n\u00e9,c\n", ["differ only by Unicode forms"]),
        ('"a" "b"\n"b" "c"\n', ["quotes are part of the names", "index.delimiter=' '"]),
        ("0,a,b\n1,b,c\n2,c,a\n", ["counts the rows", "index.source=2 and index.target=3"]),
        ("#a #b\nb #a\nc #b\n", ["1 lines that look like rows are skipped as comments", "#a #b"]),
        ("source,target,kind\na,b,x\nb,c,y\nc,a,x\n", ["a column of text is not used", "column kind", "x, y"]),
        ("a b x y\nb c 1\nc a\na d\n", ["different numbers of fields", "2 to 4"]),
        ("step,type,who\n1,A,B\n2,A,B\n", ["no usual name for the ends", "step and type", "index.source"]),
        ("node,label\n1,x\n2,y\n3,x\n", ["look like labels of nodes", "node and label", "--labels"]),
        ("".join(f"{n} {n % 4}\n" for n in range(120)), ["look like labels of nodes", "1 and 2"]),
        (
            "".join(f"{1082040961 + n} {n % 7} {n % 5}\n" for n in range(9)),
            ["Unix times are read as nodes", "column 1"],
        ),
        ("".join(f"e{n} {n % 7} {n % 5}\n" for n in range(40)), ["each row has another source", "column 3", "e0, e1"]),
        ("a #x\n#x b\nb a\n", ["1 lines that look like rows are skipped as comments", "#x b"]),
    ],
)
def test_warnings(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text)
    said = warnings(path)
    assert len(said) == 1
    assert all(word in said[0] for word in [*words, str(path)]), said


@pytest.mark.parametrize(
    "text",
    [
        "a b\nb c\n", "a b 2\nb c 0.5\n", "source,target,weight\na,b,1\nb,c,2\n", "a,b,x\nb,c,y\n",
        "# FromNodeId\tToNodeId\n1\t2\n2\t3\n", "# Nodes: 3 Edges: 2\na b\n# between\nb c\n",
        "hub,NULL\nhub,nan\na,b\n", "protein1 protein2 weight\na b 1\nb c 2\n", "a,b\nx,y\ny,z\n",
        ":START_ID(A),:END_ID(A),:TYPE,weight:float\n1,2,K,.5\n2,3,K,.5\n3,1,K,.5\n",
        ",source,target\n0,a,b\n1,b,c\n2,c,a\n", "0 1 5\n1 2 3\n2 3 1\n",
    ],
)  # fmt: skip
def test_plain_files_give_no_warning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text)
    assert warnings(path) == []


def test_users_and_what_they_rate_are_usual_names_of_two_sets(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("user,item,rating\na,x,1\nb,y,2\n")
    assert warnings(path, bipartite=True, weighted=True) == []
    path.write_text("word,seen,rating\na,x,1\nb,y,2\n")
    assert "no usual name for the ends" in " ".join(warnings(path, bipartite=True, weighted=True))


@ENGINES
def test_warnings_are_in_the_log_and_the_stats(tmp_path: Path, engine: str) -> None:
    path, log = tmp_path / "g.txt", io.StringIO()
    path.write_text("a b 1082040961\nb c 1082155839\na b 1082155840\n")
    graph = run_index(path, engine, log=log)
    (warning,) = warnings(path)
    assert graph.stats["input_warning.1"] == warning
    assert "input_warning.2" not in graph.stats
    assert f"warning: {warning}" in log.getvalue()
    assert graph.weights is None
    assert graph.stats["duplicates_merged"] == 1
    assert run_index(path, engine, weight="3").weights is not None
    assert run_index(path, engine, weighted=True).weights is not None


def test_many_unused_columns_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("source,target," + ",".join(f"c{n}" for n in range(9)) + "\n" + "a,b,1,2,3,4,5,6,7,8,9\n" * 2)
    said = warnings(path)
    assert len(said) == 5
    assert "5 more columns are not used (got up to column c8)" in said[-1]


def test_columns_of_parquet_that_hold_no_numbers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "g.parquet"
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3], "at": pa.array([0, 1], pa.timestamp("ms"))}), path)
    assert (
        "column at: a column is not used (got type timestamp[ms]). Set index.time=at and index.from"
        in warnings(path)[0]
    )


def test_a_column_of_nulls_has_no_nodes(tmp_path: Path) -> None:
    path = tmp_path / "g.parquet"
    pq.write_table(pa.table({"source": ["a", "b"], "target": pa.nulls(2)}), path)
    with pytest.raises(UserError, match="row 1: the row has an empty node"):
        run_index(path, "relational")


def test_names_of_neo4j(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("since:int,:START_ID(A),:END_ID(A),weight:float\n2001,a,b,.5\n2002,b,c,2\n")
    assert run_index(path, "relational").arcs()[("b", "c")] == 2.0


def test_heterograph_warns_too(tmp_path: Path) -> None:
    path, log = tmp_path / "g.txt", io.StringIO()
    path.write_text("a b 1082040961\nb c 1082155839\n")
    made = run_stage(HETEROGRAPH, {}, {"edges": str(path)}, tmp_path / "out", log=log)
    assert "Unix times" in made.stats["input_warning.1"]
    assert "Set heterograph.time=3 to keep the times" in made.stats["input_warning.1"]
    assert "warning: " in log.getvalue()


def test_heterograph_refuses_too(tmp_path: Path) -> None:
    path = tmp_path / "kg.tsv"
    path.write_text(TRIPLES)
    with pytest.raises(UserError, match=r"triples of head.*got 'relations.*Set heterograph\.format=triples"):
        run_stage(HETEROGRAPH, {}, {"edges": str(path)}, tmp_path / "out")


@pytest.mark.usefixtures("in_turn")
def test_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("".join(line + f",{1082040961 + row}\n" for row, line in enumerate(SIGNED.split())))
    for params in ({"weight": "3", "negative": "absolute"}, {}):
        folder = tmp_path / (params.get("negative") or "plain")
        here, there = (make(path, folder / engine, engine, **params) for engine in ("in-process", IN_TURN))
        assert dict(here.stats) == dict(there.stats)
        assert here.manifest.files == there.manifest.files
        assert "Unix times" in str([text for name, text in there.stats.items() if "warning" in name])


@ENGINES
def test_columns_by_number(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "g.csv"
    path.write_text("x,1,a,2,b,7\ny,2,b,3,c,8\n")
    graph = run_index(path, engine, source=3, target="5", weight=6)
    assert graph.arcs() == {("a", "b"): 7.0, ("b", "a"): 7.0, ("b", "c"): 8.0, ("c", "b"): 8.0}
    with pytest.raises(UserError, match="no header, and 6 columns, counted from 1"):
        run_index(path, engine, source="9")


TRIPLES = "a\tlikes\tb\nb\tlikes\tc\nc\thates\ta\na\thates\tb\n"


@ENGINES
def test_triples(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "kg.tsv"
    path.write_text(TRIPLES)
    with pytest.raises(UserError, match=r"triples of head, relation and tail.*relations hates, likes.*format=triples"):
        run_index(path, engine)
    assert counts(path, engine, format="triples") == (4, 3, 3)
    path.write_text("head,relation,tail\n" + TRIPLES.replace("\t", ","))
    assert counts(path, engine) == counts(path, engine, format="triples") == (4, 3, 3)
    path.write_text("00260881\t_hypernym\t00260622\n00260622\t_hypernym\t00260881\n00001740\t_part_of\t00260622\n")
    assert "triples" in _refusal(path)
    assert counts(path, engine, format="triples") == (3, 3, 2)
    path.write_text("a b\nb c\n")
    with pytest.raises(UserError, match="a triple has three columns"):
        run_index(path, engine, format="triples")


def _refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        warnings(path)
    return str(caught.value)


SIGNED = "a,b,2\nb,c,-3\nc,d,-0.5\nd,a,4\n"


@ENGINES
@pytest.mark.parametrize("form", ["csv", "quoted.csv", "parquet"])
def test_negative_weights(tmp_path: Path, engine: str, form: str) -> None:
    path = tmp_path / f"g.{form}"
    if form == "parquet":
        columns = {"u": list("abcd"), "v": list("bcda"), "w": [2, -3, -0.5, 4]}
        pq.write_table(pa.table(columns), path)
    else:
        path.write_text(SIGNED if form == "csv" else SIGNED.replace("a,b,2", '"a",b,2'))
    with pytest.raises(UserError, match=r"not a positive number \(got .*index.negative to drop or absolute"):
        run_index(path, engine)
    dropped = run_index(path, engine, negative="drop")
    assert dropped.stats["rows_read"] == 2
    assert {frozenset(arc): weight for arc, weight in dropped.arcs().items()} == {
        frozenset("ab"): 2.0, frozenset("ad"): 4.0,
    }  # fmt: skip
    absolute = run_index(path, engine, negative="absolute")
    assert sorted(set(absolute.arcs().values())) == [0.5, 2.0, 3.0, 4.0]
    assert absolute.stats["edges"] == 4


@ENGINES
def test_a_weight_that_is_no_number_stays_an_error(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "g.csv"
    path.write_text("source,target,weight\na,b,-1\nb,c,--1\n")
    for negative in ("absolute", "error"):
        with pytest.raises(UserError, match=r"line [23]: the weight is not a positive number"):
            run_index(path, engine, negative=negative)
    path.write_text("source,target,weight\na,b,-1\nb,c,-2\n")
    with pytest.raises(UserError, match="the file has no rows"):
        run_index(path, engine, negative="drop")


def test_separators(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("Smith, J;Doe, A\nDoe, A;Roe\nRoe;Smith, J\n")
    assert counts(path) == (3, 3, 3)
    path.write_text(",u_name,v_name\n0,a,b\n1,b,c\n")
    assert counts(path) == (2, 3, 2)
    path.write_text('"from" "to"\n"1" "a" "b"\n"2" "b" "c"\n')
    assert "R's write.table" in _refusal(path.rename(tmp_path / "g.txt"))


@pytest.mark.parametrize(
    ("name", "params", "found"),
    [
        ("umls-train.txt", {"format": "triples"}, (5216, 135, None)),
        ("nations-train.txt", {"format": "triples"}, (1592, 14, None)),
        ("CollegeMsg.txt", {}, (59835, 1899, 13838)),
        ("soc-sign-bitcoinotc.csv", {}, (35592, 5881, 21492)),
        ("soc-sign-bitcoinotc.csv", {"weight": 3, "negative": "drop"}, (32029, None, 18591)),
        ("soc-sign-bitcoinotc.csv", {"weight": 3, "negative": "absolute"}, (35592, 5881, 21492)),
        ("openflights-routes.dat", {"source": 3, "target": 5}, (67663, 3425, 19256)),
    ],
)
def test_real_files(tmp_path: Path, shared_data: Path, name: str, params: dict, found: tuple) -> None:
    path = tmp_path / name
    path.write_bytes((shared_data / "formats" / name).read_bytes())
    made = counts(path, "compiled", **params)
    assert all(figure in (None, each) for each, figure in zip(made, found, strict=True)), made
    if "triples" in params.values():
        assert "triples" in _refusal(path)
