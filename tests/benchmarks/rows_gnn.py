"""Mini-batches of GraphSAGE on a power-law graph with communities, by one thread of both sides: CPU seconds.

Three layers of 256 on 100 features, fan-outs 5, 10, 15 from the targets outwards. A batch is ready when what the first
layer multiplies is there: the peer has the rows of all its nodes then, ours has the means of the neighbours' already.
With all neighbours in the outermost hop our side reads means of the whole graph, as stage aggregate makes them once,
which is not in the figure. No dropout. Both sides learn with the same settings and are judged with the fan-outs that
they were trained with, on the same nodes.

Look-ahead has no peer but itself: what is kept of the speed of two workers when each exchange takes 5 ms longer.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import scipy.sparse

from superworkflow.tasks._generate_communities import EDGES, FEATURES, LABELS, generate_communities
from tests.benchmarks.code import kept_folder, key
from tests.benchmarks.graphs import COMPLETE
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median, run_command
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

DRAWN, OUTERMOST = [5, 10, 15], [5, 10, -1]
JUDGED = 4096
PEER = "DGL"


def batches(setting: Setting) -> list[Row]:
    """Blocks drawn and features gathered."""
    folder, name, batch = community_graph(setting)
    cases = (("", DRAWN, 5), (", all neighbours outermost", OUTERMOST, 15))
    rows = [Row(f"batches ready, {name}{more}", PEER, "batches/CPU s", setting.target(t)) for more, _, t in cases]
    asked = [{"work": "batches", "fanouts": fanouts, "batch": batch} for _, fanouts, _ in cases]
    return _measured(setting, folder, rows, [(each, each) for each in asked], 12)


def epochs(setting: Setting) -> list[Row]:
    """Steps of training, and accuracy after as many steps of both sides."""
    folder, name, batch = community_graph(setting)
    cases: tuple[tuple[str, list[int], float, dict[str, Any]], ...] = (
        ("", DRAWN, 2.5, {}),
        (", all neighbours outermost, products of bfloat16", OUTERMOST, 4, {"products": "bfloat16"}),
    )
    rows = [Row(f"training, {name}{more}", PEER, "steps/CPU s", setting.target(t)) for more, _, t, _ in cases]
    asked = [
        {"work": "train", "fanouts": fanouts, "batch": batch, "learning_rate": 0.003} for _, fanouts, _, _ in cases
    ]
    pairs = [({**each, **more}, each) for each, (_, _, _, more) in zip(asked, cases, strict=True)]
    return _measured(setting, folder, rows, pairs, 8)


def look_ahead(setting: Setting) -> list[Row]:
    """Steps of two workers, with 5 ms added to each exchange and without; see `own/gnn_look_ahead.py`."""
    folder = setting.data / "look-ahead"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    given = ["--nodes", "2000" if setting.quick else "20000", "--rounds", str(setting.rounds)]
    command = [sys.executable, "-m", "tests.benchmarks.own.gnn_look_ahead", str(folder), *given]
    measured = run_command(command, 1, setting.folder / "logs" / "own-gnn_look_ahead.log").document()
    rows = []
    for name, of in measured["models"].items():
        ms = of["ms_a_step"]
        note = (
            f"without look-ahead {of['kept_without_look_ahead']:.0%} of {1000 / ms['alone']:.1f} steps/s is kept, with "
            f"look-ahead and no delay of the sums of gradients {of['kept_sums_apart']:.0%}"
        )
        rows.append(
            Row(
                f"training by 2 workers, SAGE {name}, 5 ms added to each exchange", "itself without them", "steps/s",
                setting.target(0.9), 1000 / ms["ahead_late"], 1000 / ms["ahead"], note=note,
            )
        )  # fmt: skip
    return rows


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "gnn-batches": batches, "gnn-training": epochs, "gnn-look-ahead": look_ahead,
}  # fmt: skip


def _measured(
    setting: Setting, folder: Path, rows: list[Row], asked: list[tuple[dict[str, Any], dict[str, Any]]], steps: int
) -> list[Row]:
    python = setting.set_up_apart("dgl")
    try:
        with setting.own("gnn_training", folder) as own, setting.peer("dgl_training", folder, python=python) as peer:
            return [
                _compared(setting, row, own, peer, *pair, folder, steps)
                for row, pair in zip(rows, asked, strict=True)
            ]  # fmt: skip
    except PeerFailed as error:
        return [
            Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}") for row in rows
        ]


def _compared(
    setting: Setting, row: Row, own: Worker, peer: Worker, ours: dict[str, Any], theirs: dict[str, Any], folder: Path,
    steps: int,
) -> Row:  # fmt: skip
    sides = {"own": (own, ours), "peer": (peer, theirs)}
    for worker, request in sides.values():
        worker.ask(**request, steps=2, seed=0)
    seeds = {side: iter(range(1, 100)) for side in sides}
    results = alternate(
        {
            side: lambda side=side, worker=worker, request=request: worker.ask(  # type: ignore[misc]
                **request, steps=steps, seed=next(seeds[side])
            )
            for side, (worker, request) in sides.items()
        },
        setting.rounds,
    )
    cost = {side: median([each["cpu_s"] / steps for each in found]) for side, found in results.items()}
    edges = {side: median([each["edges"] / steps for each in found]) for side, found in results.items()}
    note = f"{edges['own']:.0f} edges drawn a batch of ours, {edges['peer']:.0f} of the peer's; one thread each"
    quality = []
    if ours["work"] == "train":
        tested = np.setdiff1d(np.arange(len(np.load(folder / "labels.npy"))), np.load(folder / "train.npy"))
        nodes = np.random.default_rng(1).choice(tested, min(JUDGED, len(tested)), replace=False).tolist()
        for worker, request in sides.values():
            quality.append(worker.ask(**{**request, "work": "judge"}, nodes=nodes))
    setting.say(f"{row.name}: {cost['own'] * 1e3:.1f} CPU ms, {PEER} {cost['peer'] * 1e3:.1f} {quality}")
    return Row(
        row.name, row.peer_name, row.unit, row.target, 1 / cost["own"], 1 / cost["peer"],
        cpu=(cost["own"], cost["peer"]), quality_ours=quality[0] if quality else None,
        quality_peer=quality[1] if quality else None, note=note,
    )  # fmt: skip


def community_graph(setting: Setting) -> tuple[Path, str, int]:
    """A folder of arrays, a name, and the size of a batch."""
    nodes, edges, batch = (20_000, 170_000, 128) if setting.quick else (1_000_000, 10_000_000, 1024)
    folder = kept_folder(setting.data, "communities", key((__name__,), nodes=nodes, edges=edges))
    name = f"communities {nodes // 1000}k/{2 * edges / 1e6:.2g}M"
    if (folder / COMPLETE).exists():
        return folder, name, batch
    setting.say(f"making the graph: {name}")
    raw = generate_communities(nodes, edges, folder / "raw", seed=1)
    ends = pq.read_table(raw / EDGES)
    source, target = (ends[column].to_numpy() for column in ("source", "target"))
    ones = np.ones(len(source), np.int8)
    half = scipy.sparse.coo_array((ones, (source, target)), shape=(nodes, nodes)).tocsr()
    matrix = (half + half.T).tocsr()
    matrix.sort_indices()
    table = pq.read_table(raw / FEATURES)
    features = np.empty((nodes, 100), np.float32)
    lists = table["features"].combine_chunks()
    features[table["node"].to_numpy()] = lists.flatten().to_numpy().reshape(nodes, -1)
    labelled = pacsv.read_csv(raw / LABELS)
    labels = np.zeros(nodes, np.int64)
    labels[labelled["node"].to_numpy()] = labelled["label"].to_numpy()
    train = np.sort(np.random.default_rng(1).permutation(nodes)[: nodes // 2])
    arrays = {
        "indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32), "features": features,
        "labels": labels, "train": train,
    }  # fmt: skip
    for what, values in arrays.items():
        np.save(folder / f"{what}.npy", values)
    (folder / COMPLETE).touch()
    return folder, name, batch
