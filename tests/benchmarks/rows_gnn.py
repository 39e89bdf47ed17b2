"""Mini-batches of GraphSAGE on a power-law graph with communities, by one thread of both sides: CPU seconds.

Three layers of 256 on 100 features, fan-outs 5, 10, 15 from the targets outwards. A batch is ready when what the first
layer multiplies is there: the peer has the rows of all its nodes then, ours has the means of the neighbours' already.
With all neighbours in the outermost hop our side reads means of the whole graph, as stage aggregate makes them once,
which is not in the figure. No dropout. Both sides learn with the same settings and are judged with the fan-outs that
they were trained with, on the same nodes.

R-GCN learns the sections of Debian's packages, with the settings of docs/measurements/gnn.md but for dropout.
Inference covers all nodes layer by layer with all neighbours, with the same weights on both sides; the peer does so in
batches, and on the whole graph, which has a row of its own. Both write down what came out, which has to
be the same to 1e-4.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.gnn_graphs import GnnGraph, communities, debian
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

SAGE = {"model": "sage", "layers": 3, "hidden": 256, "learning_rate": 0.003}
RGCN = {"model": "rgcn", "layers": 2, "hidden": 64, "bases": 4, "learning_rate": 0.01}
DRAWN, OUTERMOST = "5,10,15", "5,10,all"
JUDGED = 4096
PEER, LOADER = "DGL", "torch_geometric's NeighborLoader"
AT_ONCE = 8192
"""Nodes of a batch in inference; the default of stage infer."""
HOW = {"batches": f"in batches of {AT_ONCE} on both sides", "whole": "the peer's on the whole graph"}
"""How the peer infers: as its examples do on graphs of any size, or with all rows of a layer in memory."""
EQUAL = 1e-4
Params = dict[str, Any]


def batches(setting: Setting) -> list[Row]:
    """Blocks drawn and features gathered."""
    graph = community_graph(setting)
    cases = (("", DRAWN, 5), (", all neighbours outermost", OUTERMOST, 15))
    rows = [
        Row(f"batches ready, {graph.name}{more}", PEER, "batches/CPU s", setting.target(target))
        for more, _, target in cases
    ]
    requested = [{**SAGE, "fanouts": fanouts, "batch": graph.batch} for _, fanouts, _ in cases]
    return _of_peer(setting, rows, "batches", graph, [(each, each) for each in requested], 12)


def epochs(setting: Setting) -> list[Row]:
    """Steps of training, and accuracy after as many steps of both sides."""
    graph = community_graph(setting)
    cases: tuple[tuple[str, str, float, Params], ...] = (
        ("", DRAWN, 2.5, {}),
        (", products of bfloat16", DRAWN, 3, {"products": "bfloat16"}),
        (", all neighbours outermost, products of bfloat16", OUTERMOST, 4, {"products": "bfloat16"}),
    )
    rows = [
        Row(f"training, {graph.name}{more}", PEER, "steps/CPU s", setting.target(target))
        for more, _, target, _ in cases
    ]
    requested = [{**SAGE, "fanouts": fanouts, "batch": graph.batch} for _, fanouts, _, _ in cases]
    given = [{**each, **more} for each, (_, _, _, more) in zip(requested, cases, strict=True)]
    return _of_peer(setting, rows, "train", graph, [(each, each) for each in given], 8)


def neighbor_loader(setting: Setting) -> list[Row]:
    """Batches and steps of torch_geometric, of the same network on the same graph."""
    graph, params = community_graph(setting), {**SAGE, "fanouts": DRAWN}
    params["batch"] = graph.batch
    rows = [
        Row(f"batches ready, {graph.name}", LOADER, "batches/CPU s", None),
        Row(f"training, {graph.name}", LOADER, "steps/CPU s", setting.target(8)),
    ]
    try:
        python = setting.set_up_apart("pyg")
        given = setting.own("gnn_training", graph.folder), setting.peer("pyg_training", graph.folder, python=python)
        with given[0] as own, given[1] as peer:
            sides = {"own": (own, params), "peer": (peer, params)}
            return [
                _compared(setting, row, work, graph, sides, 2)
                for row, work in zip(rows, ("batches", "train"), strict=True)
            ]
    except PeerFailed as error:
        return [replace(row, note=f"no figure of the peer: {error}") for row in rows]


def rgcn(setting: Setting) -> list[Row]:
    """Epochs of R-GCN on Debian's packages."""
    graph = debian(setting, 1024)
    if graph is None:
        setting.say("this is no Debian system that has fetched its lists of packages: R-GCN is not measured")
        return []
    cases = ((", all neighbours outermost", "15,all"), ("", "15,10"))
    rows = [Row(f"training, R-GCN, {graph.name}{more}", PEER, "steps/CPU s", setting.target(3)) for more, _ in cases]
    requested = [{**RGCN, "fanouts": fanouts, "batch": graph.batch} for _, fanouts in cases]
    return _of_peer(setting, rows, "train", graph, [(each, each) for each in requested], 2 * graph.steps)


def inference(setting: Setting) -> list[Row]:
    """All nodes, layer by layer, with all neighbours, as the peer does so in batches and on the whole graph."""
    rows = []
    cases = (
        ("SAGE", community_graph(setting), {**SAGE, "fanouts": "all,all,all"}),
        ("R-GCN", debian(setting, 1024), {**RGCN, "fanouts": "all,all"}),
    )
    for name, graph, params in cases:
        if graph is not None:
            empty = {
                how: Row(f"inference, {name}, {graph.name}, {what}", PEER, "CPU s", setting.target(3))
                for how, what in HOW.items()
            }
            try:
                with _sides(setting, graph) as (own, peer), tempfile.TemporaryDirectory(dir=setting.data) as folder:
                    rows += _inferred(setting, empty, own, peer, params, Path(folder))
            except PeerFailed as error:
                rows += [replace(row, note=f"no figure of the peer: {error}") for row in empty.values()]
    return rows


def _inferred(
    setting: Setting, rows: dict[str, Row], own: Worker, peer: Worker, params: Params, folder: Path
) -> list[Row]:
    request = {"work": "infer", "params": params, "batch": AT_ONCE}
    weights, ours, theirs = (str(folder / name) for name in ("weights.npz", "ours.npy", "theirs.npy"))
    own.ask(work="save", params=params, to=weights)
    peer.ask(work="load", params=params, **{"from": weights})
    own.ask(**request, to=ours)
    apart = {}
    for how in rows:
        peer.ask(**request, how=how, to=theirs)
        apart[how] = float(np.abs(np.load(ours) - np.load(theirs)).max())
    sides = {how: lambda how=how: peer.ask(**request, how=how) for how in rows}
    answers = alternate({"own": lambda: own.ask(**request), **sides}, setting.rounds)
    cost = {side: median([each["cpu_s"] for each in found]) for side, found in answers.items()}
    found = []
    for how, row in rows.items():
        note = f"the largest difference of a number is {apart[how]:.1g}; one thread each"
        setting.say(f"{row.name}: {cost['own']:.2f} CPU s, {PEER} {cost[how]:.2f}; {note}")
        if apart[how] > EQUAL:
            found.append(replace(row, note=f"outputs differ: {note}"))
        else:
            found.append(replace(row, ours=cost["own"], peer=cost[how], note=note))
    return found


def community_graph(setting: Setting) -> GnnGraph:
    return (
        communities(setting, 20_000, 170_000, 128)
        if setting.quick
        else communities(setting, 1_000_000, 10_000_000, 1024)
    )


@contextmanager
def _sides(setting: Setting, graph: GnnGraph) -> Iterator[tuple[Worker, Worker]]:
    """Ours and the peer's, ready."""
    python = setting.set_up_apart("dgl")
    given = setting.own("gnn_training", graph.folder), setting.peer("dgl_training", graph.folder, python=python)
    with given[0] as own, given[1] as peer:
        yield own, peer


def _of_peer(
    setting: Setting, rows: list[Row], work: str, graph: GnnGraph, requested: list[tuple[Params, Params]], steps: int
) -> list[Row]:
    """Rows of `steps` steps of both sides, with parameters of ours and of the peer for each."""
    try:
        with _sides(setting, graph) as (own, peer):
            return [
                _compared(setting, row, work, graph, {"own": (own, ours), "peer": (peer, theirs)}, steps)
                for row, (ours, theirs) in zip(rows, requested, strict=True)
            ]
    except PeerFailed as error:
        return [replace(row, note=f"no figure of the peer: {error}") for row in rows]


def _compared(
    setting: Setting, row: Row, work: str, graph: GnnGraph, sides: dict[str, tuple[Worker, Params]], steps: int
) -> Row:
    for worker, params in sides.values():
        worker.ask(work=work, params=params, steps=2, seed=0)
    seeds = {side: iter(range(1, 100)) for side in sides}
    results = alternate(
        {
            side: lambda side=side, worker=worker, params=params: worker.ask(  # type: ignore[misc]
                work=work, params=params, steps=steps, seed=next(seeds[side])
            )
            for side, (worker, params) in sides.items()
        },
        setting.rounds,
    )
    cost = {side: median([each["cpu_s"] / steps for each in found]) for side, found in results.items()}
    edges = {side: median([each["edges"] / steps for each in found]) for side, found in results.items()}
    note = f"{edges['own']:.0f} edges drawn a batch of ours, {edges['peer']:.0f} of the peer's; one thread each"
    quality = []
    if work == "train":
        nodes = graph.some(2, JUDGED)
        quality = [worker.ask(work="judge", params=params, nodes=nodes) for worker, params in sides.values()]
    setting.say(f"{row.name}: {cost['own'] * 1e3:.1f} CPU ms, {row.peer_name} {cost['peer'] * 1e3:.1f} {quality}")
    ours, theirs = quality or (None, None)
    return replace(
        row, ours=1 / cost["own"], peer=1 / cost["peer"], cpu=(cost["own"], cost["peer"]), quality_ours=ours,
        quality_peer=theirs, note=note,
    )  # fmt: skip


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "gnn-batches": batches, "gnn-training": epochs, "gnn-rgcn": rgcn, "gnn-inference": inference,
    "gnn-neighbor-loader": neighbor_loader,
}  # fmt: skip
