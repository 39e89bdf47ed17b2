"""Skip-gram training of the same walks: BlogCatalog, 10 walks of 80 from every vertex, p = q = 1, one epoch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.code import kept_folder, key, stage_module
from tests.benchmarks.graphs import COMPLETE, GraphFiles, blogcatalog
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median
from tests.benchmarks.quality import f1
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import run_stage

TRAINING = {"dimensions": 128, "window": 10, "negative": 5}
STAND_IN = "not a published graph: no target, and quality compares between the two sides only"


@dataclass(frozen=True)
class Corpus:
    """Walks as our datasets and as text of vertex numbers, a line for each walk."""

    graph: GraphFiles
    walks: Path
    vocabulary: Path
    text: Path
    vertices: int


def gensim(setting: Setting) -> list[Row]:
    """Wall time of both, two threads against two workers."""
    corpus = _corpus(setting)
    row = Row(
        f"skip-gram training, {corpus.graph.name}",
        "gensim, 2 workers",
        "tokens/s",
        setting.target(10, corpus.graph.real),
    )
    return [_compare(setting, corpus, row, "gensim_train", 2)]


def mllib(setting: Setting) -> list[Row]:
    """CPU time of both, which needs less care for idle cores of a JVM."""
    corpus = _corpus(setting)
    row = Row(
        f"skip-gram training, {corpus.graph.name}",
        "Spark MLlib, local[2]",
        "CPU s",
        setting.target(15, corpus.graph.real),
    )
    return [_compare(setting, corpus, row, "mllib_train", 1)]


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"training-gensim": gensim, "training-mllib": mllib}


def _corpus(setting: Setting) -> Corpus:
    graph = blogcatalog(setting)
    num_walks = 1 if setting.quick else 10
    modules = (__name__, stage_module("walk"), stage_module("prepare"))
    folder = kept_folder(graph.folder, "corpus", key(modules, num_walks=num_walks))
    corpus = Corpus(graph, folder / "walk", folder / "prepare", folder / "walks.txt", _vertices(graph))
    if not (folder / COMPLETE).exists():
        setting.say("making the walks to train on")
        run_stage(setting, "walk", {"graph": graph.index(False)}, corpus.walks, {"num_walks": num_walks})
        inputs = {"graph": graph.index(False), "walks": corpus.walks}
        run_stage(setting, "prepare", inputs, corpus.vocabulary)
        with corpus.text.open("w") as stream:
            for shard in sorted(corpus.walks.glob("walks-*.npy")):
                for walk in np.load(shard).tolist():
                    stream.write(" ".join(map(str, walk)) + "\n")
        (folder / COMPLETE).touch()
    return corpus


def _compare(setting: Setting, corpus: Corpus, row: Row, script: str, rounds: int) -> Row:
    own_file, peer_file = corpus.text.with_name("own.npy"), corpus.text.with_name("peer.npy")
    with setting.own("training", corpus.walks, corpus.vocabulary) as own:

        def train(worker: Worker, out: Path, **more: int) -> dict[str, Any]:
            done = worker.ask(**TRAINING, seed=1, out=str(out), **more)
            setting.say(
                f"{out.stem}: {done['tokens'] / done['wall_s'] / 1e3:.0f} k tokens/s, {done['cpu_s']:.1f} CPU s"
            )
            return done

        try:
            with setting.peer(script, corpus.text, corpus.vertices) as peer:
                results = alternate(
                    {
                        "own": lambda: train(own, own_file, threads=setting.threads),
                        "peer": lambda: train(peer, peer_file, workers=setting.threads),
                    },
                    rounds,
                )
                results["own"].append(train(own, own_file, threads=setting.threads))
        except PeerFailed as error:
            return Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}")
    assert results["own"][0]["tokens"] == results["peer"][0]["tokens"]
    cpu = [median([each["cpu_s"] for each in results[side]]) for side in ("own", "peer")]
    speed = [median([each["tokens"] / each["wall_s"] for each in results[side]]) for side in ("own", "peer")]
    ours, theirs = cpu if row.unit == "CPU s" else speed
    setting.say("judging both sides' vectors")
    qualities = [f1(corpus.graph, np.load(path)) for path in (own_file, peer_file)]
    note = "" if corpus.graph.real else STAND_IN
    return Row(
        row.name, row.peer_name, row.unit, row.target, ours, theirs, cpu=(cpu[0], cpu[1]),
        quality_ours=qualities[0], quality_peer=qualities[1], note=note,
    )  # fmt: skip


def _vertices(graph: GraphFiles) -> int:
    return int(pq.read_metadata(graph.index(False) / "vertices.parquet").num_rows)
