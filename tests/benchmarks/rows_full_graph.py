"""Work of training on whole graphs against that of libraries, in CPU seconds of one thread; see `own/gathers.py` and
`own/full_graph_epochs.py`."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from tests.benchmarks.graphs import short
from tests.benchmarks.measure import Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

GATHER, SMALL_GATHER = (200_000, 4_000_000, 64), (5_000, 100_000, 64)
"""Vertices, arcs and columns."""
PEERS = {"torch": ("torch.sparse", 7.0), "scipy": ("SciPy", 12.0), "dgl": ("DGL", 2.5)}
"""Names of the peers, and targets."""
OURS = ("float32", "bfloat16")
APART = {"float32": 1e-3, "bfloat16": 1.0}
"""Most that a sum may differ from SciPy's."""


def gather(setting: Setting) -> list[Row]:
    """Sums of neighbours' rows."""
    vertices, arcs, width = given = SMALL_GATHER if setting.quick else GATHER
    python = setting.set_up_apart("dgl")
    with setting.own("gathers", *given) as own, setting.peer("dgl_gather", *given, python=python) as dgl:
        for name, most in APART.items():
            assert own.facts["apart"][name] < most, own.facts
        assert dgl.facts["apart"] < APART["float32"], dgl.facts
        sides: dict[str, Callable[[], float]] = {"dgl": lambda: dgl.ask(side="dgl")["cpu_s"]}
        sides |= {name: partial(_seconds, own, name) for name in (*OURS, "torch", "scipy")}
        seconds = {name: median(found) for name, found in alternate(sides, 2 * setting.rounds).items()}
    setting.say(", ".join(f"{name} {each * 1e3:.1f} ms" for name, each in seconds.items()))
    return [
        Row(
            f"gather, {short(vertices)} vertices, {short(arcs)} arcs, width {width}, {name}", peer, "CPU s",
            setting.target(target), seconds[name], seconds[key],
        )
        for name in OURS for key, (peer, target) in PEERS.items()
    ]  # fmt: skip


SIZES, SMALL_SIZES = (10_000, 100_000, 1_000_000, 10_000_000), (1_000, 10_000)
DEGREE, MOST_GROWTH = 20, 6.0
"""Arcs of each vertex, and how many times as long one may take in the largest graph as in the smallest."""


def by_size(setting: Setting) -> list[Row]:
    """CPU time of an arc, by size of the graph."""
    rates: dict[str, dict[int, float]] = {name: {} for name in OURS}
    for vertices in SMALL_SIZES if setting.quick else SIZES:
        arcs = DEGREE * vertices
        with setting.own("gathers", vertices, arcs, GATHER[2], "ours") as own:
            sides = {name: partial(_seconds, own, name) for name in OURS}
            for name, found in alternate(sides, setting.rounds).items():
                rates[name][vertices] = arcs / median(found)
    rows = []
    for name, each in rates.items():
        note = "; ".join(
            f"{short(vertices)} vertices {1e9 / rate:.1f} CPU ns an arc" for vertices, rate in each.items()
        )
        setting.say(f"{name}: {note}")
        (first, least), (last, most) = min(each.items()), max(each.items())
        what = f"gather, {short(last)} vertices, {DEGREE} arcs each, width {GATHER[2]}, {name}"
        rows.append(Row(
            what, f"{short(first)} vertices",
            "arcs/CPU s", setting.target(1 / MOST_GROWTH), most, least, note=note,
        ))  # fmt: skip
    return rows


EPOCHS = {"gcn": (0.5, {"pyg": 15.0, "dgl": 5.0}), "gat": (0.6, {"pyg": 25.0, "dgl": 15.0})}
"""Dropout and targets by network."""
NAMES = {"pyg": "PyG", "dgl": "DGL"}


def epochs(setting: Setting) -> list[Row]:
    """Epochs of training with dropout, without validation, against the layers of PyG and DGL."""
    shapes = {"gcn": (60_000, 5_900_000), "gat": (60_000, 2_000_000)}
    return [
        row
        for model, (share, targets) in EPOCHS.items()
        for row in _epochs(setting, model, *((2_000, 60_000) if setting.quick else shapes[model]), share, targets)
    ]


def reddit(setting: Setting) -> list[Row]:
    """Epochs of GCN on a random graph of Reddit's shape (Hamilton, Ying and Leskovec, 2017); PyG alone needs 12 GB."""
    vertices, arcs = (4_000, 200_000) if setting.quick else (232_965, 114_615_892)
    return [
        row
        for peer, target in (("pyg", 20.0), ("dgl", 7.0))
        for row in _epochs(setting, "gcn", vertices, arcs, EPOCHS["gcn"][0], {peer: target})
    ]


def _epochs(
    setting: Setting, model: str, vertices: int, arcs: int, share: float, targets: Mapping[str, float]
) -> list[Row]:
    """Rows of one network on one graph."""
    given, rows = (model, vertices, arcs, share), []
    python = {name: setting.set_up_apart(name) for name in targets}
    with ExitStack() as stack:
        own = stack.enter_context(setting.own("full_graph_epochs", *given))
        sides = {name: partial(_seconds, own, name) for name in OURS}
        for name in targets:
            peer = stack.enter_context(setting.peer(f"{name}_epochs", *given, python=python[name]))
            sides[name] = partial(_seconds, peer, name)
        seconds = {name: median(found) for name, found in alternate(sides, setting.rounds).items()}
    setting.say(", ".join(f"{name} {each:.3f} s" for name, each in seconds.items()))
    for name in OURS:
        work = f"{model} epoch, {short(vertices)} vertices, {short(arcs)} arcs, {name}"
        rows += [
            Row(work, NAMES[peer], "CPU s", setting.target(target), seconds[name], seconds[peer])
            for peer, target in targets.items()
        ]
    return rows


def _seconds(worker: Worker, side: str) -> float:
    """CPU seconds of a side."""
    return float(worker.ask(side=side)["cpu_s"])


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "full-graph-gather": gather, "full-graph-by-size": by_size, "full-graph-epochs": epochs,
    "full-graph-reddit": reddit,
}  # fmt: skip
