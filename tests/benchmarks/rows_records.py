"""Records of sampled subgraphs of a heterograph of MAG's sizes with features, and batches for training from them.

Encoding: the same subgraphs as tf.train.Example messages, with one thread, by our kernels and by the protobuf package,
whose messages are built from the same arrays and serialized. Batches: of 64 subgraphs, as tensors, from what our stages
store and by `tfgnn.parse_example` in tf.data from our TFRecords. Both by CPU seconds, which other load disturbs less.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import Measurement
from superworkflow.tasks import records, sample
from superworkflow.tasks.lib.graph.heterograph import GRAPH_FILE, Feature, HeteroGraph, feature_stem
from superworkflow.tasks.lib.graph.heterograph_writer import stats_of, write_feature, write_graph_file
from tests.benchmarks.code import kept_folder, key
from tests.benchmarks.measure import PeerFailed, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.rows_sampling import SPEC, TFGNN, mag_sized
from tests.benchmarks.setting import Setting

FEATURES = (Feature("feat", "float", (128,)), Feature("labels", "int64", ()), Feature("year", "int64", ()))


def encoding(setting: Setting) -> list[Row]:
    row = Row("records as tf.train.Example, MAG's sizes", "protobuf", "bytes/CPU s", setting.target(25))
    folder = mag_subgraphs(setting)
    few, many = (16, 64) if setting.quick else (128, 2048)
    with setting.own("encoding", folder) as worker:
        for side, count in (("protobuf", 4), ("own", many)):
            worker.ask(side=side, subgraphs=count)
        results = alternate(
            {
                "own": lambda: worker.ask(side="own", subgraphs=many),
                "peer": lambda: worker.ask(side="protobuf", subgraphs=few),
            },
            setting.rounds + 2,
        )
    ours, theirs = (median([each["bytes"] / each["cpu_s"] for each in results[side]]) for side in ("own", "peer"))
    setting.say(f"{row.name}: {ours:.3g} bytes a CPU second, {row.peer_name} {theirs:.3g}")
    note = "one thread each; bytes are equal"
    return [Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, (1 / ours, 1 / theirs), note=note)]


def loading(setting: Setting) -> list[Row]:
    kinds = {"read anew": False, "in memory since the epoch before": True}
    rows = {
        kept: Row(f"batches of 64 subgraphs, MAG's sizes, {kind}", "tfgnn.parse_example", "batches/CPU s",
                  setting.target(5))
        for kind, kept in kinds.items()
    }  # fmt: skip
    folder = mag_subgraphs(setting)
    try:
        if not TFGNN.exists():
            raise PeerFailed("make oracles sets up its environment")
        with (
            setting.own("loading", folder) as own,
            setting.peer("tfgnn_parse", folder / "records", python=str(TFGNN)) as peer,
        ):
            own.ask(kept=True)
            peer.ask(batches=4)
            results = alternate(
                {
                    "read": lambda: own.ask(kept=False), "kept": lambda: own.ask(kept=True),
                    "peer": lambda: peer.ask(batches=4 if setting.quick else 64),
                },
                setting.rounds + 2,
            )  # fmt: skip
    except PeerFailed as error:
        return [
            Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}")
            for row in rows.values()
        ]
    rate = {side: median([each["batches"] / each["cpu_s"] for each in found]) for side, found in results.items()}
    note = "shuffled ours, in the order of the files the peer's"
    made = []
    for kept, row in rows.items():
        ours, theirs = rate["kept" if kept else "read"], rate["peer"]
        setting.say(f"{row.name}: {ours:.3g} a CPU second, {row.peer_name} {theirs:.3g}")
        made.append(Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, (1 / ours, 1 / theirs), note=note))
    return made


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"records-encoding": encoding, "records-loading": loading}


def mag_subgraphs(setting: Setting) -> Path:
    """A folder with datasets `graph`, of `mag_sized` with random features, `sample` and `records`."""
    papers, bare = (256 if setting.quick else 8192), mag_sized(setting)
    folder = kept_folder(setting.data, "mag-subgraphs", key((__name__,), papers=papers, graph=bare.name))
    if (folder / "records" / "manifest.json").exists():
        return folder
    setting.say("making records of subgraphs")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    graph = _with_features(Dataset.open(bare), folder / "graph")
    spec, seeds = folder / "spec.pbtxt", folder / "seeds.csv"
    spec.write_text(SPEC)
    numbers = np.random.default_rng(3).choice(graph.node_sets["paper"].count, papers, replace=False)
    seeds.write_text("id\n" + "".join(f"{number:08}\n" for number in numbers.tolist()))
    given = {"graph": str(folder / "graph"), "spec": str(spec), "seeds": str(seeds)}
    resources, progress = Resources(cpu=setting.threads), Progress("benchmark", stream=setting.stream)
    params = {"fractions": [1.0, 0.0, 0.0]}
    execute(sample.STAGE, params, given, str(folder / "sample"), resources, progress)
    given = {"graph": str(folder / "graph"), "subgraphs": str(folder / "sample")}
    execute(records.STAGE, {}, given, str(folder / "records"), resources, progress)
    return folder


def _with_features(bare: Dataset, folder: Path) -> HeteroGraph:
    graph, output = HeteroGraph.open(bare), DatasetWriter(folder)
    for name in bare.files():
        if name != GRAPH_FILE:
            with output.file(name) as path:
                shutil.copyfile(bare.local(name), path)
    rng, papers = np.random.default_rng(2), graph.node_sets["paper"].count
    number = graph.node_number("paper")
    columns = (rng.random((papers, 128), np.float32), rng.integers(0, 349, papers), rng.integers(2010, 2020, papers))
    for place, values in enumerate(columns):
        write_feature(output, feature_stem("nodes", number, place), FEATURES[place], values)
    nodes = [each._replace(features=FEATURES if each.name == "paper" else ()) for each in graph.node_sets.values()]
    edges = list(graph.edge_sets.values())
    write_graph_file(output, nodes, edges)
    output.commit(
        stage="heterograph", version="1", params={"features": True}, inputs={}, stats=stats_of(nodes, edges),
        measured=Measurement(runtime_s=0, cpu_s=0, peak_memory_bytes=0, rows=0, bytes=0), software={},
    )  # fmt: skip
    return HeteroGraph.open(Dataset.open(folder))
