"""Folders of part files give the same datasets as one file with their rows, on every engine, here and in a bucket."""

import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources, Stage
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from superworkflow.tasks import heterograph, index, label, sample
from tests.members import IN_TURN
from tests.tasks.sampling import id_of, random_graph
from tests.tasks.test_sample_stage import ENDS, SPEC

Rows = list[tuple[str, str, str]]
HEADER = "source,target,weight\n"
ENGINES = ["compiled", "relational", IN_TURN]


def edge_rows(count: int) -> Rows:
    draw = random.Random(count)
    return [(f"v{draw.randrange(60)}", f"ä{draw.randrange(40)}", str(draw.randrange(1, 9))) for _ in range(count)]


def text_of(rows: Rows, header: str = HEADER) -> str:
    return header + "".join(",".join(row) + "\n" for row in rows)


def cut(rows: Rows, parts: int) -> list[Rows]:
    return [rows[i * len(rows) // parts : (i + 1) * len(rows) // parts] for i in range(parts)]


def spark_csv(folder: Path, rows: Rows) -> None:
    for i, part in enumerate([*cut(rows, 3), []]):  # Spark writes the header alone for an empty partition
        (folder / f"part-{i:05d}-8c1f-c000.csv").write_text(text_of(part))
        (folder / f".part-{i:05d}-8c1f-c000.csv.crc").write_bytes(b"crc\0")
    (folder / "_SUCCESS").touch()
    (folder / "_committed_12").write_text("{}")
    (folder / "part-00009-8c1f-c000.csv").touch()


def spark_gzip(folder: Path, rows: Rows) -> None:
    for i, part in enumerate(cut(rows, 2)):
        (folder / f"part-{i:05d}.csv.gz").write_bytes(gzip.compress(text_of(part).encode()))


def no_header(folder: Path, rows: Rows) -> None:
    for i, part in enumerate(cut(rows, 5)):
        (folder / f"edges.{i}.csv").write_text(text_of(part, ""))


def quoted(folder: Path, rows: Rows) -> None:
    for i, part in enumerate(cut(rows, 2)):
        (folder / f"{i}.csv").write_text(text_of([(f'"{u}"', v, w) for u, v, w in part]))


def table_of(rows: Rows) -> pa.Table:
    return arrow_csv.read_csv(io.BytesIO(text_of(rows).encode()))


def parquet(folder: Path, rows: Rows) -> None:
    for i, part in enumerate(cut(rows, 3)):
        pq.write_table(table_of(part), folder / f"part.{i}.parquet")
    pq.write_table(table_of(rows)[:0], folder / "part.3.parquet")


def hive(folder: Path, rows: Rows) -> None:
    for i, part in enumerate(cut(rows, 2)):
        (folder / f"date=2024-01-0{i + 1}").mkdir()
        pq.write_table(table_of(part), folder / f"date=2024-01-0{i + 1}" / "part-0.parquet")


FORMS = [spark_csv, spark_gzip, no_header, quoted, parquet, hive]


def make(stage: Stage[Any], params: dict, inputs: dict, output: Path | str, engine: str = "in-process") -> Dataset:
    resources, progress = Resources(cpu=1, memory=1 << 30), Progress(stage.name, stream=io.StringIO())
    return execute(stage, params, inputs, str(output), resources, progress, engine).dataset


def index_of(edges: Path | str, output: Path | str, engine: str, **params: Any) -> Dataset:
    if engine == IN_TURN:
        return make(index.STAGE, params, {"edges": str(edges)}, output, engine)
    return make(index.STAGE, {**params, "engine": engine}, {"edges": str(edges)}, output)


pytestmark = pytest.mark.usefixtures("in_turn")


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    return tmp_path / "parts"


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        pytest.param(form, engine, id=f"{form.__name__}-{engine}")
        for form in FORMS for engine in ("compiled", "relational", IN_TURN)
        if (form, engine) != (no_header, IN_TURN)
    ],
)  # fmt: skip
def test_the_same_graph_as_of_one_file(
    form: Callable[[Path, Rows], None], engine: str, parts: Path, tmp_path: Path
) -> None:
    rows = edge_rows(900)
    form(parts, rows)
    (tmp_path / "one.csv").write_text(text_of(rows))
    one = index_of(tmp_path / "one.csv", tmp_path / "one", "relational")
    found = index_of(parts, tmp_path / "found", engine)
    assert found.manifest.files == one.manifest.files
    doubts = {key: str(value) for key, value in found.stats.items() if key.startswith("input_warning")}
    assert {key: value for key, value in found.stats.items() if key not in doubts} == dict(one.stats)
    assert ["date" in each for each in doubts.values()] == [True] * (form is hive)


@pytest.mark.parametrize("engine", ENGINES)
def test_in_a_bucket(engine: str, parts: Path, tmp_path: Path, s3_store: Store) -> None:
    rows = edge_rows(300)
    spark_csv(parts, rows)
    (tmp_path / "one.csv").write_text(text_of(rows))
    for path in parts.iterdir():
        s3_store.root.join("given", path.name).upload(path)
    one = index_of(tmp_path / "one.csv", tmp_path / "one", "relational")
    output = s3_store.root.join("graph").uri if engine == IN_TURN else tmp_path / "found"
    assert index_of(s3_store.root.join("given").uri, output, engine).manifest.files == one.manifest.files
    source = Source.of(s3_store.root.join("given").uri)
    assert source.digest == Source.of(parts).digest


@pytest.mark.parametrize(
    ("bad", "engine"),
    [
        *((bad, engine) for bad in ("u,,1", "u", "u,v,-1") for engine in ("compiled", "relational")),
        ("u", IN_TURN),
    ],
)
def test_a_bad_row_is_named_with_its_file(bad: str, engine: str, parts: Path, tmp_path: Path) -> None:
    spark_csv(parts, edge_rows(30))
    with (parts / "part-00001-8c1f-c000.csv").open("a") as stream:
        stream.write(bad + "\n")
    with pytest.raises(UserError, match=r"part-00001-8c1f-c000\.csv, line 12"):
        index_of(parts, tmp_path / "found", engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_edge_that_occurs_again_is_named_with_both_files(engine: str, parts: Path, tmp_path: Path) -> None:
    (parts / "a.csv").write_text("source,target\na,b\nc,d\n")
    (parts / "b.csv").write_text("source,target\nb,c\nd,c\n")
    with pytest.raises(UserError, match=r"b\.csv, line 3.*first in .*a\.csv, line 3"):
        index_of(parts, tmp_path / "found", engine, duplicates="error")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "folder is empty"),
        ({"_SUCCESS": "x", ".a.csv": "a,b\n"}, "no file with content"),
        ({"a.csv": "source,target\n" + "a,b\n" * 9, "b.csv": "source,other\na,b\n"}, "a.csv.*source, other"),
        ({"a.csv": "1,2\n3,4\n5,6\n7,8\n9,10\n", "b.csv": "source,target\n1,2\n"}, "a.csv.*no header"),
        ({"a.csv": "source,target\n1,2\n3,4\n5,6\n", "b.parquet": b"PAR1rest"}, "b.parquet.*a.csv.*parquet"),
        ({"a.csv": "source,target\na,b\nb,c\n", "deep/b.csv": "source,target\na,b\n"}, "no partition.*deep/b.csv"),
        ({"d=1/a.csv": "source,target\na,b\nb,c\n", "e=1/b.csv": "source,target\na,b\n"}, "different partitions"),
        ({"_delta_log/00.json": "{}", "a.csv": "a,b\n"}, "Delta table"),
        ({"_temporary/0/a.csv": "a,b\n", "a.csv": "a,b\n"}, "written at this moment"),
        ({"a.csv": "source,target\n", "b.csv": "source,target\n"}, "no rows"),
    ],
    ids=["nothing", "hidden", "headers", "one_header", "formats", "nested", "keys", "delta", "temporary", "no_rows"],
)
@pytest.mark.parametrize("engine", ["compiled", IN_TURN])
def test_folders_that_are_no_table(
    files: dict[str, str | bytes], words: str, engine: str, parts: Path, tmp_path: Path
) -> None:
    for name, content in files.items():
        path = parts / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words):
        index_of(parts, tmp_path / "found", engine)


def test_doubts_of_a_folder(parts: Path, tmp_path: Path) -> None:
    for i in range(3):
        rows = "".join(f"a{j} b{j} {1_600_000_000 + 86_400 * j}\n" for j in range(5 + i))
        (parts / f"part-{i}").write_text(rows)
    made = index_of(parts, tmp_path / "found", "compiled")
    assert "part-2" in str(made.stats["input_warning.1"])
    assert not made.stats["weighted"]


def test_estimates_read_all_parts(parts: Path, tmp_path: Path) -> None:
    rows = [(u, v.replace("ä", "v"), w) for u, v, w in edge_rows(4000)]
    for i, part in enumerate(cut(rows, 50)):
        (parts / f"{i}.csv").write_text(text_of(part, ""))
    (tmp_path / "one.csv").write_text(text_of(rows, ""))
    read = index.STAGE.inputs["edges"]
    found, one = (read.stats_of(Source.of(path)) for path in (parts, tmp_path / "one.csv"))
    assert found["bytes"] == one["bytes"]
    assert found["text_bytes"] == one["text_bytes"]
    assert found["rows"] == pytest.approx(int(one["rows"]), rel=0.02)
    assert found["values"] == pytest.approx(int(one["values"]), rel=0.02)


NODES = [f"v{i}" for i in range(9)]
EDGES = "source,target\n" + "".join(f"v{i},v{i // 2}\n" for i in range(1, 9))


def typed(folder: Path, output: Path) -> Dataset:
    inputs = {name: str(folder / name) for name in ("edges", "features", "labels")}
    return make(heterograph.STAGE, {}, inputs, output)


def write_typed(folder: Path, parts: int) -> None:
    """Edges, features and labels in files or, for more than one part, in folders."""
    tables = {
        "edges": EDGES.splitlines(True),
        "features": ["node,x,y\n", *(f"{node},{i},{-i}\n" for i, node in enumerate(NODES))],
        "labels": ["node,label,split\n", *(f"{node},{'ab'[i % 2]},\n" for i, node in enumerate(NODES))],
    }
    for name, (header, *rows) in tables.items():
        for i in range(parts):
            place = folder / name / f"part-{i}.csv"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(header + "".join(rows[i * len(rows) // parts : (i + 1) * len(rows) // parts]))


def test_typed_graphs(tmp_path: Path) -> None:
    found = []
    for count in (1, 3, 4):
        write_typed(tmp_path / str(count), count)
        found.append(typed(tmp_path / str(count), tmp_path / f"graph-{count}"))
    assert found[0].manifest.files == found[1].manifest.files == found[2].manifest.files
    assert found[0].stats["nodes.node"] == 9


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("labels", "strange,a,\n", r"part-1\.csv:5"),
        ("labels", "v1\n", r"part-1\.csv:5"),
        ("labels", "v1,b,no\n", r"part-1\.csv:5"),
        ("features", "v1,1,1\n", r"part-1\.csv, row 4"),
        ("features", "w1,1,x\n", r"part-1\.csv, row 4"),
        ("edges", "v1,\n", r"part-1\.csv, line 5"),
    ],
)
def test_bad_rows_of_typed_graphs(name: str, more: str, words: str, tmp_path: Path) -> None:
    write_typed(tmp_path, 3)
    with (tmp_path / name / "part-1.csv").open("a") as stream:
        stream.write(more)
    with pytest.raises(UserError, match=words):
        typed(tmp_path, tmp_path / "graph")


@pytest.mark.parametrize("name", ["labels", "features"])
def test_typed_graphs_of_parts_that_differ(name: str, tmp_path: Path) -> None:
    write_typed(tmp_path, 2)
    (tmp_path / name / "part-1.csv").write_text("node,label\nv1,1\n")
    with pytest.raises(UserError, match=r"part-1\.csv: the file differs from .*part-0\.csv"):
        typed(tmp_path, tmp_path / "graph")


def test_labels_of_node2vec(tmp_path: Path) -> None:
    found = []
    for count in (1, 4):
        write_typed(tmp_path / str(count), count)
        for path in (tmp_path / str(count) / "labels").iterdir():
            path.write_text("".join(line.rpartition(",")[0] + "\n" for line in path.read_text().splitlines()))
        graph = index_of(tmp_path / str(count) / "edges", tmp_path / f"graph-{count}", "relational")
        inputs = {"graph": graph.uri, "labels": str(tmp_path / str(count) / "labels")}
        found.append(make(label.STAGE, {}, inputs, tmp_path / f"labels-{count}"))
    assert found[0].manifest.files == found[1].manifest.files
    with (tmp_path / "4" / "labels" / "part-2.csv").open("a") as stream:
        stream.write("strange,a\n")
    with pytest.raises(UserError, match=r"part-2\.csv:4"):
        make(label.STAGE, {}, inputs, tmp_path / "again")


@pytest.mark.parametrize("engine", ["in-process", IN_TURN])
def test_seeds(engine: str, parts: Path, tmp_path: Path) -> None:
    graph = random_graph(np.random.default_rng(4), {"a": 50, "b": 1500, "c": 3}, ENDS, 6000, parallel=True)
    graph = graph.write(tmp_path / "graph")
    ids = [id_of("b", n * n % 1500) for n in range(30)]
    (tmp_path / "spec.pbtxt").write_text(SPEC)
    (tmp_path / "seeds.csv").write_text("\n".join(["id", *ids, ""]))
    for i in range(3):
        (parts / f"part-{i}.csv").write_text("\n".join(["id", *ids[10 * i : 10 * i + 10], ""]))
    (parts / "_SUCCESS").touch()
    inputs = {"graph": graph.uri, "spec": str(tmp_path / "spec.pbtxt")}
    one = make(sample.STAGE, {}, {**inputs, "seeds": str(tmp_path / "seeds.csv")}, tmp_path / "one")
    found = make(sample.STAGE, {}, {**inputs, "seeds": str(parts)}, tmp_path / "found", engine)
    assert found.manifest.files == one.manifest.files
    (parts / "part-1.csv").write_text("id,split\nx,train\n")
    with pytest.raises(UserError, match=r"part-1\.csv: the file differs from .*part-0\.csv"):
        make(sample.STAGE, {}, {**inputs, "seeds": str(parts)}, tmp_path / "again", engine)
