"""Vertex programs against networkit, igraph, scikit-learn and implicit: CPU seconds of one thread on the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.graphs import GraphFiles, power_law
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import run_stage

TARGETS: Mapping[str, Mapping[str, float]] = {
    "pagerank": {"networkit": 6, "igraph": 25},
    "components": {"networkit": 3},
    "sssp": {"networkit": 2},
    "kcore": {"networkit": 2, "igraph": 2},
    "colour": {"igraph": 10},
    "triangles": {"igraph": 2},
}
"""Least ratio by work and peer."""
PARAMS: Mapping[str, Mapping[str, Any]] = {"pagerank": {"tolerance": 1e-6}, "sssp": {"source": "0"}}


def programs(setting: Setting) -> list[Row]:
    """Each program on the power-law graph."""
    graph, rows = power_law(setting), []
    python = setting.set_up_apart("graphs")
    for weighted in (False, True):
        index, colours = graph.index(weighted), setting.data / f"colours-{int(weighted)}"
        run_stage(setting, "colour", {"graph": index}, colours)
        with setting.own("programs", index, colours) as own:
            for peer_name in ("networkit", "igraph"):
                works = [work for work, peers in TARGETS.items() if peer_name in peers and (work == "sssp") == weighted]
                rows += _against(setting, graph, own, works, peer_name, weighted, python) if works else []
    return rows


def lasso(setting: Setting) -> list[Row]:
    """Lasso to a gap of 10⁻⁶, on sparse samples whose features occur as words do."""
    samples, features = (2_000, 2_000) if setting.quick else (20_000, 20_000)
    python = setting.set_up_apart("graphs")
    rows = []
    for strength in (0.1, 0.02):
        row = Row(
            f"lasso, {samples:,} samples, 60 of {features:,} features each, α {strength:g} of the largest",
            "scikit-learn", "CPU s", setting.target(1.5),
        )  # fmt: skip
        arguments = (samples, features, strength)
        try:
            with (
                setting.own("lasso", *arguments) as own,
                setting.peer("sklearn_lasso", *arguments, python=python) as peer,
            ):
                rows.append(_row(setting, row, own, peer, {}, "nonzero coefficients"))
        except PeerFailed as error:
            rows.append(Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}"))
    return rows


def als(setting: Setting) -> list[Row]:
    """An iteration of alternating least squares with 20 factors; implicit's objective counts missing ratings too."""
    users, items, count = (5_000, 1_000, 200_000) if setting.quick else (100_000, 20_000, 5_000_000)
    python = setting.set_up_apart("graphs")
    rows = []
    for kind, by_gradients in (("CG", 1), ("Cholesky", 0)):
        row = Row(f"als, {count:,} ratings, 20 factors, an iteration", f"implicit, {kind}", "CPU s", setting.target(3))
        arguments = (users, items, count, 20)
        try:
            with (
                setting.own("als", *arguments) as own,
                setting.peer("implicit_als", *arguments, by_gradients, python=python) as peer,
            ):
                if own.facts["ratings"] != peer.facts["ratings"]:
                    raise PeerFailed(f"its ratings are others: {peer.facts} instead of {own.facts}")
                rows.append(_row(setting, row, own, peer, {"threads": 1}, "our error, and the peer's ratings"))
        except PeerFailed as error:
            rows.append(Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}"))
    return rows


ROWS: dict[str, Callable[[Setting], list[Row]]] = {"vertex-programs": programs, "lasso": lasso, "als": als}


def _against(
    setting: Setting, graph: GraphFiles, own: Worker, works: list[str], peer_name: str, weighted: bool, python: str
) -> list[Row]:
    rows = []
    try:
        with setting.peer("graph_programs", peer_name, graph.index(weighted), int(weighted), python=python) as peer:
            if peer.facts["edges"] != own.facts["edges"]:
                raise PeerFailed(f"its graph is another one: {peer.facts} instead of {own.facts}")
            for work in works:
                target = setting.target(TARGETS[work][peer_name], graph.real)
                row = Row(f"{work}, {graph.name}", peer_name, "CPU s", target)
                request = {"work": work, "params": dict(PARAMS.get(work, {})), "threads": 1}
                rows.append(_row(setting, row, own, peer, request, "answers"))
    except PeerFailed as error:
        done = len(rows)
        rows += [
            Row(f"{work}, {graph.name}", peer_name, "CPU s", None, note=f"no figure of the peer: {error}")
            for work in works[done:]
        ]
    return rows


def _row(setting: Setting, row: Row, own: Worker, peer: Worker, request: dict[str, Any], what: str) -> Row:
    """Fill a row by alternating rounds."""
    results = alternate({"own": lambda: own.ask(**request), "peer": lambda: peer.ask(**request)}, setting.rounds)
    ours, theirs = (median([each["cpu_s"] for each in results[side]]) for side in ("own", "peer"))
    answers = [results[side][-1]["answer"] for side in ("own", "peer")]
    setting.say(f"{row.name}: {ours:.3g} CPU s, {row.peer_name} {theirs:.3g}")
    note = f"{what}: {answers[0]:.6g}, the peer's {answers[1]:.6g}"
    return Row(row.name, row.peer_name, row.unit, row.target, ours, theirs, note=note)
