"""Node2Vec from a file to vectors: the four stages of a run against PecanPy with gensim, the paper's p and q."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.graphs import GraphFiles, blogcatalog
from tests.benchmarks.measure import PeerFailed, alternate, median, run_command
from tests.benchmarks.own.node2vec_stages import STAGES
from tests.benchmarks.quality import embeddings_of, f1
from tests.benchmarks.report import Row
from tests.benchmarks.rows_training import STAND_IN
from tests.benchmarks.setting import Setting

P, Q, DIMENSIONS, WALK_LENGTH, WINDOW = 0.25, 0.25, 128, 80, 10


def end_to_end(setting: Setting) -> list[Row]:
    """Our time is that of a launcher from its start to its end, with the stages' processes; of the peer's, compiling is
    taken out. Ours has no orchestrator or tracker, as the peer has none."""
    graph = blogcatalog(setting)
    name = f"Node2Vec from file to vectors, {graph.name}, p={P:g} q={Q:g}"
    row = Row(name, "PecanPy + gensim", "s", setting.target(15, graph.real))
    num_walks = 1 if setting.quick else 10
    folder = graph.folder / "end-to-end"
    folder.mkdir(exist_ok=True)
    out, nodes = folder / "peer.npy", folder / "peer.txt"

    def own() -> dict[str, Any]:
        for name in STAGES:
            shutil.rmtree(folder / name, ignore_errors=True)
        walk = {"num_walks": num_walks, "walk_length": WALK_LENGTH, "p": P, "q": Q}
        embed = {"dimensions": DIMENSIONS, "window": WINDOW}
        command = [sys.executable, "-m", "tests.benchmarks.own.node2vec_stages", str(graph.tsv), str(folder)]
        command += [str(setting.threads), json.dumps(walk), json.dumps(embed)]
        measured = run_command(command, setting.threads, setting.folder / "logs" / "node2vec_stages.log")
        parts = measured.document()
        setting.say("own: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items()))
        return {"wall_s": measured.wall_s, "cpu_s": measured.cpu_s, "parts": parts}

    def peer() -> dict[str, Any]:
        arguments = (graph.tsv, out, nodes, P, Q, DIMENSIONS, num_walks, WALK_LENGTH, WINDOW)
        measured = setting.peer_command("pecanpy_end_to_end", *arguments)
        facts = measured.document()
        parts = {name: facts[f"{name}_s"] for name in ("compile", "read", "walk", "train")}
        setting.say("PecanPy + gensim: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items()))
        return {
            "wall_s": measured.wall_s - facts["compile_s"], "cpu_s": measured.cpu_s - facts["compile_cpu_s"],
            "parts": parts,
        }  # fmt: skip

    try:
        results = alternate({"own": own, "peer": peer}, setting.rounds - 1)
    except PeerFailed as error:
        return [Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure: {error}")]
    ours, theirs = (median([each["wall_s"] for each in results[side]]) for side in ("own", "peer"))
    cpu = [median([each["cpu_s"] for each in results[side]]) for side in ("own", "peer")]
    setting.say("judging both sides' vectors")
    quality = (
        f1(graph, embeddings_of(folder / "embed", folder / "index"), folder / "index"),
        f1(graph, _in_order(graph, np.load(out), nodes)),
    )
    shown = {side: ", ".join(f"{k} {v:.1f}" for k, v in results[side][-1]["parts"].items()) for side in results}
    note = f"seconds, ours: {shown['own']}; the peer's: {shown['peer']}, compiling not counted"
    if not graph.real:
        note += f"; {STAND_IN}"
    return [
        Row(
            row.name, row.peer_name, row.unit, row.target, ours, theirs, cpu=(cpu[0], cpu[1]),
            quality_ours=quality[0], quality_peer=quality[1], note=note,
        )
    ]  # fmt: skip


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"end-to-end": end_to_end}


def _in_order(graph: GraphFiles, vectors: Any, nodes: Path) -> Any:
    """The peer's vectors in the order of our vertices."""
    place = {node: row for row, node in enumerate(nodes.read_text().splitlines())}
    ours = pq.read_table(graph.index(False) / "vertices.parquet", columns=["node"])["node"].to_pylist()
    return vectors[[place[node] for node in ours]]
