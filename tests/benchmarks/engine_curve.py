"""`python -m tests.benchmarks.engine_curve [--large]`: seconds of Node2Vec's stages by engine and size of the graph.

Chung-Lu graphs with exponent 2.5 and average degree 12, of 100 to 100k and with `--large` 1M vertices, through the
stage commands index, walk (10 walks of 40 from each vertex, p = 1, q = 0.5) and prepare, in process, on Dask's own
workers and on local Spark, one after the other on two threads. All engines have to write the same bytes. Next to them
PyPI's node2vec, which follows the authors' program in Python: the file to walks, in one process, with a limit of CPU
seconds and memory; what runs into it is drawn as such. Each size is written when it has been measured.

Writes `.bench/engine-curve.json`, `.md` and `.png`; `--publish` copies the last to `docs/engines.png`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.benchmarks.measure import ROOT, Failed, PeerFailed, run_command
from tests.benchmarks.report import figure, loads, machine, own_versions, rounded
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import INDEX, MANIFEST, StageResult, run_stage

DEGREE, WALK_LENGTH, NUM_WALKS, P, Q = 12, 40, 10, 1.0, 0.5
ENGINES = {"in-process": "in process", "dask": "Dask, local", "spark": "Spark, local"}
PEER = "node2vec 0.5.0 (Python)"
COLORS = {"in process": "#2b5f8a", "Dask, local": "#c2571a", "Spark, local": "#2b7a4b", PEER: "#777777"}
MARKS = {"in process": "o", "Dask, local": "s", "Spark, local": "^", PEER: "D"}


@dataclass(frozen=True)
class Point:
    """One engine, or the peer, at one size.

    Args:
        side: its name in the table.
        wall_s, cpu_s: of all commands; of one that did not end, until it was ended.
        stages: wall and CPU seconds by stage.
        ended: False if it ran into a limit.
        load: processes that wanted a core in the minute before, of others too.
    """

    vertices: int
    edges: int
    side: str
    wall_s: float
    cpu_s: float
    load: float
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    ended: bool = True


def measure(
    setting: Setting, sizes: Sequence[int], limit_s: int, limit_bytes: int, peer_ends: bool = True
) -> Iterator[list[Point]]:
    """The points of each size; without the peer after the first size where it did not end.

    Raises:
        Failed: a stage failed, or an engine wrote other bytes.
    """
    python = setting.set_up_apart("node2vec")
    for vertices in sizes:
        points: list[Point] = []
        folder = setting.folder / "engine-curve" / str(vertices)
        folder.mkdir(parents=True, exist_ok=True)
        edges = generate("chung-lu", vertices, vertices * DEGREE // 2, folder / "edges.csv", seed=5)
        written: dict[str, Any] = {}
        for engine, side in ENGINES.items():
            results = _stages(setting, engine, edges, folder / engine)
            files = {stage: _files(result.output) for stage, result in results.items()}
            shutil.rmtree(folder / engine)
            if files != (written := written or files):
                raise Failed(f"{engine} wrote other bytes than in process, at {vertices:,} vertices")
            spent = {stage: (found.measured.wall_s, found.measured.cpu_s) for stage, found in results.items()}
            wall_s, cpu_s = map(sum, zip(*spent.values(), strict=True))
            points.append(Point(vertices, vertices * DEGREE // 2, side, wall_s, cpu_s, loads()[0], spent))
            _say(setting, points[-1])
        if peer_ends:
            points.append(_peer(setting, python, edges, vertices, limit_s, limit_bytes))
            _say(setting, points[-1])
            peer_ends = points[-1].ended
        shutil.rmtree(folder)
        yield points


def _say(setting: Setting, point: Point) -> None:
    setting.say(f"{point.vertices:,} vertices, {point.side}: {point.wall_s:.1f} s, {point.cpu_s:.1f} CPU s")


def _stages(setting: Setting, engine: str, edges: Path, folder: Path) -> dict[str, StageResult]:
    graph, walks = folder / "index", folder / "walk"
    walk = {"num_walks": NUM_WALKS, "walk_length": WALK_LENGTH, "p": P, "q": Q}
    return {
        "index": run_stage(setting, "index", {"edges": edges}, graph, INDEX, engine),
        "walk": run_stage(setting, "walk", {"graph": graph}, walks, walk, engine),
        "prepare": run_stage(setting, "prepare", {"graph": graph, "walks": walks}, folder / "prepare", engine=engine),
    }


def _files(dataset: Path) -> list[tuple[str, str]]:
    """Names and digests of a dataset's files."""
    return [(each["path"], each["sha256"]) for each in json.loads((dataset / MANIFEST).read_text())["files"]]


def _peer(setting: Setting, python: str, edges: Path, vertices: int, limit_s: int, limit_bytes: int) -> Point:
    script = Path(__file__).parent / "peers" / "node2vec_walks.py"
    command = ["prlimit", f"--cpu={limit_s}", f"--as={limit_bytes}", python, str(script), str(edges)]
    command += [str(value) for value in (P, Q, NUM_WALKS, WALK_LENGTH)]
    try:
        found = run_command(command, setting.threads, setting.folder / "logs" / "node2vec_walks.log", PeerFailed)
    except PeerFailed as error:
        setting.say(str(error))
        return Point(vertices, vertices * DEGREE // 2, PEER, limit_s, limit_s, loads()[0], ended=False)
    return Point(vertices, vertices * DEGREE // 2, PEER, found.wall_s, found.cpu_s, loads()[0])


def table(points: Sequence[Point]) -> str:
    """Markdown: a line for each size, CPU seconds of each side, and in parentheses its wall time."""
    sides = list(COLORS)
    lines = ["| vertices | edges | " + " | ".join(sides) + " |", "| ---: | ---: |" + " ---: |" * len(sides)]
    for vertices in sorted({point.vertices for point in points}):
        cells = []
        for side in sides:
            own = [point for point in points if (point.vertices, point.side) == (vertices, side)]
            cells.append(_cell(own[0]) if own else "–")
        lines.append(f"| {vertices:,} | {vertices * DEGREE // 2:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(point: Point) -> str:
    if not point.ended:
        return "does not end"
    return f"{figure(point.cpu_s, 's')} ({figure(point.wall_s, 's')})"


def picture(points: Sequence[Point], path: Path, caption: str) -> None:
    """CPU seconds by vertices, both logarithmic: other programs of the machine hardly change them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7.5, 4.8), dpi=134, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    for side, color in COLORS.items():
        own = [point for point in points if point.side == side]
        ended = [(point.vertices, point.cpu_s) for point in own if point.ended]
        axes.plot(*zip(*ended, strict=True) if ended else ([], []), MARKS[side] + "-", color=color, label=side)
        for point in own:
            if not point.ended:
                axes.plot(point.vertices, point.cpu_s, "x", color=color, markersize=9, markeredgewidth=2)
                axes.annotate("does not end", (point.vertices, point.cpu_s), xytext=(8, -3), color=color,
                              textcoords="offset points", fontsize=9)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel=f"vertices, at average degree {DEGREE}")
    axes.set_ylabel("CPU seconds for index, walk and prepare")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(caption, fontsize=8, loc="left")
    drawing.savefig(path)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engine_curve", description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 1M vertices: 6 GB of disk")
    parser.add_argument("--quick", action="store_true", help="100 and 300 vertices, to try the program")
    parser.add_argument("--limit-s", type=int, default=120, help="CPU seconds of the peer; default 120")
    parser.add_argument("--limit-gib", type=int, default=8, help="address space of the peer; default 8")
    parser.add_argument("--resume", action="store_true", help="keep the sizes that an earlier run has measured")
    parser.add_argument("--publish", action="store_true", help="copy the picture to docs/")
    options = parser.parse_args()
    setting = Setting()
    sizes = [100, 300] if options.quick else [100, 1_000, 10_000, 100_000] + [1_000_000] * options.large
    out = setting.folder / ("engine-curve-quick.json" if options.quick else "engine-curve.json")
    points = [Point(**each) for each in json.loads(out.read_text())["points"]] if options.resume else []
    done = {point.vertices for point in points}
    command = " ".join(["python -m tests.benchmarks.engine_curve", *sys.argv[1:]])
    limits = (options.limit_s, options.limit_gib << 30)
    setting.say("compiling what is not compiled")
    for _ in measure(setting, [100], *limits):
        pass
    sizes = [size for size in sizes if size not in done]
    for found in measure(setting, sizes, *limits, peer_ends=all(point.ended for point in points)):
        points += found
        _write(points, out, command)
    sys.stdout.write(f"\n{table(points)}\n\n{out}\n")
    if options.publish:
        shutil.copyfile(out.with_suffix(".png"), ROOT / "docs" / "engines.png")
    return 0


def _write(points: Sequence[Point], out: Path, command: str) -> None:
    rows = [
        {key: rounded(value) if isinstance(value, float) else value for key, value in asdict(point).items()}
        for point in points
    ]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    document = {
        "points": rows, "command": command, "load_at_end": loads(), "date": date, "machine": machine(),
        "versions": own_versions(),
    }  # fmt: skip
    out.write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(points) + "\n")
    picture(points, out.with_suffix(".png"), f"{date} · {machine()}")


if __name__ == "__main__":
    sys.exit(main())
