"""The picture of docs/vertex-programs.md, from runs: a denoised volume, its updates by step, and ALS by iteration.

    python -m tests.benchmarks.vertex_pictures RATINGS [--publish]

RATINGS are rows user, item, rating with a header. The volume is that of the row `changed-volume`. Writes
`.bench/vertex-programs.png`; `--publish` copies it to `docs/`.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.benchmarks.measure import ROOT
from tests.benchmarks.rows_vertex import LABELS, noisy_volume
from tests.benchmarks.setting import Setting
from tests.benchmarks.stages import StageResult, run_stage

SIDE = 100
STYLES = {"consistent": "-", "synchronous": "--"}
RATINGS = {"weighted": True, "bipartite": True, "header": True}


def denoised(setting: Setting) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], StageResult]:
    """True, noisy and denoised labels of a volume, and the dataset of `bp`."""
    folder = setting.data / "picture"
    folder.mkdir(exist_ok=True)
    true, noisy = noisy_volume(SIDE)
    np.save(folder / "noisy.npy", noisy.astype(np.int32))
    graph, colours, values, published = (folder / name for name in ("grid", "colours", "bp", "published"))
    run_stage(setting, "grid", {"lattice": folder / "noisy.npy"}, graph)
    run_stage(setting, "colour", {"graph": graph}, colours)
    made = run_stage(setting, "bp", {"graph": graph, "colours": colours}, values)
    run_stage(setting, "publish_lattice", {"graph": graph, "values": values}, published)
    return true, noisy, np.load(published / "label.npy"), made


def errors_by_iteration(setting: Setting, ratings: Path) -> dict[str, list[float]]:
    """RMSE on the ratings after each iteration of `als`, by execution."""
    graph, colours = setting.data / "picture" / "ratings", setting.data / "picture" / "ratings-colours"
    run_stage(setting, "index", {"edges": ratings}, graph, RATINGS)
    run_stage(setting, "colour", {"graph": graph}, colours)
    found = {}
    for execution in STYLES:
        params = {"factors": 20, "regularization": 0.05, "execution": execution}
        made = run_stage(setting, "als", {"graph": graph, "colours": colours}, graph.with_name(execution), params)
        found[execution] = pq.read_table(made.output / "trace.parquet")["rmse"].to_pylist()
    return found


def draw(setting: Setting, ratings: Path, path: Path) -> None:
    """Draw the four panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    true, noisy, labels, made = denoised(setting)
    curves = errors_by_iteration(setting, ratings)
    drawing = Figure(figsize=(11, 3), dpi=100, layout="constrained")
    FigureCanvasAgg(drawing)
    before, after, updates, errors = drawing.subplots(1, 4)
    for axes, values, name in ((before, noisy, "noisy"), (after, labels, "bp")):
        axes.imshow(values[SIDE // 2], cmap="viridis", vmin=0, vmax=LABELS - 1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{name}: {(values != true).mean():.1%} wrong", fontsize=9)
    trace = pq.read_table(made.output / "trace.parquet").to_pydict()
    updates.plot(trace["step"], trace["updates"])
    updates.set(yscale="log", xlabel="step")
    updates.set_title(f"updates of bp, {sum(trace['updates']) / SIDE**3:.2f} a vertex", fontsize=9)
    for execution, line in STYLES.items():
        errors.plot(range(1, 1 + len(curves[execution])), curves[execution], line, label=execution)
    errors.set(xlabel="iteration", ylim=(0, None))
    errors.set_title("RMSE of als on its ratings", fontsize=9)
    errors.legend(frameon=False, fontsize=8)
    for axes in (updates, errors):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    drawing.savefig(path)
    setting.say(f"{path}: als {curves}")


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.vertex_pictures", description=__doc__)
    parser.add_argument("ratings", type=Path, help="a CSV file of user, item, rating")
    parser.add_argument("--publish", action="store_true", help="copy the picture to docs/")
    options = parser.parse_args()
    setting = Setting()
    path = setting.folder / "vertex-programs.png"
    draw(setting, options.ratings, path)
    if options.publish:
        shutil.copyfile(path, ROOT / "docs" / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
