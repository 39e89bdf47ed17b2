"""Random walks: steps per second of our whole job against a part of the same job by the peers.

Ours is 10 walks of 80 vertices from every vertex, with the tables that it builds for that. A peer, whose graph is
loaded and whose kernels are compiled, makes as many of these walks as it can in some seconds.
"""

from collections.abc import Callable, Mapping

from tests.benchmarks.graphs import GraphFiles, blogcatalog, power_law
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

WALK_LENGTH, NUM_WALKS = 80, 10
PEERS = {"ensmallen": "ensmallen_walks", "PecanPy SparseOTF": "pecanpy_walks"}


def first_order(setting: Setting) -> list[Row]:
    return _compare(setting, power_law(setting), 1, 1, False, {"ensmallen": 40})


def second_order(setting: Setting) -> list[Row]:
    return _compare(setting, power_law(setting), 0.5, 2, False, {"ensmallen": 20})


def second_order_blogcatalog(setting: Setting) -> list[Row]:
    return _compare(setting, blogcatalog(setting), 0.25, 0.25, False, {"PecanPy SparseOTF": 300, "ensmallen": 30})


def weighted(setting: Setting) -> list[Row]:
    targets = {"ensmallen": 10, "PecanPy SparseOTF": 100}
    return [
        *_compare(setting, power_law(setting), 0.5, 2, True, targets),
        *_compare(setting, blogcatalog(setting), 0.25, 0.25, True, targets),
    ]


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "walks-first-order": first_order,
    "walks-second-order": second_order,
    "walks-second-order-blogcatalog": second_order_blogcatalog,
    "walks-weighted": weighted,
}


def _compare(
    setting: Setting, graph: GraphFiles, p: float, q: float, weighted: bool, targets: Mapping[str, float]
) -> list[Row]:
    order = "first-order" if p == q == 1 else "second-order"
    name = f"{'weighted ' if weighted else ''}{order} walks, {graph.name}" + (
        "" if p == q == 1 else f", p={p:g} q={q:g}"
    )
    rows = []
    with setting.own("walks", graph.index(weighted), int(weighted)) as own:
        for peer_name, ratio in targets.items():
            row = Row(name, peer_name, "steps/s", setting.target(ratio, graph.real))
            try:
                rows.append(_against(setting, graph, own, row, p, q, weighted))
            except PeerFailed as error:
                setting.say(f"{row.name}: {peer_name} failed")
                rows.append(Row(name, peer_name, "steps/s", row.target, note=f"no figure of the peer: {error}"))
    return rows


def _against(setting: Setting, graph: GraphFiles, own: Worker, row: Row, p: float, q: float, weighted: bool) -> Row:
    """Fill a row; the peer's worker lives for this row only."""
    script = PEERS[row.peer_name]
    source = graph.rows(weighted) if script == "pecanpy_walks" else graph.edges
    common = {"p": p, "q": q, "walk_length": WALK_LENGTH}
    seconds = 1.0 if setting.quick else 6.0
    with setting.peer(script, source, int(weighted)) as peer:
        vertices, most = int(own.facts["vertices"]), int(own.facts["vertices"]) * NUM_WALKS
        if (peer.facts["vertices"], peer.facts["edges"]) != (vertices, own.facts["edges"]):
            raise PeerFailed(f"its graph is another one: {peer.facts} instead of {own.facts}")
        walks = max(1, vertices // 100)
        trial = peer.ask(**common, walks=walks, seed=1)
        while trial["wall_s"] < seconds / 8 and walks < most:
            walks = min(most, 4 * walks)
            trial = peer.ask(**common, walks=walks, seed=1)
        walks = max(1, min(most, int(walks * seconds / trial["wall_s"])))
        results = alternate(
            {
                "own": lambda: own.ask(
                    **common, num_walks=1 if setting.quick else NUM_WALKS, threads=setting.threads, seed=1,
                    seconds=0.5 if setting.quick else 4.0,
                ),
                "peer": lambda: peer.ask(**common, walks=walks, seed=2),
            },
            setting.rounds,
        )  # fmt: skip
    ours, theirs = (median([each["steps"] / each["wall_s"] for each in results[side]]) for side in ("own", "peer"))
    cpu = [median([each["cpu_s"] / each["steps"] for each in results[side]]) for side in ("own", "peer")]
    tables = median([each["tables_s"] for each in results["own"]])
    job_s = median([each["wall_s"] / each["jobs"] for each in results["own"]])
    setting.say(f"{row.name}: {ours / 1e6:.1f} M steps/s, {row.peer_name} {theirs / 1e6:.3g} M")
    note = f"ours with {tables:.2f} s of building its tables in a job of {job_s:.2f} s"
    return Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, cpu=(cpu[0], cpu[1]), note=note)
