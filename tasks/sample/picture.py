"""The spec's ops as a plate diagram: a box for each node set that an op leads to, an arrow for each hop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.subgraphs.blocks import DESCRIPTION

_MOST_OPS = 40
"""More do not fit on a picture; there is none then."""


def draw(dataset: Dataset, path: Path) -> None:
    """Write a PNG of the spec in a `sample` dataset: ops by their distance from the seeds, with sizes, strategies."""
    from matplotlib.figure import Figure

    spec = dataset.json(DESCRIPTION)["spec"]
    seed = next(value for name, value in spec.items() if name.endswith("seed_op"))
    ops: list[dict[str, Any]] = spec["sampling_ops"]
    if len(ops) > _MOST_OPS:
        return
    level = {seed["op_name"]: 0}
    for op in ops:
        level[op["op_name"]] = 1 + max(level[name] for name in op["input_op_names"])
    columns: dict[int, list[str]] = {}
    for name, depth in level.items():
        columns.setdefault(depth, []).append(name)
    places = {
        name: (float(depth), (len(names) - 1) / 2 - row)
        for depth, names in columns.items() for row, name in enumerate(names)
    }  # fmt: skip
    height = max(map(len, columns.values()))
    figure = Figure(figsize=(2.4 * len(columns), 1.2 + 1.1 * height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-height / 2 - 0.4, height / 2)
    for op in ops:
        for name in op["input_op_names"]:
            bend = 0.07 * (level[op["op_name"]] - level[name] - 1)  # around the boxes between
            axes.annotate(
                "", xy=places[op["op_name"]], xytext=places[name], zorder=1,
                arrowprops={"arrowstyle": "->", "color": "0.6", "shrinkA": 32, "shrinkB": 48,
                            "connectionstyle": f"arc3,rad={bend}"},
            )  # fmt: skip
    texts = {seed["op_name"]: f"{_text(seed['op_name'])}\n{_text(seed['node_set_name'])}"}
    for op in ops:
        words = [op["op_name"], op["edge_set_name"], f"{op['sample_size']}, {op['strategy'].lower()}"]
        texts[op["op_name"]] = "\n".join(map(_text, words))
    for name, text in texts.items():
        box = {"boxstyle": "round,pad=0.5", "facecolor": "#f2c14e" if name == seed["op_name"] else "#dfe7f2",
               "edgecolor": "0.4"}  # fmt: skip
        axes.text(*places[name], text, ha="center", va="center", fontsize=8, bbox=box, zorder=2, parse_math=False)
    figure.savefig(path, dpi=120)


def _text(name: str) -> str:
    """A name as far as it fits into a box."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= 28 else f"{shown[:27]}…"
