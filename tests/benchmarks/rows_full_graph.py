"""Work of training on whole graphs against that of libraries, in CPU seconds of one thread; see `own/gathers.py` and
`own/full_graph_epochs.py`."""

from collections.abc import Callable

from tests.benchmarks.graphs import short
from tests.benchmarks.measure import alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

GATHER, SMALL_GATHER = (200_000, 4_000_000, 64), (5_000, 100_000, 64)
"""Vertices, arcs and columns."""
PEERS = {"torch": ("torch.sparse", 7.0), "scipy": ("SciPy", 12.0)}
"""Names of the peers, and targets."""
OURS = ("float32", "bfloat16")
APART = {"float32": 1e-3, "bfloat16": 1.0}
"""Most that a sum may differ from SciPy's."""


def gather(setting: Setting) -> list[Row]:
    """Sums of neighbours' rows."""
    vertices, arcs, width = SMALL_GATHER if setting.quick else GATHER
    with setting.own("gathers", vertices, arcs, width) as own:
        for name, most in APART.items():
            assert own.facts["apart"][name] < most, own.facts
        sides = {name: lambda name=name: own.ask(side=name)["cpu_s"] for name in (*OURS, *PEERS)}  # type: ignore[misc]
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
            sides = {name: lambda name=name: own.ask(side=name)["cpu_s"] for name in OURS}  # type: ignore[misc]
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


EPOCHS = {"gcn": (60_000, 5_900_000, 0.5, 15.0), "gat": (60_000, 2_000_000, 0.6, 25.0)}
"""Vertices, arcs, dropout and target by network."""
SMALL_EPOCHS = {"gcn": (2_000, 60_000, 0.5, 15.0), "gat": (2_000, 60_000, 0.6, 25.0)}


def epochs(setting: Setting) -> list[Row]:
    """Epochs of training with dropout, without validation, against PyG's layers."""
    python, rows = setting.set_up_apart("pyg"), []
    for model, (vertices, arcs, share, target) in (SMALL_EPOCHS if setting.quick else EPOCHS).items():
        given = model, vertices, arcs, share
        with setting.own("full_graph_epochs", *given) as own, setting.peer("pyg_epochs", *given, python=python) as peer:
            sides = {name: lambda name=name: own.ask(side=name)["cpu_s"] for name in OURS}  # type: ignore[misc]
            sides["pyg"] = lambda peer=peer: peer.ask(side="pyg")["cpu_s"]  # type: ignore[misc]
            seconds = {name: median(found) for name, found in alternate(sides, setting.rounds).items()}
        setting.say(", ".join(f"{name} {each:.3f} s" for name, each in seconds.items()))
        rows += [
            Row(
                f"{model} epoch, {short(vertices)} vertices, {short(arcs)} arcs, {name}", "PyG", "CPU s",
                setting.target(target), seconds[name], seconds["pyg"],
            )
            for name in OURS
        ]  # fmt: skip
    return rows


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "full-graph-gather": gather, "full-graph-by-size": by_size, "full-graph-epochs": epochs,
}  # fmt: skip
