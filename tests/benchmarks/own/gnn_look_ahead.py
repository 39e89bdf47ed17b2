"""Training on two workers with and without look-ahead, and with time added to each exchange between them.

    python -m tests.benchmarks.own.gnn_look_ahead FOLDER [--nodes 20000] [--rounds 3] [--picture FILE] [--model NAME]

Two processes of one thread each train SAGE on a graph of planted communities: with look-ahead and without, as fast as
this machine exchanges, and with 5 ms added to each exchange: every `all_to_all` of nodes and rows, what is sent after
it where there was too little room, and every sum of gradients. A worker sleeps before it takes part. `sums_apart` has
these 5 ms for all but the sums, to separate their cost. Each round measures all settings in turn; the figures are
medians. The last line is a JSON document; the picture shows when the stages of the pipeline were busy on the first
worker, with these 5 ms.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from superworkflow.infra.base.plot_style import COLOURS, DPI, FAINT, GREY, layout, save
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.engines.workers.group import Checkpoint
from superworkflow.infra.engines.workers.session import Role, local_group
from superworkflow.infra.engines.workers.worker import Worker
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks import partition, shard
from superworkflow.tasks.lib.distributed.exchange import Exchange
from superworkflow.tasks.train.distributed_batches import DistributedBatches
from superworkflow.tasks.train.on_workers import train
from superworkflow.tasks.train.params import TrainParams
from tests.benchmarks.measure import alternate, median
from tests.tasks.heterographs import Edges, Nodes, write_heterograph
from tests.tasks.index_helpers import run_stage

COMMUNITIES, DEGREE, WIDTH = 100, 10, 100
DELAY_S, WINDOW = 0.005, 8
PARAMS = {"model": "sage", "dropout": 0.0, "train_share": 0.8, "validation_share": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "2 layers of 64": {"layers": 2, "hidden": 64, "fanouts": "10,10", "batch": 512, "epochs": 3},
    "3 layers of 256": {"layers": 3, "hidden": 256, "fanouts": "5,10,15", "batch": 1024, "epochs": 3},
}
STAGES = ("schedule", "sample", "gather", "transfer", "compact", "compute", "update")
WAITING = ("sample", "gather", "update")
"""Stages that exchange."""
_DRAWN_WINDOWS = 2


class Way(NamedTuple):
    """Variant of training: batches of a window, seconds added to each exchange, and whether sums are delayed too."""

    lookahead: int
    delay_s: float = 0.0
    sums: bool = True


WAYS = {
    "ahead": Way(WINDOW), "alone": Way(0), "ahead_late": Way(WINDOW, DELAY_S), "alone_late": Way(0, DELAY_S),
    "sums_apart": Way(WINDOW, DELAY_S, False),
}  # fmt: skip


def delayed(worker: Worker, delay_s: float, sums: bool, *given: Any) -> dict[str, Any]:
    """Train, with time added to each exchange; with the spans of stages, and of exchanges by who waits for them."""
    spans: list[tuple[str, float, float]] = []
    counts: list[int] = []

    @contextmanager
    def late(seconds: float) -> Iterator[None]:
        began = time.monotonic()
        if seconds:
            time.sleep(seconds)
        yield
        ahead = threading.current_thread().name.startswith("look-ahead")
        spans.append(("exchange ahead" if ahead else "exchange", began, time.monotonic()))

    swap, rest, add, close = Exchange._all_to_all, Exchange._send_rest, Exchange.add_up, DistributedBatches.close

    def late_swap(*args: Any) -> Any:
        with late(delay_s):
            return swap(*args)

    def late_rest(*args: Any) -> Any:
        with late(delay_s):
            return rest(*args)

    def late_add(*args: Any) -> Any:
        with late(delay_s if sums else 0.0):
            return add(*args)

    def noted(source: DistributedBatches) -> None:
        spans.extend(source.spent.recent)
        counts.append(source.sampler.store.exchange.count)
        close(source)

    Exchange._all_to_all = late_swap  # type: ignore[method-assign]
    Exchange._send_rest = late_rest  # type: ignore[method-assign]
    Exchange.add_up = late_add  # type: ignore[method-assign]
    DistributedBatches.close = noted  # type: ignore[method-assign]
    torch.set_num_threads(worker.threads)
    try:
        result = train(worker, *given)
    finally:
        Exchange._all_to_all = swap  # type: ignore[method-assign]
        Exchange._send_rest = rest  # type: ignore[method-assign]
        Exchange.add_up = add  # type: ignore[method-assign]
        DistributedBatches.close = close  # type: ignore[method-assign]
    return {"wall_s": result["wall_s"], "steps": result["facts"].get("steps"), "spans": spans, "exchanges": counts[0]}


def main(folder: Path, nodes: int, rounds: int, picture: Path | None, models: Sequence[str]) -> dict[str, Any]:
    """Measure these of `MODELS` on a graph of planted communities; the picture is of the first."""
    graph, shards = graph_in_parts(folder, nodes)
    progress, made = Progress("train", stream=(folder / "log").open("w")), iter(range(1_000_000))
    found: dict[str, Any] = {}
    with local_group([Role("worker", 2)], Checkpoint(folder / "kept"), progress, folder) as group:
        for model_name in models:
            model = MODELS[model_name]

            def one(way: Way, model: dict[str, Any] = model) -> dict[str, Any]:
                whole = TrainParams(**PARAMS, **model, lookahead=way.lookahead).model_dump(mode="json")
                output = folder / f"trained-{next(made)}"
                results = group.run(delayed, way.delay_s, way.sums, whole, graph.uri, shards.uri, "", str(output))
                return dict(results[0])

            one(WAYS["ahead"])  # to compile, and to touch everything once
            measured = alternate({name: lambda way=way: one(way) for name, way in WAYS.items()}, rounds)  # type: ignore[misc]
            found[model_name] = figures(measured)
            if picture is not None and model_name == models[0]:
                ahead, alone = measured["ahead_late"][-1], measured["alone_late"][-1]
                draw({f"look-ahead of {WINDOW}": ahead, "no look-ahead": alone}, picture)
    return {"nodes": nodes, "rounds": rounds, "load_at_end": os.getloadavg(), "models": found}


def figures(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Milliseconds of a step and exchanges of a window in each way; and what is kept of the speed without the 5 ms."""
    cost = {way: [each["wall_s"] / each["steps"] for each in reports] for way, reports in results.items()}

    def kept(late: str, usual: str) -> float:
        return round(median([a / b for a, b in zip(cost[usual], cost[late], strict=True)]), 3)

    return {
        "steps": results["ahead"][0]["steps"],
        "ms_a_step": {way: round(1000 * median(each), 2) for way, each in cost.items()},
        "all": {way: [round(1000 * each, 2) for each in costs] for way, costs in cost.items()},
        "exchanges_ahead": {way: reports[-1]["exchanges"] for way, reports in results.items()},
        "kept": kept("ahead_late", "ahead"), "kept_without_look_ahead": kept("alone_late", "alone"),
        "kept_sums_apart": kept("sums_apart", "ahead"),
    }  # fmt: skip


def graph_in_parts(folder: Path, nodes: int) -> tuple[Dataset, Dataset]:
    """Graph of communities with nine tenths of the edges inside, and features that separate them."""
    rng = np.random.default_rng(1)
    kind = np.arange(nodes) % COMMUNITIES
    names = [f"n{i:07}" for i in range(nodes)]
    sources = np.repeat(np.arange(nodes), DEGREE)
    near = (sources + COMMUNITIES * rng.integers(1, nodes // COMMUNITIES, len(sources))) % nodes
    targets = np.where(rng.random(len(sources)) < 0.9, near, rng.integers(0, nodes, len(sources)))
    rows = [(names[a], names[b]) for u, v in zip(sources, targets, strict=True) for a, b in ((u, v), (v, u))]
    features = rng.normal(size=(nodes, WIDTH)).astype(np.float32)
    features[np.arange(nodes), kind] += 2
    given = {"label": [f"k{each}" for each in kind], "features": features}
    graph = write_heterograph(folder / "graph", {"node": Nodes(names, given)}, {"edge": Edges("node", "node", rows)})
    inputs = {"graph": str(folder / "graph")}
    parts = run_stage(partition.STAGE, {"parts": 4}, inputs, folder / "parts")
    return graph, run_stage(shard.STAGE, {}, inputs | {"partition": parts.uri}, folder / "shards")


def draw(ways: dict[str, dict[str, Any]], path: Path) -> None:
    """When each stage was busy, for the time that two windows take with look-ahead, from the midst of training on."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 5.4), dpi=DPI, layout=layout())
    panels = figure.subplots(len(ways), 1, sharex=True, squeeze=False)[:, 0]
    length = _DRAWN_WINDOWS * WINDOW * min(each["wall_s"] / each["steps"] for each in ways.values())
    for axes, (title, result) in zip(panels, ways.items(), strict=True):
        computed = sorted(began for stage, began, _ in result["spans"] if stage == "compute")
        start = computed[len(computed) // 2 // WINDOW * WINDOW]
        for place, stage in enumerate(STAGES):
            _bars(axes, _within(result["spans"], {stage}, start, length), place, COLOURS[place], 0.7)
            if stage in WAITING:
                whose = {"exchange" if stage == "update" else "exchange ahead"}
                busy = [(a, b) for name, a, b in result["spans"] if name == stage]
                waits = [
                    (a, b)
                    for name, a, b in result["spans"]
                    if name in whose and any(c <= a and b <= d for c, d in busy)
                ]
                _bars(axes, _within([("", *each) for each in waits], {""}, start, length), place, GREY, 0.4)
        done = sum(start <= each < start + length for each in computed)
        axes.set_title(f"{title}: {done} steps in {1000 * length:.0f} ms", loc="left", fontsize=9)
        axes.set_yticks(
            range(len(STAGES)), [f"{each} (none on CPUs)" if each == "transfer" else each for each in STAGES]
        )
        axes.tick_params(axis="y", labelsize=8)
        axes.set_ylim(len(STAGES) - 0.5, -0.5)
        axes.axhline(STAGES.index("compute") - 0.5, color=FAINT, linewidth=0.6, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlim(0, 1000 * length)
    panels[-1].set_xlabel("ms; above the dotted line the thread that looks ahead, below it the one that trains")
    figure.legend(handles=[Patch(color=GREY, label="an exchange with the other worker, 5 ms added")],
                  loc="outside upper right", frameon=False, fontsize=8)  # fmt: skip
    save(figure, path)


def _within(
    spans: Sequence[Sequence[Any]], stages: set[str], start: float, length: float
) -> list[tuple[float, float]]:  # fmt: skip
    """Begin and length in ms from `start`, of what is in view."""
    cut = [(max(a, start), min(b, start + length)) for stage, a, b in spans if stage in stages]
    return [(1000 * (a - start), 1000 * (b - a)) for a, b in cut if b > a]


def _bars(axes: Any, bars: list[tuple[float, float]], place: int, colour: str, height: float) -> None:
    axes.broken_barh(bars, (place - height / 2, height), facecolors=colour, edgecolors="none")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one; repeatable")
    return parser.parse_args()


if __name__ == "__main__":
    from tests.benchmarks.own import gnn_look_ahead  # whose functions workers can import

    given = _arguments()
    document = gnn_look_ahead.main(given.folder, given.nodes, given.rounds, given.picture, given.model or list(MODELS))
    sys.stdout.write(json.dumps(document) + "\n")
