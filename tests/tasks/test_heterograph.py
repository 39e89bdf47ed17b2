"""The stage heterograph: what it makes of tables in every format, held against plain Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from superworkflow.tasks.heterograph import STAGE, HeterographParams
from superworkflow.tasks.lib.graph.heterograph import Feature, HeteroGraph
from tests.tasks.heterograph_tables import FORMATS, Items, expected, found, plain, run_stage, write_graph

POOL = ["0", "1", "10", "9", "a b", 'q"', "a,b", "é", "🙂", "z" * 20, "z" * 21, " ", "x\ny"]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Items], dict[str, Items], bool]:
    """Node sets, edge sets, and whether some edges dangle."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    mark = draw(st.sampled_from(["", "#"]))
    dangling = draw(st.booleans())
    nodes: dict[str, Items] = {}
    for place, name in enumerate(["paper", "é/../#"][: draw(st.integers(1, 2))]):
        ids = [POOL[i] for i in rng.permutation(len(POOL))[: draw(st.integers(0, 8))]]
        if not ids or (place and draw(st.booleans())):
            nodes[name] = Items()
            continue
        values = {
            "x": ("float", (), rng.integers(0, 99, len(ids)).astype(float).tolist()),
            "v": ("int64", (2,), rng.integers(-9, 9, (len(ids), 2)).tolist()),
            "t": ("string", (), [POOL[i] for i in rng.integers(0, len(POOL), len(ids))]),
            "r": ("int64", (None,), [rng.integers(0, 9, size).tolist() for size in rng.integers(0, 4, len(ids))]),
        }
        nodes[name] = _items(draw, rng, f"nodes-{place}", {f"{mark}id": ids}, values)
    edges: dict[str, Items] = {}
    for place in range(draw(st.integers(1, 2))):
        ends = tuple(draw(st.sampled_from(sorted(nodes))) for _ in range(2))
        rows = draw(st.sampled_from([0, 1, 5, 40]))
        columns = {}
        for which, end in zip(("source", "target"), ends, strict=True):
            pool = nodes[end].columns.get(f"{mark}id", POOL)
            pool = [*pool, "absent"] if dangling and draw(st.booleans()) else pool
            columns[f"{mark}{which}"] = [pool[i] for i in rng.integers(0, len(pool), rows)]
        values = {"weight": ("float", (), (rng.integers(0, 99, rows) / 8).tolist()),
                  "s": ("string", (), [POOL[i] for i in rng.integers(0, len(POOL), rows)])}  # fmt: skip
        edges[f"e{place}"] = _items(draw, rng, f"edges-{place}", columns, values)
        edges[f"e{place}"].ends = (ends[0], ends[1])
        if draw(st.booleans()):
            edges[f"back{place}"] = Items(ends=ends[::-1], file=edges[f"e{place}"].file, reverses=f"e{place}")
    return nodes, edges, dangling


def _items(
    draw: st.DrawFn, rng: np.random.Generator, stem: str, columns: dict[str, Any], values: dict[str, Any]
) -> Items:
    ending = draw(st.sampled_from(FORMATS))
    shards = draw(st.sampled_from(["", "@1", "@3"]))
    chosen = [name for name in values if draw(st.booleans())]
    return Items(
        {**columns, **{name: values[name][2] for name in chosen}},
        {name: values[name][:2] for name in chosen},
        file=f"{stem}{shards}.{ending}",
    )


@given(graph=graphs(), threads=st.integers(1, 2), first=st.booleans())
@settings(max_examples=40, deadline=None, print_blob=True)
def test_any_tables(tmp_path_factory: pytest.TempPathFactory, graph: Any, threads: int, first: bool) -> None:
    nodes, edges, drop = graph
    folder = write_graph(tmp_path_factory.mktemp("graph"), nodes, edges)
    params = {"parallel_edges": "first" if first else "keep", "dangling": "drop" if drop else "error"}
    made = run_stage(folder, folder / "out", threads, **params)
    wanted = expected(nodes, edges, first=first, drop=drop)
    got = found(made)
    for name, items in wanted.items():
        assert got[name] == items, name
    assert got.keys() == wanted.keys()


def test_a_homogeneous_graph(tmp_path: Path) -> None:
    """One node set without a table and one edge set: an edge list."""
    edges = Items({"source": ["b", "a", "c"], "target": ["a", "c", "a"]}, ends=("node", "node"), file="edges.csv")
    graph = run_stage(write_graph(tmp_path, {"node": Items()}, {"edge": edges}), tmp_path / "out")
    assert graph.ids("node").to_pylist() == ["a", "b", "c"]
    assert [part.tolist() for part in graph.rows("edge")] == [[0, 1, 2, 3], [2, 0, 0]]
    stats = graph.dataset.stats
    assert (stats["nodes"], stats["edges"], stats["nodes.node"], stats["edges.edge"]) == (3, 3, 3, 3)


def test_ids_may_be_features(tmp_path: Path) -> None:
    """Schemas may describe the columns of ids, by either spelling."""
    nodes = Items({"id": ["b", "a"]}, {"#id": ("string", ())}, file="nodes.csv")
    edges = Items({"#source": ["b"], "#target": ["a"]}, {"#target": ("string", ()), "source": ("string", ())},
                  ends=("n", "n"), file="edges.tfrecord")  # fmt: skip
    graph = run_stage(write_graph(tmp_path, {"n": nodes}, {"e": edges}), tmp_path / "out")
    assert plain(graph.node_feature("n", "#id")) == [b"a", b"b"]
    assert [plain(graph.edge_feature("e", name)) for name in ("source", "#target")] == [[b"b"], [b"a"]]


def test_in_a_bucket(s3_store: Store, tmp_path: Path) -> None:
    """Tables and dataset may lie in a bucket: the same files as on this machine."""
    nodes = Items({"id": ["b", "a"], "x": [1, 2]}, {"x": ("int64", ())}, file="n@2.parquet")
    edges = Items({"source": ["b", "a"], "target": ["a", "b"], "w": [1.0, 2.0]}, {"w": ("float", ())},
                  ends=("n", "n"), file="tables/e.csv.gz")  # fmt: skip
    (tmp_path / "given" / "tables").mkdir(parents=True)
    folder = write_graph(tmp_path / "given", {"n": nodes}, {"e": edges})
    here = run_stage(folder, tmp_path / "out").dataset
    for path in folder.rglob("*"):
        if path.is_file():
            s3_store.root.join("given", str(path.relative_to(folder))).upload(path)
    there = run_stage(s3_store.root.join("given").uri, s3_store.root.join("out").uri).dataset
    assert there.manifest.digest == here.manifest.digest
    assert there.manifest.files == here.manifest.files
    assert found(HeteroGraph.open(there))["e"] == ([0, 1, 2], [1, 0], None, {"w": [2.0, 1.0]}, [1, 0])


def test_all_types_of_numbers(tmp_path: Path) -> None:
    types = {
        "float": pa.float32(), "double": pa.float64(), "half": pa.float16(), "bool": pa.bool_(), "int8": pa.int8(),
        "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "uint8": pa.uint8(), "uint16": pa.uint16(),
        "uint32": pa.uint32(), "uint64": pa.uint64(),
    }  # fmt: skip
    given = {name: [True, False] if name == "bool" else [1, 2] for name in types}
    nodes = Items({"id": [7, 10]}, {name: (name, ()) for name in types}, file="nodes.parquet")
    shaped = Items({"id": ["b", "a"]}, {name: (name, (2, 1)) for name in types}, file="shaped.csv")
    shaped.columns |= {name: [values, values[::-1]] for name, values in given.items()}
    shaped.columns["bool"] = [[1, 0], [0, 1]]
    nodes.columns |= given
    context = Items({"split": [[3, 4]], "name": ["all"]}, {"split": ("int64", (None,)), "name": ("string", ())},
                    file="context.tfrecord")  # fmt: skip
    folder = write_graph(tmp_path, {"n": nodes, "m": shaped}, {}, context)
    pq.write_table(
        pa.table({"id": [7, 10], **{name: pa.array(np.array(given[name]), kind) for name, kind in types.items()}}),
        folder / "nodes.parquet",
    )
    graph = run_stage(folder, tmp_path / "out")
    assert graph.ids("n").to_pylist() == ["10", "7"]
    for name in types:
        feature = graph.node_feature("n", name)
        assert feature.dtype == np.dtype(types[name].to_pandas_dtype())
        assert feature.tolist() == given[name][::-1]
        assert graph.node_feature("m", name).tolist() == [[[b], [a]] for a, b in (given[name], given[name][::-1])]
    assert graph.context == (Feature("name", "string", ()), Feature("split", "int64", (None,)))
    assert plain(graph.context_feature("split")) == [[3, 4]]
    assert plain(graph.context_feature("name")) == [b"all"]


def test_a_reversed_set_with_a_table_of_its_own(tmp_path: Path) -> None:
    """Its columns are exchanged; features are its own."""
    items = Items({"source": ["a", "b"], "target": ["x", "y"], "weight": [1.0, 2.0]}, {"weight": ("float", ())},
                  ends=("b", "a"), file="edges.csv")  # fmt: skip
    folder = write_graph(tmp_path, {"a": Items(), "b": Items()}, {"back": items})
    schema = folder / "schema.pbtxt"
    extra = 'metadata { extra { key: "edge_type" value: "reversed" } filename: "edges.csv" }'
    schema.write_text(schema.read_text().replace('metadata {\n      filename: "edges.csv"\n    }', extra))
    graph = run_stage(schema, tmp_path / "out")
    assert graph.ids("b").to_pylist() == ["x", "y"]
    assert graph.edge_sets["back"].reversed_of is None
    assert [part.tolist() for part in graph.rows("back")] == [[0, 1, 2], [0, 1]]
    assert graph.edge_feature("back", "weight").tolist() == [1, 2]


@pytest.mark.parametrize("ending", FORMATS)
def test_what_plans_are_told(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(0)
    ids = [f"paper{i}" for i in range(1000)]
    pairs = {end: [ids[i] for i in rng.integers(0, len(ids), 8_000)] for end in ("source", "target")}
    papers = Items({"id": ids, "v": rng.random((1000, 8)).round(3).tolist()}, {"v": ("float", (8,))},
                   file=f"papers@3.{ending}")  # fmt: skip
    cites = Items(pairs, ends=("paper", "paper"), file=f"cites.{ending}")
    back = Items(ends=("paper", "paper"), file=cites.file, reverses="cites")
    folder = write_graph(tmp_path, {"paper": papers}, {"cites": cites, "back": back})
    stats = STAGE.inputs["graph"].stats_of(STAGE.inputs["graph"].open(Source.of(folder)))
    estimate = STAGE.estimate(HeterographParams(), {"graph": stats}, Resources(cpu=2))
    made = run_stage(folder, tmp_path / "out").dataset.stats
    rough = 0.5 if ending == "tfrecord.gz" else 0.02  # how far it unpacks is a guess
    for name in (
        "nodes",
        "edges",
        "reversed_edges",
        "nodes.paper",
        "edges.cites",
        "edges.back",
        "node_sets",
        "edge_sets",
    ):
        assert estimate.stats[name] == pytest.approx(made[name], rel=rough), name
    assert estimate.output_bytes == pytest.approx(made["bytes"], rel=max(0.3, rough))


def test_only_tables_of_the_schema_are_in_the_digest(tmp_path: Path) -> None:
    items = Items({"source": ["b"], "target": ["a"]}, ends=("node", "node"), file="edges-?????-of-00002.csv")
    folder = write_graph(tmp_path, {"node": Items()}, {"edge": Items(ends=items.ends, columns=items.columns)})
    for shard in range(2):
        (folder / f"edges-{shard:05d}-of-00002.csv").write_text(f"source,target\na,b{shard}\n")
    schema = folder / "schema.pbtxt"
    text = schema.read_text().replace('target: "node"', 'target: "node" metadata { filename: "FILE" }')

    def digest(file: str, given: Path = folder) -> str:
        schema.write_text(text.replace("FILE", file))
        return STAGE.inputs["graph"].open(Source.of(given)).digest

    digests = [digest("edges@2.csv"), digest("edges@2.csv", schema)]
    (folder / "spec.pbtxt").write_text("seed_op {}")
    assert {*digests, digest("edges@2.csv")} == {digests[0]}
    for file in ("edges-?????-of-00002.csv", "edges-*.csv", f"{folder}/edges@2.csv"):
        digest(file)
        assert run_stage(folder, tmp_path / f"out-{file[:8].replace('/', '-')}").ids("node").to_pylist() == [
            "a",
            "b0",
            "b1",
        ]
