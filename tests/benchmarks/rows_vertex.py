"""Vertex programs against networkit, igraph, scikit-learn, implicit and pgmpy: CPU seconds of one thread, same data."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

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
LABELS = 5
"""Labels of the volume."""
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


def gibbs(setting: Setting) -> list[Row]:
    """Draws of variables of a grid whose neighbours tend to be in one of 3 states; each alone prefers the first.

    pgmpy makes a table of all states of all other variables for each, so that its grid has 3² variables.
    """
    sides, draws = (10, 3) if setting.quick else (100, 3), (100, 100) if setting.quick else (200, 2_000)
    row = Row(f"gibbs, 3 states, draws of a variable, grid of {sides[0]}², pgmpy's of {sides[1]}²", "pgmpy",
              "draws/CPU s", setting.target(100))  # fmt: skip
    models = [setting.data / f"grid-{side}.uai" for side in sides]
    graph, colours = setting.data / "grid-factors", setting.data / "grid-colours"
    for model, side in zip(models, sides, strict=True):
        model.write_text(_grid_model(side))
    run_stage(setting, "factor_graph", {"factors": models[0]}, graph)
    run_stage(setting, "colour", {"graph": graph}, colours)
    try:
        with (
            setting.own("gibbs", graph, colours) as own,
            setting.peer("pgmpy_gibbs", models[1], python=setting.set_up_apart("pgmpy")) as peer,
        ):
            requests = {"own": lambda: own.ask(threads=1, draws=draws[0]), "peer": lambda: peer.ask(draws=draws[1])}
            results = alternate(requests, setting.rounds)
            rates = [
                side**2 * count / median([each["cpu_s"] for each in results[name]])
                for name, side, count in zip(results, sides, draws, strict=True)
            ]
            means = " and ".join(f"{results[name][-1]['answer']:.3f}" for name in results)
            setting.say(f"{row.name}: {rates[0]:.3g} draws a CPU second, pgmpy {rates[1]:.3g}")
            return [Row(row.name, row.peer_name, row.unit, row.target, *rates, note=f"mean state: {means}")]
    except PeerFailed as error:
        return [Row(row.name, row.peer_name, row.unit, row.target, note=f"no figure of the peer: {error}")]


def _grid_model(side: int) -> str:
    """A model in the UAI format: tables of single variables, then of pairs of neighbours."""
    cells = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate([np.stack([cells[:, :-1], cells[:, 1:]], -1).reshape(-1, 2),
                            np.stack([cells[:-1], cells[1:]], -1).reshape(-1, 2)])  # fmt: skip
    scopes = [f"1 {cell}" for cell in cells.ravel()] + [f"2 {one} {other}" for one, other in pairs]
    alone, together = "3 1.5 1 0.8", "9 2 1 1 1 2 1 1 1 2"
    tables = [alone] * cells.size + [together] * len(pairs)
    return "\n".join(["MARKOV", str(cells.size), " ".join(["3"] * cells.size), str(len(scopes)), *scopes, *tables])


def changed_volume(setting: Setting) -> list[Row]:
    """Updates of `bp` where 0.1% of the voxels of a volume have changed: from the earlier run, and from nothing."""
    side = 30 if setting.quick else 100
    folder = setting.data / "volume"
    folder.mkdir(exist_ok=True)
    _, noisy = noisy_volume(side)
    volumes = {"before": noisy, "now": _some_random(noisy, 0.001, np.random.default_rng(1))}
    places: dict[str, dict[str, Path]] = {}
    for name, values in volumes.items():
        np.save(folder / f"{name}.npy", values.astype(np.int32))
        places[name] = {"graph": folder / f"grid-{name}", "colours": folder / f"colours-{name}"}
        run_stage(setting, "grid", {"lattice": folder / f"{name}.npy"}, places[name]["graph"])
        run_stage(setting, "colour", {"graph": places[name]["graph"]}, places[name]["colours"])
    earlier = run_stage(setting, "bp", places["before"], folder / "earlier")
    cold = run_stage(setting, "bp", places["now"], folder / "cold")
    inputs = {**places["now"], "initial": earlier.output, "before": places["before"]["graph"]}
    warm = run_stage(setting, "bp", inputs, folder / "warm")
    seconds = " and ".join(f"{each.measured.cpu_s:.1f}" for each in (warm, cold))
    return [Row(
        f"bp, volume of {side}³, 0.1% of the voxels changed", "a cold run", "updates", setting.target(100),
        float(warm.stats["updates"]), float(cold.stats["updates"]), note=f"CPU seconds of the stages: {seconds}",
    )]  # fmt: skip


def noisy_volume(side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels of a volume, blurred noise cut at quantiles, and the same with 30% of the voxels random."""
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.normal(size=(side,) * 3), side / 12)
    labels = np.digitize(smooth, np.quantile(smooth, np.arange(1, LABELS) / LABELS))
    return labels, _some_random(labels, 0.3, rng)


def _some_random(labels: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.where(rng.random(labels.shape) < share, rng.integers(0, LABELS, labels.shape), labels)


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "vertex-programs": programs, "gibbs": gibbs, "changed-volume": changed_volume, "lasso": lasso, "als": als,
}  # fmt: skip


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
