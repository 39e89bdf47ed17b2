"""`python -m tests.benchmarks.forecasts [--profile FILE] [--folder FOLDER]`: what `plan` says, held against runs.

Runs node2vec on graphs of different sizes, each in a store of its own, and compares each run with two plans of it: one
without records (`built-in`) and one with the records of the other graphs' runs. Kernels are compiled before. The graphs
are the shipped e-mail graph, BlogCatalog and ego-Facebook where SUPERWORKFLOW_TEST_DATA has them, and a generated power
law. CPU seconds are comparable on any machine, wall seconds and cost on an idle one only.

On a cluster the folder must be one that its pods see, and the profile's `kubernetes.volumes` must name it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.io import loadmat

from superworkflow.flows import load_superworkflow
from superworkflow.infra.config.request import build_request
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.planning.launch_history import History
from superworkflow.infra.planning.plan import PlannedStage, plan
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.benchmarks.measure import ROOT
from tests.benchmarks.setting import blogcatalog_file


@dataclass(frozen=True)
class Graph:
    """One graph to run on."""

    name: str
    sources: dict[str, str]
    assignments: tuple[str, ...] = ()


@dataclass
class Setting:
    """Settings that all runs share."""

    folder: Path
    profile: str
    assignments: Sequence[str]
    out: Console = field(default_factory=lambda: Console(width=150, highlight=False))

    def store(self, name: str) -> Path:
        """An empty store, which pods may write to."""
        path = self.folder / f"store-{name}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        path.chmod(0o777)
        return path


def graphs(folder: Path, vertices: int) -> Iterator[Graph]:
    """The graphs that there are here."""
    data = ROOT / "flows" / "data"
    mail = {"edges": data / "email-eu-core.txt.gz", "labels": data / "email-eu-core-department-labels.txt.gz"}
    yield Graph("email-Eu-core", {name: str(path) for name, path in mail.items()}, ("index.directed=true",))
    if (matrix := blogcatalog_file()) is not None:
        found = loadmat(matrix)
        network, group = found["network"].tocoo(), found["group"].tocoo()
        once = network.row < network.col
        edges, labels = folder / "blogcatalog.csv", folder / "blogcatalog-labels.csv"
        np.savetxt(edges, np.c_[network.row[once], network.col[once]], fmt="%d", delimiter=",")
        np.savetxt(labels, np.c_[group.row, group.col], fmt="%d", delimiter=",")
        yield Graph("BlogCatalog", {"edges": str(edges), "labels": str(labels)})
    facebook = Path(os.environ.get("SUPERWORKFLOW_TEST_DATA", "")) / "ego-facebook" / "ego-facebook.txt"
    if facebook.is_file():
        yield Graph("ego-Facebook", {"edges": str(facebook)}, ("index.header=true",))
    edges = generate("chung-lu", vertices, 10 * vertices, folder / "power-law.csv", seed=1)
    yield Graph(f"power law {vertices // 1000}k", {"edges": str(edges)})


def planned(graph: Graph, setting: Setting, store: Path) -> dict[str, PlannedStage]:
    """The plan of a graph in a store."""
    request = build_request(
        load_superworkflow("node2vec"), sources=graph.sources, profile=setting.profile, store=str(store),
        assignments=[*graph.assignments, *setting.assignments],
    )  # fmt: skip
    return {stage.name: stage for stage in plan(request)}


def ran(graph: Graph, setting: Setting, store: Path) -> dict[str, dict[str, float]]:
    """Run it; what each stage took."""
    command = [sys.executable, "-P", "-m", "superworkflow", "run", "node2vec", "--json", "--no-tracking"]
    command += ["--profile", setting.profile, "--store", str(store)]
    command += [part for name, path in graph.sources.items() for part in (f"--{name}", path)]
    command += ["--set", *graph.assignments, *setting.assignments] if graph.assignments or setting.assignments else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return {stage["name"]: stage for stage in json.loads(done.stdout)["stages"]}


def with_records_of(stores: Sequence[Path], setting: Setting, name: str) -> Path:
    """An empty store with the records of other ones."""
    store = setting.store(name)
    for other in stores:
        for file in sorted((other / ".records").glob("*.json")):
            for record in reversed(History(_location(other)).records(file.stem)):
                History(_location(store)).add(file.stem, record)
    return store


def _location(store: Path) -> Location:
    return Location.of(store)


def show(title: str, plans: dict[str, PlannedStage], actual: dict[str, dict[str, float]], setting: Setting) -> None:
    """One table: plan against run, by stage and in all."""
    table = Table(title=title, title_justify="left")
    table.add_column("stage")
    for column in ("basis", "CPU plan", "CPU run", "", "time plan", "time run", "", "memory plan", "run", ""):
        table.add_column(column, justify="right")
    rows = [(stage, actual[name]) for name, stage in plans.items()]
    for stage, took in rows:
        table.add_row(
            stage.name, stage.basis,
            f"{stage.cpu_s:.2f}", f"{took['cpu_s']:.2f}", _off(stage.cpu_s, took["cpu_s"]),
            f"{stage.seconds:.2f}", f"{took['runtime_s']:.2f}", _off(stage.seconds, took["runtime_s"]),
            format_bytes(stage.memory_bytes), format_bytes(took["peak_memory_bytes"]),
            _off(stage.memory_bytes, took["peak_memory_bytes"]),
        )  # fmt: skip
    table.add_section()
    cpu, cpu_took = sum(stage.cpu_s for stage, _ in rows), sum(took["cpu_s"] for _, took in rows)
    time, time_took = sum(stage.seconds for stage, _ in rows), sum(took["runtime_s"] for _, took in rows)
    usd, usd_took = sum(stage.cost_usd for stage, _ in rows), sum(took["cost_usd"] for _, took in rows)
    memory = max(stage.memory_bytes for stage, _ in rows)
    memory_took = max(took["peak_memory_bytes"] for _, took in rows)
    table.add_row(
        "total", "", f"{cpu:.2f}", f"{cpu_took:.2f}", _off(cpu, cpu_took), f"{time:.2f}", f"{time_took:.2f}",
        _off(time, time_took), format_bytes(memory), format_bytes(memory_took), _off(memory, memory_took),
    )  # fmt: skip
    setting.out.print(table)
    setting.out.print(f"cost: plan ${usd:.6f}, run ${usd_took:.6f}, {_off(usd, usd_took)}\n")


def _off(plan_value: float, actual: float) -> str:
    return f"{plan_value / actual - 1:+.0%}" if actual else "-"


def main() -> None:
    """Run all, and print the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench" / "forecasts")
    parser.add_argument("--vertices", type=int, default=200_000, help="of the generated graph")
    parser.add_argument("--compiled", action="store_true", help="kernels are compiled already: no run for that")
    parser.add_argument("--set", nargs="+", default=[], metavar="STAGE.PARAMETER=VALUE")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(folder, options.profile, options.set)
    all_graphs = list(graphs(folder, options.vertices))
    if not options.compiled:
        for graph in (all_graphs[0], all_graphs[-1]):
            ran(graph, setting, setting.store("compile"))
    stores = {graph.name: setting.store(graph.name.replace(" ", "-")) for graph in all_graphs}
    built_in = {graph.name: planned(graph, setting, stores[graph.name]) for graph in all_graphs}
    actual = {}
    for graph in all_graphs:
        actual[graph.name] = ran(graph, setting, stores[graph.name])
        show(f"{graph.name}, built-in", built_in[graph.name], actual[graph.name], setting)
    for graph in all_graphs:
        store = with_records_of([path for name, path in stores.items() if name != graph.name], setting, "records")
        show(f"{graph.name}, from other graphs' records", planned(graph, setting, store), actual[graph.name], setting)


if __name__ == "__main__":
    main()
