"""`python -m tests.benchmarks.scaling [--large] [--limit-s 120]`: what an edge and a token cost, by size of the graph.

Chung-Lu graphs with exponent 2.5 and average degree 60, of 10k, 100k, 1M and with `--large` 10M vertices, through the
stage commands index, walk, prepare and embed with the defaults (walks of 80, 128 dimensions, window 10, 5 negatives).
Each size gets as many walks per vertex as training takes about the time limit for, 1 to 100: more than the usual 10
where the start of a process would dominate, fewer on large graphs. The time of the job with 10 walks is computed from
that, and the table says so. What a stage takes on a graph of 100 vertices, its start, is subtracted
before dividing by edges or tokens.

Writes `.bench/scaling.json`, `.md` and `.png`; `--publish` copies the first and the last to `docs/`.
"""

import argparse
import datetime
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.benchmarks.measure import ROOT, median
from tests.benchmarks.report import figure, machine, own_versions, rounded
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import INDEX, StageResult, embed_graph, run_stage, warm_up

DEGREE, WALK_LENGTH, NUM_WALKS, MOST_WALKS = 60, 80, 10, 100
_REPEATED = 100_000
"""Number of vertices up to which index runs three times, and the median counts."""
STAGES = {"index": "edge", "walk": "token", "prepare": "token", "embed": "token"}
COLORS = {"index": "#2b5f8a", "walk": "#2b7a4b", "prepare": "#8a6d2b", "embed": "#c2571a"}
_FIRST_GUESS_S = 2e-6  # of a token in training


@dataclass(frozen=True)
class Point:
    """One stage at one size.

    Args:
        units: undirected edges of the file for index, tokens for the others, as measured.
        wall_s, cpu_s, peak_bytes: of the whole command.
        ns: wall nanoseconds for a unit, start of the command subtracted.
        cpu_ns: the same of CPU time.
        walks: per vertex.
        full_s: wall seconds of the whole job of 10 walks per vertex; computed unless `walks` is 10.
    """

    vertices: int
    edges: int
    stage: str
    unit: str
    units: int
    wall_s: float
    cpu_s: float
    peak_bytes: int
    ns: float
    cpu_ns: float
    walks: int
    full_s: float


def measure(setting: Setting, sizes: list[int], limit_s: float) -> list[Point]:
    """All points, by size."""
    setting.say("what each stage's start takes")
    starts = [_stages(setting, 100, 1) for _ in range(3)]
    start = {
        name: tuple(median([getattr(run[name].measured, what) for run in starts]) for what in ("wall_s", "cpu_s"))
        for name in STAGES
    }
    points: list[Point] = []
    token_s = _FIRST_GUESS_S
    for vertices in sizes:
        walks = max(1, min(MOST_WALKS, int(limit_s / (token_s * vertices * WALK_LENGTH))))
        setting.say(f"{vertices:,} vertices, {walks} walks from each")
        results = _stages(setting, vertices, walks)
        for name, unit in STAGES.items():
            point = _point(name, unit, vertices, walks, results[name], start[name])
            setting.say(
                f"  {name}: {point.wall_s:.1f} s, {point.ns:.1f} ns per {unit}, {point.peak_bytes / 2**30:.2f} GiB"
            )
            points.append(point)
        token_s = points[-1].ns * 1e-9
        shutil.rmtree(_folder(setting, vertices))
    return points


def _folder(setting: Setting, vertices: int) -> Path:
    return setting.folder / "scaling" / str(vertices)


def _stages(setting: Setting, vertices: int, walks: int) -> dict[str, StageResult]:
    folder = _folder(setting, vertices)
    folder.mkdir(parents=True, exist_ok=True)
    edges = generate("chung-lu", vertices, vertices * DEGREE // 2, folder / "edges.csv", seed=5)
    results = embed_graph(setting, edges, folder, {"num_walks": walks, "walk_length": WALK_LENGTH}, {})
    if vertices <= _REPEATED:
        again = [run_stage(setting, "index", {"edges": edges}, folder / "again", INDEX) for _ in range(2)]
        results["index"] = sorted([results["index"], *again], key=lambda each: each.measured.wall_s)[1]
    return results


def _point(name: str, unit: str, vertices: int, walks: int, result: StageResult, start: tuple[float, ...]) -> Point:
    edges = vertices * DEGREE // 2
    stats, measured = result.stats, result.measured
    units = edges if unit == "edge" else int(stats.get("tokens") or 0)
    ns, cpu_ns = (
        max(0.0, spent - begun) / units * 1e9
        for spent, begun in zip((measured.wall_s, measured.cpu_s), start, strict=True)
    )
    other = unit == "token" and walks != NUM_WALKS
    full_s = start[0] + ns * 1e-9 * units * NUM_WALKS / walks if other else measured.wall_s
    return Point(
        vertices, edges, name, unit, units, measured.wall_s, measured.cpu_s, measured.peak_bytes, ns, cpu_ns, walks,
        full_s,
    )  # fmt: skip


def spread(points: list[Point], stage: str, cost: str = "ns") -> float | None:
    """Largest cost of a unit (`ns` or `cpu_ns`) over the smallest; None if one is negligible against the start."""
    costs = [getattr(point, cost) for point in points if point.stage == stage]
    return max(costs) / min(costs) if costs and min(costs) > 0 else None


def table(points: list[Point]) -> str:
    """Markdown: a line for each size and stage."""
    lines = [
        "| vertices | edges | stage | measured on | time | CPU time | ns per unit | CPU ns per unit | peak memory | "
        "10 walks per vertex |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for point in points:
        computed = point.unit == "token" and point.walks != NUM_WALKS
        whole = f"{figure(point.full_s, 's')}{f' (from {point.walks})' if computed else ''}"
        lines.append(
            f"| {point.vertices:,} | {point.edges:,} | {point.stage} | {figure(point.units, point.unit + 's')} | "
            f"{figure(point.wall_s, 's')} | {figure(point.cpu_s, 's')} | {point.ns:.3g} | {point.cpu_ns:.3g} | "
            f"{point.peak_bytes / 2**30:.2f} GiB | {whole} |"
        )
    for cost, what in (("ns", "time"), ("cpu_ns", "CPU time")):
        spreads = {name: spread(points, name, cost) for name in STAGES}
        shown = ", ".join(f"{name} {value:.1f}×" for name, value in spreads.items() if value)
        lines += ["", f"Dearest over cheapest unit among the sizes, by {what}: {shown}"]
    return "\n".join(lines)


def picture(points: list[Point], path: Path, caption: str) -> None:
    """Nanoseconds of a unit by vertices, both logarithmic: wall time as lines, CPU time dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7.5, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    for name, unit in STAGES.items():
        own = [point for point in points if point.stage == name]
        sizes = [point.vertices for point in own]
        axes.plot(sizes, [point.ns for point in own], "o-", color=COLORS[name], label=f"{name}, per {unit}")
        axes.plot(sizes, [point.cpu_ns for point in own], "--", color=COLORS[name], alpha=0.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("vertices, at average degree 60")
    axes.set_ylabel("ns per unit (dashed: CPU time)")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(caption, fontsize=7, loc="left")
    drawing.savefig(path)


def _document(points: list[Point], command: str) -> dict[str, Any]:
    rows = [
        {key: rounded(value) if isinstance(value, float) else value for key, value in asdict(point).items()}
        for point in points
    ]
    return {
        "points": rows, "spread": {name: rounded(spread(points, name)) for name in STAGES},
        "spread_cpu": {name: rounded(spread(points, name, "cpu_ns")) for name in STAGES}, "command": command,
        "load_at_end": [round(value, 2) for value in os.getloadavg()],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "machine": machine(),
        "versions": own_versions(),
    }  # fmt: skip


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scaling", description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 10M vertices: 20 GB of disk, 10 GB of memory")
    parser.add_argument("--quick", action="store_true", help="1k and 3k vertices, to try the program")
    parser.add_argument("--limit-s", type=float, default=120, help="training time aimed at for each size; default 120")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default .bench/scaling.json")
    parser.add_argument("--publish", action="store_true", help="copy JSON and picture to docs/")
    options = parser.parse_args()
    setting = Setting()
    sizes = [1_000, 3_000] if options.quick else [10_000, 100_000, 1_000_000] + [10_000_000] * options.large
    out = options.out or setting.folder / ("scaling-quick.json" if options.quick else "scaling.json")
    warm_up(setting)
    points = measure(setting, sizes, options.limit_s)
    document = _document(points, " ".join(["python -m tests.benchmarks.scaling", *sys.argv[1:]]))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(points) + "\n")
    picture(points, out.with_suffix(".png"), f"{document['date']} · {document['machine']}")
    sys.stdout.write(f"\n{table(points)}\n\n{out}\n")
    if options.publish:
        (ROOT / "docs").mkdir(exist_ok=True)
        shutil.copyfile(out, ROOT / "docs" / "scaling.json")
        shutil.copyfile(out.with_suffix(".png"), ROOT / "docs" / "scaling.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
