"""Records of subgraphs: byte for byte what protobuf's Example gives, in shards that depend on sizes alone."""

import gzip
import io
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import load_stage
from superworkflow.tasks.lib.formats.tfrecord import read_records
from superworkflow.tasks.lib.generators.mag import generate_mag
from superworkflow.tasks.lib.graph.heterograph import EdgeSet, HeteroGraph, NodeSet, Ragged
from superworkflow.tasks.lib.graph.schema import read_schema
from superworkflow.tasks.lib.subgraphs.blocks import SPLITS, SubgraphBlock, layout_of, read_blocks
from superworkflow.tasks.records import STAGE, RecordsParams
from superworkflow.tasks.records import features as records_features
from superworkflow.tasks.records.features import check_numbers
from superworkflow.tasks.records.run import open_source, plan_of
from superworkflow.tasks.records.shards import values_of
from tests.tasks import examples
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.subgraphs import some_block, some_graph, write_subgraphs

SPEC = """
seed_op { op_name: "seed" node_set_name: "paper" }
sampling_ops { op_name: "cited" input_op_names: "seed" edge_set_name: "cites" sample_size: 8 strategy: RANDOM_UNIFORM }
sampling_ops {
  op_name: "by" input_op_names: ["seed", "cited"] edge_set_name: "written" sample_size: 4 strategy: RANDOM_UNIFORM
}
"""


def make(folder: Path, graph: Dataset, subgraphs: Dataset, threads: int = 2, **params: Any) -> Dataset:
    inputs = {"graph": graph.uri, "subgraphs": subgraphs.uri}
    execute(STAGE, params, inputs, str(folder), Resources(cpu=threads), Progress("records", stream=io.StringIO()))
    return Dataset.open(folder)


def expected(
    graph: HeteroGraph, block: SubgraphBlock, s: int, seed_sets: tuple[str, ...] = ("paper",)
) -> dict[str, Any]:
    """The features of one subgraph, slowly."""
    seeds = block.seeds.reshape(-1, len(seed_sets))[s].tolist()
    ids = [graph.ids(name)[seed].as_py().encode() for name, seed in zip(seed_sets, seeds, strict=True)]
    found: dict[str, Any] = {
        "context/sample_id": ("bytes_list", [block.sample_ids[s].as_py().encode()]),
        "context/seed_id": ("bytes_list", ids),
    }
    if len(seed_sets) == 2:
        other = int(seed_sets[0] == seed_sets[1] and seeds[0] != seeds[1])
        found["nodes/_readout.#size"] = ("int64_list", [1])
        for end, place in (("source", 0), ("target", other)):
            for name, value in (("#size", 1), ("#source", place), ("#target", 0)):
                found[f"edges/_readout/{end}.{name}"] = ("int64_list", [value])
    for i, node_set in enumerate(graph.node_sets.values()):
        rows = block.nodes[i][block.node_starts[i][s] : block.node_starts[i][s + 1]].tolist()
        _add(found, graph, f"nodes/{node_set.name}.", node_set, rows)
    for j, edge_set in enumerate(graph.edge_sets.values()):
        span = slice(block.edge_starts[j][s], block.edge_starts[j][s + 1])
        rows = block.positions[j][span].tolist()
        _add(found, graph, f"edges/{edge_set.name}.", edge_set, rows)
        if rows:
            found[f"edges/{edge_set.name}.#source"] = ("int64_list", block.sources[j][span].tolist())
            found[f"edges/{edge_set.name}.#target"] = ("int64_list", block.targets[j][span].tolist())
    return found


def _add(found: dict[str, Any], graph: HeteroGraph, prefix: str, item_set: NodeSet | EdgeSet, rows: list[int]) -> None:
    if not rows:
        return
    found[f"{prefix}#size"] = ("int64_list", [len(rows)])
    for feature in item_set.features:
        read = graph.node_feature if isinstance(item_set, NodeSet) else graph.edge_feature
        values: Any = read(item_set.name, feature.name)
        if isinstance(values, Ragged):
            items = [values.values[values.starts[row] : values.starts[row + 1]] for row in rows]
        else:
            items = [values[row] for row in rows]
        if feature.is_ragged:
            found[f"{prefix}{feature.name}.d1"] = ("int64_list", [len(item) for item in items])
        if feature.dtype == "string":
            flat = [item.as_py() for item in items]
            flat = list(chain(*flat)) if feature.shape else flat
            found[prefix + feature.name] = ("bytes_list", flat)
        else:
            array = np.concatenate([np.asarray(item).reshape(-1) for item in items])
            if array.dtype.kind == "f":
                found[prefix + feature.name] = ("float_list", array.astype(np.float32).tolist())
            else:
                found[prefix + feature.name] = ("int64_list", array.astype(np.int64).tolist())


def records_in(path: Path) -> list[bytes]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.name.endswith(".gz") else data
    return [
        records.data[first:stop].tobytes()
        for records in read_records(io.BytesIO(data), path.name)
        for first, stop in records.bounds
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rng = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("records")
    dataset = write_heterograph(folder / "graph", *some_graph(rng))
    graph = HeteroGraph.open(dataset)
    blocks = {"train": [[some_block(graph, rng, 30, ("paper",)), some_block(graph, rng, 20, ("paper",))],
                        [some_block(graph, rng, 7, ("paper",))]],
              "test": [[some_block(graph, rng, 3, ("paper",))]]}  # fmt: skip
    wanted = {
        split: [expected(graph, block, s) for shard in shards for block in shard for s in range(block.subgraphs)]
        for split, shards in blocks.items()
    }
    return dataset, write_subgraphs(folder / "sample", graph, blocks), wanted


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("count", [7, 1 << 33])
def test_numbers_that_a_set_does_not_have_are_refused(made, kind, count):
    """Negative numbers too, even where the number without its sign is below the count."""
    graph = HeteroGraph.open(made[0])
    check_numbers(graph, "nodes", np.array([0, 6], kind), count)
    check_numbers(graph, "nodes", np.array([], kind), 0)
    for wrong in [-1, np.iinfo(kind).min, *([count] if count <= np.iinfo(kind).max else [])]:
        with pytest.raises(DatasetDamaged, match=f"nodes are beyond the {count} that there are") as raised:
            check_numbers(graph, "nodes", np.array([[3, 0], [wrong, 0]], kind)[:, 0], count)
        assert str(wrong) in str(raised.value)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_are_protobufs_bytes_in_shards_of_about_equal_size(tmp_path, made, compression):
    graph, subgraphs, wanted = made
    dataset = make(tmp_path / "out", graph, subgraphs, shards=4, compression=compression)
    ending = ".tfrecord" + ".gz" * (compression == "gzip")
    names = [f"{split}-0000{i}-of-00004{ending}" for split in ("test", "train") for i in range(4)]
    assert dataset.files() == ["schema.pbtxt", *names]
    for split, features in wanted.items():
        shards = [records_in(dataset.local(name)) for name in dataset.files(f"{split}-*")]
        assert list(chain(*shards)) == list(map(examples.serialized, features))
        sizes = [sum(map(len, shard)) for shard in shards]
        most = max(len(record) for shard in shards for record in shard)
        assert max(sizes) - min(sizes) <= max(2 * most, 0.5 * np.mean(sizes))
    again = make(tmp_path / "again", graph, subgraphs, threads=1, shards=4, compression=compression)
    assert again.manifest.files == dataset.manifest.files
    assert dataset.stats["records"] == 60


def test_one_shard_by_default_more_shards_than_records_and_none(tmp_path, made):
    graph, subgraphs, wanted = made
    whole = make(tmp_path / "whole", graph, subgraphs)
    assert whole.files() == ["schema.pbtxt", "test-00000-of-00001.tfrecord", "train-00000-of-00001.tfrecord"]
    many = make(tmp_path / "many", graph, subgraphs, shards=100)
    assert len(many.files("test-*")) == 100
    parts = [records_in(many.local(name)) for name in many.files("test-*")]
    assert list(chain(*parts)) == list(map(examples.serialized, wanted["test"]))
    none = make(tmp_path / "none", graph, subgraphs, formats="none")
    assert none.files() == ["schema.pbtxt"]
    assert none.local("schema.pbtxt").read_bytes() == whole.local("schema.pbtxt").read_bytes()


def test_the_schema_says_what_the_examples_hold(tmp_path, made):
    graph, subgraphs, wanted = made
    none = make(tmp_path / "none", graph, subgraphs, formats="none")
    text = none.local("schema.pbtxt").read_text()
    assert "filename" not in text
    schema = read_schema(text, "schema.pbtxt")
    assert {feature.name: feature.dtype for feature in schema.context.features} == {
        "seed_id": "string", "sample_id": "string"
    }  # fmt: skip
    heterograph = HeteroGraph.open(graph)
    for sets, described in ((heterograph.node_sets, schema.node_sets), (heterograph.edge_sets, schema.edge_sets)):
        assert list(sets) == list(described)
        for name, each in sets.items():
            features = [tuple(feature) for feature in each.features]
            assert features == [(f.name, f.dtype, f.shape) for f in described[name].features]
    described_names = {f"nodes/{s.name}.{f.name}" for s in schema.node_sets.values() for f in s.features}
    described_names |= {f"edges/{s.name}.{f.name}" for s in schema.edge_sets.values() for f in s.features}
    found = {name.removesuffix(".d1") for record in wanted["train"] for name in record if "#" not in name}
    assert found - described_names == {"context/seed_id", "context/sample_id"}


def test_parquet_files_have_the_same_features(tmp_path, made):
    graph, subgraphs, wanted = made
    dataset = make(tmp_path / "out", graph, subgraphs, formats="parquet", shards=3)
    assert dataset.files("*.parquet") == sorted(
        f"{split}-0000{i}-of-00003.parquet" for split in ("train", "test") for i in range(3)
    )
    for split, features in wanted.items():
        tables = [dataset.table(name) for name in dataset.files(f"{split}-*")]
        assert len({str(table.schema) for table in tables}) == 1
        rows = pa.concat_tables(tables).to_pylist()
        assert len(rows) == len(features)
        for row, record in zip(rows, features, strict=True):
            for name, value in row.items():
                values = np.array(_flat(value), object)
                _, given = record.get(name, ("", [0] if name.endswith("#size") else []))
                if name.split(".")[-1] in ("float", "double", "half", "embedding", "ragged", "weight"):
                    np.testing.assert_array_equal(values.astype(np.float32), np.array(given, np.float32), err_msg=name)
                elif name.endswith("f.uint64"):
                    assert [int(each) - (int(each) >> 63 << 64) for each in values] == given
                else:
                    assert values.tolist() == given, name


def test_both_formats_at_once_are_the_files_of_each(tmp_path, made):
    graph, subgraphs, _ = made
    both = make(tmp_path / "both", graph, subgraphs, formats=["parquet", "tfrecord"], shards=2)
    each = [make(tmp_path / name, graph, subgraphs, formats=name, shards=2) for name in ("tfrecord", "parquet")]
    alone = {entry.path: entry for dataset in each for entry in dataset.manifest.files}
    assert {entry.path: entry for entry in both.manifest.files} == alone
    assert both.manifest.params["formats"] == RecordsParams(formats="parquet,tfrecord").formats == "tfrecord,parquet"
    with pytest.raises(ValueError, match="Input should be"):
        RecordsParams(formats="tfrecord,none")


def _flat(value: Any) -> list[Any]:
    return list(chain(*map(_flat, value))) if isinstance(value, list) else [value]


def test_what_a_killed_attempt_has_left_whole_is_taken_over(tmp_path, made):
    graph, subgraphs, _ = made
    whole = make(tmp_path / "whole", graph, subgraphs, shards=4)
    location = Location.of(tmp_path / "out")
    attempt = DatasetWriter(location, whole.digest)
    attempt.claim(whole.files(), resumable=True)
    names = whole.files("train-*")
    for name in names[:2]:
        with attempt.stream(name, kept=False) as stream:
            stream.write(whole.local(name).read_bytes())
    with location.join(names[2]).open("wb") as half:
        half.write(b"half")
    left = [(tmp_path / "out" / name).stat().st_ino for name in names[:2]]
    logged = io.StringIO()
    inputs = {"graph": graph.uri, "subgraphs": subgraphs.uri}
    execute(STAGE, {"shards": 4}, inputs, str(tmp_path / "out"), Resources(cpu=2), Progress("records", stream=logged))
    assert "2 of 8 shards are from an earlier attempt" in logged.getvalue()
    assert [(tmp_path / "out" / name).stat().st_ino for name in names[:2]] == left
    assert Dataset.open(location).manifest.files == whole.manifest.files


@pytest.mark.parametrize("formats", ["tfrecord", "tfrecord,parquet", "none"])
def test_bytes_are_as_estimated(tmp_path, formats):
    rng = np.random.default_rng(9)
    ids = [f"p{i}" for i in range(300)]
    pairs = [(ids[rng.integers(300)], ids[rng.integers(300)]) for _ in range(900)]
    features = {"x": rng.normal(size=(300, 64)).astype(np.float32), "year": rng.integers(1900, 2030, 300)}
    edges = {"cites": Edges("paper", "paper", pairs, {"weight": rng.random(900, np.float32)})}
    dataset = write_heterograph(tmp_path / "graph", {"paper": Nodes(ids, features)}, edges)
    graph = HeteroGraph.open(dataset)
    blocks = [[some_block(graph, rng, 20, ("paper",))]]
    subgraphs = write_subgraphs(tmp_path / "sample", graph, {"train": blocks})
    params, resources = RecordsParams(formats=formats), Resources(cpu=2)
    expected = STAGE.estimate(params, {"graph": dataset.stats, "subgraphs": subgraphs.stats}, resources)
    made = make(tmp_path / "out", dataset, subgraphs, formats=formats)
    data = sum(entry.bytes for entry in made.manifest.files if entry.path != "schema.pbtxt")
    assert expected.output_bytes == pytest.approx(data, rel=0.2)
    early = {"subgraphs": 20, "nodes": subgraphs.stats["nodes"], "edges": subgraphs.stats["edges"]}
    planned = STAGE.estimate(params, {"graph": dataset.stats, "subgraphs": early}, resources)
    assert planned.output_bytes == pytest.approx(expected.output_bytes, rel=0.01)
    assert planned.stats["records"] == 20


def test_records_of_a_graph_that_is_not_made_yet_are_planned_with_their_features(tmp_path: Path) -> None:
    generate_mag(0.003, str(tmp_path / "mag"), seed=7)
    (tmp_path / "spec.pbtxt").write_text(SPEC)
    inputs = {"graph": str(tmp_path / "mag" / "schema.pbtxt"), "spec": str(tmp_path / "spec.pbtxt")}
    heterograph, sample = load_stage("heterograph"), load_stage("sample")
    of_source = {name: stage.inputs[name].stats_of(Source.of(inputs[name]))
                 for name, stage in (("graph", heterograph), ("spec", sample))}  # fmt: skip
    resources, progress = Resources(cpu=2), Progress("records", stream=io.StringIO())
    graph = heterograph.estimate(heterograph.params(), {"graph": of_source["graph"]}, resources).stats
    subgraphs = sample.estimate(sample.params(), {"graph": graph, "spec": of_source["spec"]}, resources).stats
    planned = STAGE.estimate(RecordsParams(), {"graph": graph, "subgraphs": subgraphs}, resources)
    made = execute(heterograph, {}, {"graph": str(tmp_path / "mag")}, str(tmp_path / "graph"), resources, progress)
    drawn = execute(
        sample, {}, {"graph": made.dataset.uri, "spec": inputs["spec"]}, str(tmp_path / "sample"), resources, progress
    )
    records = make(tmp_path / "out", made.dataset, drawn.dataset)
    assert planned.output_bytes == pytest.approx(records.manifest.bytes, rel=0.4)


def test_links_have_two_seeds_and_a_readout(tmp_path):
    seed_sets = ("paper", "paper")
    rng = np.random.default_rng(3)
    dataset = write_heterograph(tmp_path / "graph", *some_graph(rng))
    graph = HeteroGraph.open(dataset)
    block = some_block(graph, rng, 12, seed_sets)
    subgraphs = write_subgraphs(tmp_path / "sample", graph, {"train": [[block]]}, seed_sets)
    made = make(tmp_path / "out", dataset, subgraphs)
    found = records_in(made.local("train-00000-of-00001.tfrecord"))
    assert found == [examples.serialized(expected(graph, block, s, seed_sets)) for s in range(12)]
    schema = read_schema(made.local("schema.pbtxt").read_text(), "schema.pbtxt")
    assert schema.edge_sets["_readout/source"].source == seed_sets[0]
    assert schema.edge_sets["_readout/target"].target == "_readout"
    parquet = make(tmp_path / "parquet", dataset, subgraphs, formats="parquet")
    table = parquet.table("train-00000-of-00001.parquet")
    wanted = [expected(graph, block, s, seed_sets) for s in range(12)]
    for name in ["context/seed_id", *(name for name in wanted[0] if "_readout" in name)]:
        assert [_flat(row) if "#size" not in name else [row] for row in table[name].to_pylist()] == [
            features[name][1] for features in wanted
        ], name


def test_files_of_which_most_is_needed_are_mapped_whole(made, monkeypatch):
    dataset, mapped = made[0], []
    monkeypatch.setattr(records_features, "map_whole", mapped.append)
    for short, expected_maps in ((1, 0), (0, 1)):
        source = open_source(dataset, made[1])
        papers = source.graph.node_sets["paper"]
        feature = next(each.name for each in papers.features if each.dtype == "float" and not each.is_ragged)
        source.expect({f"nodes.{source.graph.node_number('paper')}": papers.count - short})
        source.values("nodes", papers, feature)
        assert len(mapped) == expected_maps


def test_metadata_says_how_many_items_there_are(made):
    dataset, subgraphs, _ = made
    found = values_of(plan_of(subgraphs, open_source(dataset, subgraphs), RecordsParams()).subgraphs.values())
    blocks = [block for split in SPLITS for block in read_blocks(subgraphs, split)]
    layout = layout_of(subgraphs)
    for kind, used, starts in (
        ("nodes", layout.used_nodes, "node_starts"),
        ("source", layout.used_edges, "edge_starts"),
    ):
        for number in used:  # an empty list counts as one value
            sizes = np.concatenate([np.diff(getattr(block, starts)[number]) for block in blocks])
            assert found[f"{kind}.{number}"] == np.maximum(sizes, 1).sum()
