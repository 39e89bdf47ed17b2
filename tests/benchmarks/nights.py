"""Thirty nights of a deployment on a graph that grows: `python -m tests.benchmarks.nights FOLDER`, or `make nights`.

A real Prefect server, real runs, and a person who looks at them now and then. Communities of people who know each other
grow by some members a night; what is learned is who belongs where. One night half of the acquaintances are random, as
after a faulty join; on one day nothing changes; one model is rolled back. After each night `prune`
keeps the records of the last seven.

Writes `nights.json`, `nights.md` (a table) and `nights.png` into the folder, and prints the table.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mlflow import MlflowClient
from numpy.typing import NDArray

from superworkflow.infra.orchestration.pruning import Pruner
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.models import ModelRegistry
from superworkflow.infra.tracking.pruning import Keep
from tests.flows.nightly import nights
from tests.prefect_server import prefect_server

NIGHTS, BAD, SAME, ROLLED_BACK, PROMOTED = 30, 12, 17, 21, 24
COMMUNITIES, FIRST, LAST, SEED = 8, 400, 700, 5
SETTINGS = ("walk.walk_length=40", "embed.dimensions=32", "evaluate.shuffles=5", "evaluate.projection_sample=0")
MODEL = "node2vec-nightly"
WEEK = 7
"""Nights whose records `prune` keeps."""
MIB = 1 << 20


class Growing:
    """The graph as it is on each night.

    Args:
        folder: where its files are written.
    """

    def __init__(self, folder: Path):
        rng = np.random.default_rng(SEED)
        self.edges, self.labels = folder / "edges.csv", folder / "labels.csv"
        self.community = rng.integers(0, COMMUNITIES, LAST)
        chance = np.where(self.community[:, None] == self.community[None, :], 0.055, 0.011)
        self.pairs = np.argwhere(np.triu(rng.random((LAST, LAST)) < chance, 1))
        met = np.maximum(self.pairs.max(axis=1), rng.integers(0, LAST, len(self.pairs)))
        self.pairs = self.pairs[np.argsort(met, kind="stable")]
        self._met = np.sort(met)

    def write(self, night: int) -> None:
        """The files of a night, from 1; labels are also of the newest, of whom nobody is known yet."""
        members = FIRST + (LAST - FIRST) * night // NIGHTS
        pairs: NDArray[np.int64] = self.pairs[self._met < members]
        if night == BAD:
            rng = np.random.default_rng(night)
            wrong = rng.random(len(pairs)) < 0.5
            pairs = np.where(wrong[:, None], rng.integers(0, members, pairs.shape), pairs)
        self.edges.write_text("".join(f"m{u},m{v}\n" for u, v in pairs))
        self.labels.write_text("node,label\n" + "".join(f"m{m},team {self.community[m]}\n" for m in range(members)))


def run(folder: Path) -> list[dict[str, Any]]:
    """All nights; one row for each."""
    graph, uri = Growing(folder), f"sqlite:///{folder}/mlflow.db"
    tracking = {"MLFLOW_TRACKING_URI": uri, "PREFECT_HOME": str(folder / "runner")}
    (folder / "server").mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    evenings: list[float] = []
    with prefect_server("127.0.0.1", folder / "server") as api, nights(api, tracking) as night:
        graph.write(1)
        deployment = night.deploy(
            "node2vec", "--name", "nightly", "--edges", str(graph.edges), "--labels", str(graph.labels),
            "--store", str(folder / "store"), "--set", *SETTINGS, "node2vec.link_prediction=false",
            "--max-drift", "edges_gone_share=0.25", "--warm-start",
        )  # fmt: skip
        registry = ModelRegistry(uri)
        for number in range(1, NIGHTS + 1):
            if number != SAME:
                graph.write(number)
            began = time.monotonic()
            ended = night(deployment)
            rows.append({"night": number, "state": ended["state_name"], "seconds": time.monotonic() - began,
                         "message": ended["state"]["message"], **_figures(uri, ended["id"])})  # fmt: skip
            if number == ROLLED_BACK:
                registry.roll_back(MODEL, None, "recommendations look odd", who="ann")
            if number == PROMOTED:
                registry.promote(MODEL, None, "it was the page, not the model", who="ann")
            evenings.append(began)
            rows[-1] |= _pruned(folder, uri, time.monotonic() - evenings[-WEEK:][0])
            champion = registry.champion(MODEL)
            rows[-1]["current"] = champion.version if champion is not None else None
            print(_line(rows[-1]), flush=True)  # noqa: T201
    return rows


def _pruned(folder: Path, uri: str, seconds: float) -> dict[str, Any]:
    """Prune the store, its records and artifacts; MiB that are left of each, and what was removed.

    Args:
        folder: of the nights.
        uri: of the records.
        seconds: age of the records that stay.
    """
    done = Pruner(Store(str(folder / "store")), uri, Keep(seconds), recent_s=0.0).remove()
    left = {"store_mib": folder / "store", "artifacts_mib": folder / "artifacts", "records_mib": folder / "mlflow.db"}
    sizes = {name: _bytes(path) / MIB for name, path in left.items()}
    return {**sizes, "removed_mib": done.bytes / MIB, "runs": len(done.references.runs)}


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in {each.stat().st_ino: each for each in files}.values())


def _figures(uri: str, flow_run: str) -> dict[str, Any]:
    """Figures that the night's run recorded; none if it had nothing to do."""
    client = MlflowClient(uri)
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    found = client.search_runs([experiment.experiment_id], f"tags.`superworkflow.flow_run_id` = '{flow_run}'")
    metrics = found[0].data.metrics if found else {}
    columns = {"quality": "promotion/quality", "champion": "promotion/champion_quality", "cost_usd": "cost/total_usd"}
    drift = ("edges_added_share", "edges_gone_share", "degree_psi", "neighbours_changed", "labels_unknown_share")
    columns |= {name: f"drift/{name}" for name in drift}
    return {name: metrics[key] for name, key in columns.items() if key in metrics}


COLUMNS = ("night", "state", "quality", "champion", "edges_added_share", "edges_gone_share", "degree_psi",
           "neighbours_changed", "current", "store_mib", "removed_mib", "artifacts_mib", "records_mib",
           "runs")  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    cells = [f"{row[name]:.3f}" if isinstance(row.get(name), float) else str(row.get(name, "")) for name in COLUMNS]
    return f"| {' | '.join(cells)} |"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Quality of challenger and champion, and drift, by night."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, names in ((above, ("quality", "champion")), (below, ("edges_gone_share", "neighbours_changed"))):
        for name in names:
            shown = [(row["night"], row[name]) for row in rows if name in row]
            axes.plot(*zip(*shown, strict=True), marker="o", markersize=3, label=name)
        axes.grid(alpha=0.3)
        axes.legend()
    for row in rows:
        if row["state"] in ("Failed", "Cached"):
            above.axvline(row["night"], color="0.6", linestyle=":")
            above.annotate(row["state"], (row["night"], above.get_ylim()[0]), rotation=90, fontsize=8, va="bottom")
    above.set_ylabel("Macro-F1")
    below.set_xlabel("night")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run them and write what they did."""
    folder = Path(sys.argv[1]).absolute()
    rows = run(folder)
    (folder / "nights.json").write_text(json.dumps(rows, indent=1))
    table = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|", *map(_line, rows)]
    (folder / "nights.md").write_text("\n".join(table) + "\n")
    draw(rows, folder / "nights.png")


if __name__ == "__main__":
    main()
