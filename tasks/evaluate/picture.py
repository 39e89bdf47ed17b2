"""A picture of embeddings in the plane, coloured by label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from superworkflow.infra.base.plot_style import COLOURS, DPI, FAINT, GREY, INK, layout, plain, save
from superworkflow.infra.storage.dataset import Dataset

LEGEND_LABELS = len(COLOURS)
"""Labels with a colour of their own; the rest are grey together."""
_FILE = "projection.parquet"


def draw(evaluation: Dataset, path: Path) -> None:
    """Draw the projection of an evaluate dataset, where it has one."""
    if _FILE in evaluation:
        projection_picture(evaluation.local(_FILE), path)


def projection_picture(projection: pa.Table | str | Path, path: str | Path) -> None:
    """Draw nodes in the plane, coloured by label.

    Args:
        projection: table, or Parquet file, with columns `x`, `y` and a nullable `label`.
        path: PNG to write.
    """
    table = projection if isinstance(projection, pa.Table) else pq.read_table(projection)
    places = np.column_stack([table["x"].to_numpy(), table["y"].to_numpy()]) if len(table) else np.zeros((0, 2))
    labels = np.array([label if label is not None else "" for label in table["label"].to_pylist()], dtype=object)
    names, counts = np.unique(labels[labels != ""].astype(str), return_counts=True)
    frequent = [str(name) for name in names[np.lexsort((names, -counts))][:LEGEND_LABELS]]
    figure = Figure(figsize=(8.6 if frequent else 7.2, 6.4), dpi=DPI, layout=layout(), facecolor="white")
    axes = figure.add_subplot()
    size = float(np.clip(9000 / max(len(table), 1), 5, 60))
    style: dict[str, Any] = {"s": size, "linewidths": 0.3, "edgecolors": "white"}
    rest = ~np.isin(labels, frequent)
    behind = axes.scatter(*places[rest].T, color=GREY if frequent else COLOURS[0], alpha=0.75, **style)
    keys: list[tuple[Artist, str]] = []
    for name, colour in zip(frequent, COLOURS, strict=False):
        chosen = labels == name
        points = axes.scatter(*places[chosen].T, color=colour, alpha=0.9, **style)
        keys.append((points, f"{plain(_short(name))}  ({chosen.sum():,})"))
    if rest.any():
        others = len(names) - len(frequent)
        keys.append((behind, f"{others} other {'label' if others == 1 else 'labels'}" if others else "no label"))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title("Embeddings", loc="left", fontsize=13, fontweight="bold", color=INK)
    axes.set_xlabel(_caption(len(table), len(names)), fontsize=8.5, color=FAINT, loc="left")
    if frequent:
        legend = axes.legend(
            *zip(*keys, strict=True), loc="center left", bbox_to_anchor=(1.0, 0.5),
            frameon=False, fontsize=8.5, labelcolor=INK, title="label (nodes)", title_fontsize=8.5,
            alignment="left", handletextpad=0.2, markerscale=float(np.sqrt(36 / size)),
        )  # fmt: skip
        legend.get_title().set_color(FAINT)
    save(figure, path)


def _caption(nodes: int, labels: int) -> str:
    return f"{nodes:,} nodes" + (f", {labels:,} labels" if labels else "") + " · principal components, then t-SNE"


def _short(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"
