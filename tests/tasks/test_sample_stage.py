"""The sample stage as a process runs it: shards, splits, seeds, repeats, sizes, refusals, and the live path."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.manifest import WARNING_PREFIX
from superworkflow.tasks.lib.graph.heterograph import HeteroGraph
from superworkflow.tasks.lib.subgraphs import shard_layout
from superworkflow.tasks.lib.subgraphs.blocks import (
    SPLITS,
    SubgraphBlock,
    SubgraphLayout,
    read_blocks,
    read_group,
    shard_schema,
    shard_writer,
)
from superworkflow.tasks.lib.subgraphs.shard_layout import shard_spans
from superworkflow.tasks.sample import STAGE, run, sampler
from superworkflow.tasks.sample.params import SampleParams
from superworkflow.tasks.sample.seeds import find_seeds
from superworkflow.tasks.sample.sizes import Sizes
from superworkflow.tasks.sample.spec import parse_spec
from tests.tasks.heterograph_tables import Items, run_stage, write_graph
from tests.tasks.sampling import PlainGraph, PlainSampler, id_of, plain, random_graph, same

ENDS = {"ab": ("a", "b"), "bb": ("b", "b"), "ba": ("b", "a"), "bc": ("b", "c")}
SPEC = """
seed_op { op_name: "seed" node_set_name: "b" }
sampling_ops { op_name: "one" input_op_names: "seed" edge_set_name: "bb" sample_size: 4 strategy: RANDOM_UNIFORM }
sampling_ops {
  op_name: "two" input_op_names: ["seed", "one"] edge_set_name: "bb" sample_size: 2 strategy: RANDOM_WEIGHTED
}
sampling_ops { op_name: "up" input_op_names: "two" edge_set_name: "ba" sample_size: 3 strategy: TOP_K }
"""
LATEST = SPEC.replace("TOP_K", "LATEST_K")
TWO_LATEST = SPEC.replace("RANDOM_WEIGHTED", "LATEST_K")


@pytest.fixture(scope="module")
def plain_graph() -> PlainGraph:
    made = random_graph(np.random.default_rng(1), {"a": 50, "b": 700, "c": 3}, ENDS, 3000, parallel=True)
    rng = np.random.default_rng(2)
    made.node_features["b"] = {"timestamp": rng.integers(-3, 6, 700) * 2**55}
    return made


@pytest.fixture(scope="module")
def graph(plain_graph: PlainGraph, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return plain_graph.write(tmp_path_factory.mktemp("sample") / "graph")


def make(
    graph: Dataset, output: Path, params: dict[str, object] | None = None, spec: str = SPEC, seeds: Path | None = None,
    cpu: int = 2,
) -> Dataset:  # fmt: skip
    file = output.with_suffix(".pbtxt")
    file.write_text(spec)
    inputs = {"graph": graph.uri, "spec": str(file)} | ({} if seeds is None else {"seeds": str(seeds)})
    return execute(STAGE, params or {}, inputs, str(output), Resources(cpu=cpu), Progress("sample")).dataset


def ids(dataset: Dataset) -> dict[str, list[str]]:
    return {
        split: [i for block in read_blocks(dataset, split) for i in block.sample_ids.to_pylist()] for split in SPLITS
    }


def contents(dataset: Dataset) -> dict[str, bytes]:
    return {name: dataset.local(name).read_bytes() for name in dataset.files()}


def equal(one: SubgraphBlock, other: SubgraphBlock) -> bool:
    return one.sample_ids.equals(other.sample_ids) and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for x, y in zip(one[1:], other[1:], strict=True)
        for a, b in zip(*([x], [y]) if isinstance(x, np.ndarray) else (x, y), strict=True)
    )


def test_whole_set(plain_graph: PlainGraph, graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_layout, "SHARD_STEP", 64)
    monkeypatch.setattr(shard_layout, "MOST_SUBGRAPHS", 256)
    monkeypatch.setattr(run, "GROUP_ENTRIES", 1000)
    made = make(graph, tmp_path / "made", {"repeats": 2, "size_factor": 2.0})
    assert made.manifest.rows == 1400
    spec = parse_spec(SPEC, "made.pbtxt").sized(2.0, {})
    params = SampleParams(repeats=2)
    found, seen = ids(made), 0
    oracle = PlainSampler(plain_graph, spec, params)
    assert sorted(i for each in found.values() for i in each) == sorted(
        f"{id_of('b', n)}{again}" for n in range(700) for again in ("", ":1")
    )
    assert [len(found[split]) / 1400 for split in SPLITS] == pytest.approx([0.8, 0.1, 0.1], abs=0.05)
    live = sampler.SpecSampler(HeteroGraph.open(graph), spec, params)
    seeds = find_seeds(HeteroGraph.open(graph), live.spec, params)
    edges = 0
    for split in SPLITS:
        first = 0
        for block in read_blocks(made, split):
            edges += sum(map(len, block.positions))
            assert equal(live.block(seeds.rows(split, first, first + block.subgraphs)), block)
            for number in range(0, block.subgraphs, 29):
                sample_id, _, again = block.sample_ids[number].as_py().partition(":")
                wanted = oracle.subgraph([int(block.seeds[number])], int(again or 0))
                assert sample_id == id_of("b", int(block.seeds[number]))
                assert same(plain(block, plain_graph, number), wanted)
                seen += 1
            first += block.subgraphs
        assert first == made.stats[f"subgraphs.{split}"]
    assert seen > 40
    assert len(made.files("subgraphs-train-*")) == len(shard_spans(len(found["train"]))) > 3
    assert made.stats["edges"] == edges
    assert made.stats["edges.bb.max"] >= made.stats["edges.bb.p99"] >= made.stats["edges.bb.p50"] > 0
    assert made.stats["nodes.b.mean"] > 1
    assert "nodes.c.mean" not in made.stats  # the spec cannot reach it


def test_same_bytes_with_other_threads_and_rooms(
    graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_layout, "SHARD_STEP", 64)
    for params in ({"aggregation": "node"}, {"inputs": "path", "seed": 5}):
        one = make(graph, tmp_path / f"one-{len(params)}", dict(params), cpu=1)
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "FIRST_ROOM", 32)
            two = make(graph, tmp_path / f"two-{len(params)}", dict(params), cpu=3)
        assert contents(one) == contents(two)
        assert one.stats == two.stats


def test_an_edge_of_a_tree_in_a_large_graph_takes_five_bytes(tmp_path: Path) -> None:
    """The worst there is: each edge leads to a node of its own, one of ten million, by one of 300 million edges."""
    rng, nodes, degree, subgraphs = np.random.default_rng(1), 10_000_000, 30, 300
    counts = np.repeat([15, 10, 5], [1, 15, 150])  # edges of each source; the first of a row's edges are taken
    edges, sources = counts.sum(), np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    members = np.sort(np.stack([rng.choice(nodes, edges + 1, replace=False) for _ in range(subgraphs)]), axis=1)
    slots = np.concatenate([rng.permuted(np.tile(np.arange(degree), (subgraphs, 1)), axis=1)[:, :count]
                            for count in counts], axis=1)  # fmt: skip
    positions = np.take(members, sources, axis=1) * degree + slots
    positions = np.take_along_axis(positions, np.argsort(positions, axis=1), axis=1).astype(np.int32)
    targets = rng.permuted(np.tile(np.arange(1, edges + 1, dtype=np.int32), (subgraphs, 1)), axis=1)
    starts = np.arange(subgraphs + 1)
    block = SubgraphBlock(
        pa.array(map(str, range(subgraphs))), members[:, 0].astype(np.int32),
        [starts * (edges + 1)], [members.reshape(-1).astype(np.int32)],
        [starts * edges], [np.tile(sources, subgraphs)], [targets.reshape(-1)], [positions.reshape(-1)],
    )  # fmt: skip
    path, layout = tmp_path / "shard.parquet", SubgraphLayout(1, 1, (0,), (0,))
    with shard_writer(path, shard_schema(block, layout)) as write:
        write(block)
    with pq.ParquetFile(path) as file:
        assert equal(read_group(file, 0, layout), block)
        assert equal(read_group(file, 0, layout, [0]), block._replace(positions=[np.zeros(0, np.int32)]))
    assert path.stat().st_size <= 5 * subgraphs * edges


def test_table_of_seeds(plain_graph: PlainGraph, graph: Dataset, tmp_path: Path) -> None:
    """The table's order and splits; a seed that occurs again is another sample of it; timestamps are obeyed."""
    numbers, times = [5, 3, 5, 699, 5], [4, 0, -9, 2, 1]
    table = tmp_path / "seeds.csv.gz"
    words = ["train", "valid", "train", "", "test"]
    lines = [f'"{id_of("b", n)}",{t * 2**55},{word}' for n, t, word in zip(numbers, times, words, strict=True)]
    table.write_bytes(gzip.compress("\n".join(["id,timestamp,split", *lines, ""]).encode()))
    made = make(graph, tmp_path / "made", {"repeats": 2}, LATEST, table)
    five, three = id_of("b", 5), id_of("b", 3)
    assert ids(made) == {
        "train": [five, f"{five}:1", f"{five}:2", f"{five}:3"], "validation": [three, f"{three}:1"],
        "test": [f"{five}:4", f"{five}:5"],
    }  # fmt: skip
    oracle = PlainSampler(plain_graph, parse_spec(LATEST, ""), SampleParams())
    train, test = next(read_blocks(made, "train")), next(read_blocks(made, "test"))
    for block, number, repeat, time in ((train, 0, 0, 4), (train, 3, 3, -9), (test, 1, 5, 1)):
        assert same(plain(block, plain_graph, number), oracle.subgraph([5], repeat, time * 2**55))


def test_a_seed_in_two_splits(graph: Dataset, tmp_path: Path) -> None:
    """A model that learns and is judged on it looks better than it is, unless the subgraphs are of two times."""
    table = tmp_path / "seeds.csv"
    table.write_text("id,split,timestamp\nb0001,train,1\nb0002,train,1\nb0001,test,2\nb0002,train,2\nb0003,test,2\n")
    stats = make(graph, tmp_path / "made", {}, SPEC, table).stats
    said = "seeds.csv, column split: 1 seeds are in more than one split"
    assert [str(value).startswith(said) for name, value in stats.items() if name.startswith(WARNING_PREFIX)] == [True]
    assert "(got b0001)" in str(stats[f"{WARNING_PREFIX}1"])
    assert f"{WARNING_PREFIX}1" not in make(graph, tmp_path / "times", {}, LATEST, table).stats


def test_splits_of_a_feature(plain_graph: PlainGraph, tmp_path: Path) -> None:
    words = [("train", "val", "test", "")[n % 4] for n in range(50)]
    splits = PlainGraph(
        {"b": 50}, {"bb": ("b", "b")}, {"bb": []}, node_features={"b": {"split": pa.array(words, pa.large_binary())}}
    )
    spec = 'seed_op { op_name: "seed" node_set_name: "b" }'
    made = make(splits.write(tmp_path / "graph"), tmp_path / "made", {}, spec)
    assert {split: len(found) for split, found in ids(made).items()} == {"train": 13, "validation": 13, "test": 12}
    splits.node_features["b"]["split"] = np.arange(50) % 2 * 2
    made = make(splits.write(tmp_path / "numbers"), tmp_path / "more", {}, spec)
    assert {split: len(found) for split, found in ids(made).items()} == {"train": 25, "validation": 0, "test": 25}


def test_splits_by_hash_do_not_move(graph: Dataset, plain_graph: PlainGraph, tmp_path: Path) -> None:
    """Nor with another random seed, nor among other seeds."""
    table = tmp_path / "seeds.parquet"
    pq.write_table(pa.table({"#id": [id_of("b", n) for n in range(0, 700, 7)]}), table)
    params = {"fractions": [0.5, 0.5, 0.0]}
    some = ids(make(graph, tmp_path / "some", {**params, "seed": 9}, seeds=table))
    whole = ids(make(graph, tmp_path / "whole", params))
    assert not whole["test"]
    assert all(set(some[split]) <= set(whole[split]) for split in SPLITS)
    assert sum(map(len, some.values())) == 100


def test_links(plain_graph: PlainGraph, graph: Dataset, tmp_path: Path) -> None:
    source, target = plain_graph.edges["bb"][7]
    table = tmp_path / "links.csv"
    table.write_text(f"#source,#target\n{id_of('b', source)},{id_of('b', target)}\n")
    spec = SPEC.replace('seed_op { op_name: "seed" node_set_name: "b" }', 'symmetric_link_seed_op { op_name: "seed" }')
    made = make(graph, tmp_path / "made", {"fractions": [1, 0, 0]}, spec, table)
    (block,) = read_blocks(made, "train")
    assert block.sample_ids.to_pylist() == [f"{id_of('b', source)}/{id_of('b', target)}"]
    assert block.seeds.tolist() == [[source, target]]
    wanted = PlainSampler(
        plain_graph, parse_spec(spec, "").fitted(plain_graph.nodes, HeteroGraph.open(graph).edge_sets), SampleParams()
    )
    assert same(plain(block, plain_graph, 0), wanted.subgraph([source, target]))
    pairs = {(block.nodes[1][s], block.nodes[1][t]) for s, t in zip(block.sources[2], block.targets[2], strict=True)}
    assert not pairs & {(source, target), (target, source)}


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        ("id\nb0001\nb9999\nb9998\n", SPEC, r"2 of 3 seeds are no nodes of set 'b'.*\(got 'b9999'\)"),
        ("name\nb0001\n", SPEC, "cannot be read"),
        ("id,split\nb0001,trian\n", SPEC, r"unknown split \(got 'trian'\)"),
        ("id\tsplit\nb0001\ttrian\n", SPEC, r"unknown split \(got 'trian'\)"),
        ("id,timestamp\nb0001,5\nb0002,\n", LATEST, "no timestamp"),
        ("id,timestamp\nb0001,now\n", LATEST, "no timestamp, or one that is no integer"),
        ("\0\1\n", SPEC, "cannot be read"),
        ("id,split\nb0001,\n", SPEC, r"no seed in a split \(got '1 rows'\)"),
    ],
)
def test_refused_seeds(graph: Dataset, tmp_path: Path, text: str, spec: str, message: str) -> None:
    table = tmp_path / "seeds.csv"
    table.write_text(text)
    with pytest.raises(UserError, match=message):
        make(graph, tmp_path / "made", {}, spec, table)


@pytest.mark.parametrize(
    ("feature", "values", "spec", "message"),
    [
        ("weight", [1, 2, -1], SPEC, r"op two, edge set bb, feature weight: a weight is negative, at.*2 \(got -1"),
        ("weight", [1, np.nan, 2], SPEC, "op two, edge set bb, feature weight: a weight is not a number, at"),
        ("date", [1, 2, 3], TWO_LATEST, "op two: edge set 'bb' has no feature timestamp"),
        ("timestamp", [1, 2, 3], TWO_LATEST, "timestamps are one integer for each edge"),
    ],
)  # fmt: skip
def test_refused_features(tmp_path: Path, feature: str, values: list[float], spec: str, message: str) -> None:
    made = PlainGraph(
        {"a": 1, "b": 2}, {"bb": ("b", "b"), "ba": ("b", "a")}, {"bb": [(0, 0), (0, 1), (1, 0)], "ba": []},
        {"bb": {feature: np.array(values, np.float32)}},
    )  # fmt: skip
    with pytest.raises(UserError, match=message):
        make(made.write(tmp_path / "graph"), tmp_path / "made", {}, spec)


def test_links_and_times_need_seeds(tmp_path: Path) -> None:
    made = PlainGraph({"b": 2}, {"bb": ("b", "b")}, {"bb": [(0, 1)]}, {"bb": {"timestamp": np.array([3])}})
    graph = made.write(tmp_path / "graph")
    head, tail = SPEC.split("\n", 2)[1:]
    latest = head + "\n" + tail.split("\n")[0].replace("RANDOM_UNIFORM", "LATEST_K")
    with pytest.raises(UserError, match="op seed: the seeds have no timestamps"):
        make(graph, tmp_path / "made", {}, latest)
    link = latest.replace(
        'seed_op { op_name: "seed" node_set_name: "b" }', 'symmetric_link_seed_op { op_name: "seed" }'
    )
    with pytest.raises(UserError, match="links need a table of seeds"):
        make(graph, tmp_path / "link", {}, link)


def test_of_equal_weights_the_later_rows_of_the_table_are_taken(tmp_path: Path) -> None:
    """Whatever the ids of their ends; all weights are equal where there are none; reversed edges are those rows too."""
    many, one = list("edcba"), ["s"] * 5
    weights: dict[str, Any] = {"weight": [1.0, 1.0, 2.0, 1.0, 1.0]}
    kind: Any = {"weight": ("float", ())}
    edges = {
        "out": Items({"source": one, "target": many} | weights, kind, ("n", "n"), "out.csv"),
        "plain": Items({"source": one, "target": many}, {}, ("n", "n"), "plain.csv"),
        "in": Items({"source": many, "target": one} | weights, kind, ("n", "n"), "in.csv"),
        "back": Items(ends=("n", "n"), file="in.csv", reverses="in"),
    }
    graph = run_stage(
        write_graph(tmp_path / "tables", {"n": Items({"id": ["s", *many]}, file="n.csv")}, edges), tmp_path / "graph"
    )
    spec = 'seed_op { op_name: "seed" node_set_name: "n" }' + "".join(
        f'sampling_ops {{ op_name: "{name}" input_op_names: "seed" edge_set_name: "{name}" sample_size: 2 '
        "strategy: TOP_K }"
        for name in ("out", "plain", "back")
    )
    seeds = tmp_path / "seeds.csv"
    seeds.write_text("id,split\ns,train\n")
    (block,) = read_blocks(make(graph.dataset, tmp_path / "made", {}, spec, seeds), "train")
    names = graph.ids("n").to_pylist()
    found = {
        name: "".join(names[graph.rows(name).indices[place]] for place in block.positions[graph.edge_number(name)])
        for name in ("out", "plain", "back")
    }
    assert found == {"out": "ac", "plain": "ab", "back": "ac"}


def test_full_disk_and_again(graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Shards written before the disk was full are adopted; the files equal those of an undisturbed run."""
    monkeypatch.setattr(shard_layout, "SHARD_STEP", 64)
    whole, written = run.write_shard, []

    def full(path: Path, *arguments: Any) -> Sizes:
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        written.append(path.name)
        return whole(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_shard", full)
        with pytest.raises(UserError, match="No space left"):
            make(graph, tmp_path / "made", cpu=1)
    capsys.readouterr()
    again = make(graph, tmp_path / "made", cpu=1)
    assert "shards are from an earlier attempt" in capsys.readouterr().err
    undisturbed = make(graph, tmp_path / "undisturbed")
    assert again.manifest.files == undisturbed.manifest.files
    assert again.stats == undisturbed.stats
