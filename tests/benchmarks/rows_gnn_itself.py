"""Mini-batch training against itself. By one thread, in CPU seconds: what a drawn edge costs in graphs of 10k to 10M
vertices, and what it takes to come to 99% of the accuracy that training on the full graph ends with. And steps of two
workers: what is kept of their speed when each exchange takes 5 ms longer.

The largest graphs have features that were made up, since they say nothing of the time. Accuracy is that which stage
train reports after each epoch, of the nodes to validate on, and the time that of its loop with these reports; the means
of the outermost hop, which both ways read, are made before.
"""

import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.benchmarks.gnn_graphs import bare_communities, communities
from tests.benchmarks.measure import alternate, median, run_command
from tests.benchmarks.report import Row
from tests.benchmarks.setting import Setting

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
DEGREE = 20
LARGEST_SHARE = 1 / 3
"""Of the edges drawn in a CPU second from the smallest graph, what has to be left of the largest."""
STEPS = 24
DRAWN: dict[str, Any] = {"layers": 3, "fanouts": "5,10,15", "hidden": 256, "batch": 1024}
FULL_GRAPH, FULL_EPOCHS, MINI_EPOCHS = (1_000_000, 10_000_000), 60, 2
"""Vertices and edges of what is trained on as a whole, and most epochs of both ways."""
WORKS = {"draw": "blocks drawn", "batches": "batches ready"}


def by_size(setting: Setting) -> list[Row]:
    """CPU time of a drawn edge, by size of the graph; of blocks alone, and of batches made ready."""
    graphs = [bare_communities(setting, nodes, DEGREE, 1024) for nodes in (SIZES[:2] if setting.quick else SIZES)]
    rows = []
    with ExitStack() as stack:
        workers = {graph.name: stack.enter_context(setting.own("gnn_training", graph.folder)) for graph in graphs}
        for work, what in WORKS.items():
            for worker in workers.values():
                worker.ask(work=work, params=DRAWN, steps=2)
            sides = {
                name: lambda worker=worker, work=work: worker.ask(work=work, params=DRAWN, steps=STEPS)  # type: ignore[misc]
                for name, worker in workers.items()
            }
            rates = {
                name: median([each["edges"] / each["cpu_s"] for each in answers])
                for name, answers in alternate(sides, setting.rounds).items()
            }
            note = "; ".join(f"{name} {1e9 / rate:.1f} CPU ns an edge" for name, rate in rates.items())
            setting.say(f"{what}: {note}")
            first, last = graphs[0].name, graphs[-1].name
            target = setting.target(LARGEST_SHARE)
            rows.append(Row(f"{what}, {last}", first, "edges/CPU s", target, rates[last], rates[first], note=note))
    return rows


def to_accuracy(setting: Setting) -> list[Row]:
    """Training by mini-batches and on the full graph, until 99% of the accuracy that the latter ends with."""
    nodes, edges = (20_000, 170_000) if setting.quick else FULL_GRAPH
    graph = communities(setting, nodes, edges, 1024)
    ways: dict[str, dict[str, Any]] = {
        "mini": {"fanouts": "10,all", "batch": graph.batch, "epochs": 3 if setting.quick else MINI_EPOCHS},
        "full": {"fanouts": "all,all", "batch": "all", "epochs": 20 if setting.quick else FULL_EPOCHS},
    }
    with setting.own("gnn_training", graph.folder) as own:
        own.ask(work="train_on", params={"fanouts": "10,all", "epochs": 1})
        answers = {way: own.ask(work="train_on", params=params) for way, params in ways.items()}
    best = {way: max(each["accuracy"]) for way, each in answers.items()}
    wanted = 0.99 * best["full"]
    cost, epochs_of = {}, {}
    for way, each in answers.items():
        epoch = next((place for place, figure in enumerate(each["accuracy"]) if figure >= wanted), None)
        cost[way], epochs_of[way] = (each["cpu_s"][epoch], epoch + 1) if epoch is not None else (None, None)
    note = (
        f"99% of {best['full']:.4f}, the best of {ways['full']['epochs']} epochs on the full graph: "
        f"{epochs_of['mini']} epochs of mini-batches, whose best is {best['mini']:.4f}, against {epochs_of['full']}; "
        "one run each"
    )
    setting.say(f"{note}: {cost['mini']} against {cost['full']} CPU s")
    name = f"to 99% of the final accuracy, SAGE, {graph.name}"
    target = setting.target(10)
    return [Row(name, "itself on the full graph", "CPU s", target, cost["mini"], cost["full"], note=note)]


def look_ahead(setting: Setting) -> list[Row]:
    """Steps of two workers, with 5 ms added to each exchange and without; see `own/gnn_look_ahead.py`."""
    folder = setting.data / "look-ahead"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    given = ["--nodes", "2000" if setting.quick else "20000", "--rounds", str(setting.rounds)]
    command = [sys.executable, "-m", "tests.benchmarks.own.gnn_look_ahead", str(folder), *given]
    measured = run_command(command, 1, setting.folder / "logs" / "own-gnn_look_ahead.log").document()
    rows = []
    for name, model in measured["models"].items():
        ms = model["ms_a_step"]
        note = (
            f"without look-ahead {model['kept_without_look_ahead']:.0%} of {1000 / ms['alone']:.1f} steps/s is kept, "
            f"with look-ahead and no delay of the sums of gradients {model['kept_sums_apart']:.0%}"
        )
        rows.append(
            Row(
                f"training by 2 workers, SAGE {name}, 5 ms added to each exchange", "itself without them", "steps/s",
                setting.target(0.9), 1000 / ms["ahead_late"], 1000 / ms["ahead"], note=note,
            )
        )  # fmt: skip
    return rows


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "gnn-by-size": by_size, "gnn-to-accuracy": to_accuracy, "gnn-look-ahead": look_ahead,
}  # fmt: skip
