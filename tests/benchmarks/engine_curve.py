"""`python -m tests.benchmarks.engine_curve [--large]`: seconds of Node2Vec's stages by engine and size of the graph.

Chung-Lu graphs with exponent 2.5 and average degree 12, of 100 to 100k and with `--large` 1M vertices, through the
stage commands index, walk (10 walks of 40 from each vertex, p = 1, q = 0.5) and prepare, in process, on Dask's own
workers and on local Spark, one after the other on two threads. All engines have to write the same bytes. Next to them
PyPI's node2vec, which follows the authors' program in Python: the file to walks, in one process, with a limit of CPU
seconds and memory; what runs into it is drawn as such. Each size is written when it has been measured.

`--kubernetes FILE --folder FOLDER` measures the same on a cluster instead: in one pod, and in a pod with two more for
executors. The file has the section `kubernetes` of a profile; pods see the folder, and everybody may write into it.

Writes `.bench/engine-curve.json`, `.md` and `.png`; `--publish` copies the last to `docs/engines.png`.
"""

import argparse
import datetime
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.stage import IN_PROCESS, Resources
from superworkflow.infra.engines import engine as find_engine
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.launcher import KubernetesLauncher
from superworkflow.tasks.lib.generators.edge_lists import generate
from tests.benchmarks.measure import ROOT, Failed, PeerFailed, run_command
from tests.benchmarks.report import figure, loads, machine, own_versions, rounded
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import INDEX, MANIFEST, run_stage

DEGREE, WALK_LENGTH, NUM_WALKS, P, Q = 12, 40, 10, 1.0, 0.5
ENGINES = {"in-process": "in process", "dask": "Dask, local", "spark": "Spark, local"}
PODS = {"in-process": "a pod", "dask": "Dask, pods", "spark": "Spark, pods"}
PEER = "node2vec 0.5.0 (Python)"
Inputs = Mapping[str, Path]
Spent = tuple[float, float]
"""Wall and CPU seconds."""
Run = Callable[[str, Inputs, Path, Mapping[str, Any], str], Spent]
"""Run a stage with these inputs, output, parameters and engine."""
COLORS = {
    "in process": "#2b5f8a", "Dask, local": "#c2571a", "Spark, local": "#2b7a4b", PEER: "#777777",
    "a pod": "#2b5f8a", "Dask, pods": "#c2571a", "Spark, pods": "#2b7a4b",
}  # fmt: skip
MARKS = {"in process": "o", "Dask, local": "s", "Spark, local": "^", PEER: "D"}
POD = {"cpu": 0.5, "memory": "1Gi"}
"""Each pod's resources."""


@dataclass(frozen=True)
class Point:
    """One engine, or the peer, at one size.

    Args:
        side: its name in the table.
        wall_s, cpu_s: of all stages; of one that did not end, until it was ended.
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

    def run(stage: str, inputs: Inputs, output: Path, params: Mapping[str, Any], engine: str) -> Spent:
        measured = run_stage(setting, stage, inputs, output, params, engine).measured
        return measured.wall_s, measured.cpu_s

    for vertices in sizes:
        folder = setting.folder / "engine-curve" / str(vertices)
        points = list(_engines(setting, vertices, folder, ENGINES, run))
        if peer_ends:
            points.append(_peer(setting, python, folder / "edges.csv", vertices, limit_s, limit_bytes))
            _say(setting, points[-1])
            peer_ends = points[-1].ended
        shutil.rmtree(folder)
        yield points


def measure_pods(setting: Setting, sizes: Sequence[int], settings: Path, shared: Path) -> Iterator[list[Point]]:
    """The points of each size on a cluster; CPU time is that of all pods of a stage, as they measure it themselves.

    Raises:
        StageFailed: a stage failed.
        Failed: an engine wrote other bytes.
    """
    kubernetes = KubernetesSettings.model_validate(yaml.safe_load(settings.read_text()))

    def run(stage: str, inputs: Inputs, output: Path, params: Mapping[str, Any], engine: str) -> Spent:
        resources = Resources.model_validate(POD | ({} if engine == IN_PROCESS else {"executors": POD | {"count": 2}}))
        call = StageCall(
            node=stage, stage=stage, params=dict(params), inputs={name: str(path) for name, path in inputs.items()},
            output=str(output), placement=Placement(engine=engine, resources=resources), labels={"flow-run": "curve"},
            image_kind=find_engine(engine).image or "cpu",
        )  # fmt: skip
        launched = KubernetesLauncher(kubernetes).launch(call, lambda event: None)
        _share(output.parent)
        return launched.seconds, launched.measured.cpu_s + launched.figures.get("executor_cpu_s", 0.0)

    for vertices in sizes:
        folder = shared / f"engine-curve-{vertices}"
        yield list(_engines(setting, vertices, folder, PODS, run))
        shutil.rmtree(folder)


def _share(folder: Path) -> None:
    """Let pods, whose user is another, write below a folder."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o666 | (0o111 if path.is_dir() else 0))


def _engines(setting: Setting, vertices: int, folder: Path, sides: Mapping[str, str], run: Run) -> Iterator[Point]:
    """Points of engines on one graph, which stays in the folder as `edges.csv`; datasets are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = generate("chung-lu", vertices, vertices * DEGREE // 2, folder / "edges.csv", seed=5)
    written: dict[str, Any] = {}
    for engine, side in sides.items():
        (made := folder / engine).mkdir()
        _share(folder)
        spent = _stages(engine, edges, made, run)
        files = {stage: _files(made / stage) for stage in spent}
        shutil.rmtree(made)
        if files != (written := written or files):
            raise Failed(f"{engine} wrote other bytes than in process, at {vertices:,} vertices")
        wall_s, cpu_s = map(sum, zip(*spent.values(), strict=True))
        point = Point(vertices, vertices * DEGREE // 2, side, wall_s, cpu_s, loads()[0], spent)
        _say(setting, point)
        yield point


def _say(setting: Setting, point: Point) -> None:
    setting.say(f"{point.vertices:,} vertices, {point.side}: {point.wall_s:.1f} s, {point.cpu_s:.1f} CPU s")


def _stages(engine: str, edges: Path, folder: Path, run: Run) -> dict[str, Spent]:
    graph, walks = folder / "index", folder / "walk"
    walk = {"num_walks": NUM_WALKS, "walk_length": WALK_LENGTH, "p": P, "q": Q}
    return {
        "index": run("index", {"edges": edges}, graph, INDEX, engine),
        "walk": run("walk", {"graph": graph}, walks, walk, engine),
        "prepare": run("prepare", {"graph": graph, "walks": walks}, folder / "prepare", {}, engine),
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
    """Markdown: a line for each size, CPU seconds of each side that was measured, and in parentheses its wall time."""
    sides = [side for side in COLORS if any(point.side == side for point in points)]
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

    drawing = Figure(figsize=(8.6, 4.6), dpi=134, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    for side in dict.fromkeys(point.side for point in points):
        own, color = [point for point in points if point.side == side], COLORS[side]
        ended = [(point.vertices, point.cpu_s) for point in own if point.ended]
        axes.plot(
            *zip(*ended, strict=True) if ended else ([], []),
            MARKS.get(side, "") + ("-" if side in MARKS else "--"),
            color=color,
            label=side,
        )
        for point in own:
            if not point.ended:
                axes.plot(point.vertices, point.cpu_s, "x", color=color, markersize=9, markeredgewidth=2)
                axes.annotate("does not end", (point.vertices, point.cpu_s), xytext=(8, -3), color=color,
                              textcoords="offset points", fontsize=9)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel=f"vertices, at average degree {DEGREE}")
    axes.set_ylabel("CPU seconds for index, walk and prepare")
    drawing.legend(loc="outside right upper", frameon=False, fontsize=9)
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
    parser.add_argument("--kubernetes", type=Path, metavar="FILE", help="measure on a cluster, with these settings")
    parser.add_argument("--folder", type=Path, help="a folder that its pods see")
    parser.add_argument("--publish", action="store_true", help="copy the picture to docs/")
    options = parser.parse_args()
    setting = Setting()
    sizes = [100, 300] if options.quick else [100, 1_000, 10_000, 100_000] + [1_000_000] * options.large
    out = setting.folder / ("engine-curve-quick.json" if options.quick else "engine-curve.json")
    points = [Point(**each) for each in json.loads(out.read_text())["points"]] if options.resume else []
    done = {point.vertices for point in points if (point.side in PODS.values()) == bool(options.kubernetes)}
    sizes = [size for size in sizes if size not in done]
    limits = (options.limit_s, options.limit_gib << 30)
    setting.say("compiling what is not compiled")

    def measured(sizes: Sequence[int]) -> Iterator[list[Point]]:
        if options.kubernetes:
            return measure_pods(setting, sizes, options.kubernetes, options.folder)
        return measure(setting, sizes, *limits, peer_ends=all(point.ended for point in points))

    for _ in measured([100]):
        pass
    for found in measured(sizes):
        points += found
        _write(points, out, " ".join(["python -m tests.benchmarks.engine_curve", *sys.argv[1:]]))
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
