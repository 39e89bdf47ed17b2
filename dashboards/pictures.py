"""Pictures of a run: its embeddings in the plane, and what each stage took and cost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

LEGEND_LABELS = 12
"""Labels with a colour of their own; the rest are grey together."""

_COLOURS = (
    "#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0",
    "#ff8ab7", "#9c6b4e", "#97bbf5", "#7a7a2f", "#c2185b", "#00838f",
)  # fmt: skip
_GREY, _INK, _FAINT = "#c9ccd1", "#24292f", "#6e7781"
_RAN_TIME, _RAN_COST = "#4269d0", "#3ca951"
_DPI = 130


def projection_picture(projection: pa.Table | str | Path, path: str | Path, *, title: str = "Embeddings") -> None:
    """Draw nodes in the plane, coloured by label.

    Args:
        projection: table, or Parquet file, with columns `x`, `y` and a nullable `label`.
        path: PNG to write.
        title: heading.
    """
    table = projection if isinstance(projection, pa.Table) else pq.read_table(projection)
    places = np.column_stack([table["x"].to_numpy(), table["y"].to_numpy()]) if len(table) else np.zeros((0, 2))
    labels = np.array([label if label is not None else "" for label in table["label"].to_pylist()], dtype=object)
    names, counts = np.unique(labels[labels != ""].astype(str), return_counts=True)
    frequent = [str(name) for name in names[np.lexsort((names, -counts))][:LEGEND_LABELS]]
    figure = Figure(figsize=(8.6 if frequent else 7.2, 6.4), dpi=_DPI, layout=_layout(), facecolor="white")
    axes = figure.add_subplot()
    size = float(np.clip(9000 / max(len(table), 1), 5, 60))
    style: dict[str, Any] = {"s": size, "linewidths": 0.3, "edgecolors": "white"}
    rest = ~np.isin(labels, frequent)
    behind = axes.scatter(*places[rest].T, color=_GREY if frequent else _COLOURS[0], alpha=0.75, **style)
    keys: list[tuple[Artist, str]] = []
    for name, colour in zip(frequent, _COLOURS, strict=False):
        chosen = labels == name
        points = axes.scatter(*places[chosen].T, color=colour, alpha=0.9, **style)
        keys.append((points, f"{_plain(_short(name))}  ({chosen.sum():,})"))
    if rest.any():
        others = len(names) - len(frequent)
        keys.append((behind, f"{others} other {'label' if others == 1 else 'labels'}" if others else "no label"))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(_plain(title), loc="left", fontsize=13, fontweight="bold", color=_INK)
    axes.set_xlabel(_caption(len(table), len(names)), fontsize=8.5, color=_FAINT, loc="left")
    if frequent:
        legend = axes.legend(
            *zip(*keys, strict=True), loc="center left", bbox_to_anchor=(1.0, 0.5),
            frameon=False, fontsize=8.5, labelcolor=_INK, title="label (nodes)", title_fontsize=8.5,
            alignment="left", handletextpad=0.2, markerscale=float(np.sqrt(36 / size)),
        )  # fmt: skip
        legend.get_title().set_color(_FAINT)
    _save(figure, path)


def cost_picture(rows: Sequence[Any], path: str | Path, *, title: str = "Runtime and cost per stage") -> None:
    """Draw runtime and cost of each stage as bars; a cached stage shows in grey hatching what it saved.

    Args:
        rows: stages in order; objects or mappings with `name`, `state` (`ran` or `cached`), `runtime_s`, `cost_usd`,
            `saved_usd` and, where known, `saved_s`.
        path: PNG to write.
        title: heading.
    """
    stages = [_Bar(row) for row in rows]
    figure = Figure(figsize=(9.2, 1.7 + 0.46 * max(len(stages), 1)), dpi=_DPI, layout=_layout(), facecolor="white")
    seconds, dollars = figure.subplots(1, 2, sharey=True)
    for axes, figure_of, colour, unit, show in (
        (seconds, "seconds", _RAN_TIME, "runtime", duration_text),
        (dollars, "usd", _RAN_COST, "cost", dollar_text),
    ):
        _bars(axes, stages, figure_of, colour, show)
        spent = sum(getattr(stage, figure_of) for stage in stages if not stage.cached)
        saved = sum(getattr(stage, figure_of) for stage in stages if stage.cached)
        text = f"{unit}  {show(spent)}" + (f", saved {show(saved)}" if saved else "")
        axes.set_title(_plain(text), loc="left", fontsize=10, color=_INK)
    seconds.set_yticks(range(len(stages)), [_plain(stage.name) for stage in stages], fontsize=10, color=_INK)
    seconds.set_ylim(len(stages) - 0.4, -0.6)
    figure.suptitle(_plain(title), x=0.01, ha="left", fontsize=13, fontweight="bold", color=_INK)
    if any(stage.cached for stage in stages):
        patch = Patch(
            facecolor="white", edgecolor=_GREY, hatch="////", label="cached: what running it again would take"
        )
        figure.legend(
            handles=[patch], loc="outside lower left", frameon=False, fontsize=8.5, labelcolor=_FAINT,
            handlelength=2.2, handleheight=1.1,
        )  # fmt: skip
    _save(figure, path)


class _Bar:
    """One stage's figures, from an object or a mapping."""

    def __init__(self, row: Any):
        values = row if isinstance(row, Mapping) else None

        def get(name: str, default: Any = 0.0) -> Any:
            return values.get(name, default) if values is not None else getattr(row, name, default)

        self.name = str(get("name", ""))
        self.cached = get("state", "ran") == "cached"
        self.seconds = float(get("saved_s") if self.cached else get("runtime_s"))
        self.usd = float(get("saved_usd") if self.cached else get("cost_usd"))


def _bars(axes: Axes, stages: Sequence[_Bar], figure_of: str, colour: str, show: Any) -> None:
    values = [getattr(stage, figure_of) for stage in stages]
    largest = max(values, default=0.0) or 1.0
    for place, (stage, value) in enumerate(zip(stages, values, strict=True)):
        if stage.cached:
            axes.barh(place, value, height=0.62, color="white", edgecolor=_GREY, hatch="////", linewidth=0.8)
        else:
            axes.barh(place, value, height=0.62, color=colour)
        text = show(value) if not stage.cached else f"cached, saved {show(value)}" if value else "cached"
        axes.annotate(
            _plain(text), (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=_FAINT if stage.cached else _INK,
        )  # fmt: skip
    axes.set_xlim(0, largest * 1.45)  # room for the figures beside the bars
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(_GREY)


def duration_text(seconds: float) -> str:
    """Seconds for people: `0.8 s`, `42 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def dollar_text(usd: float) -> str:
    """US dollars for people, with two digits that say something: `$12.40`, `$0.0034`, `$0.0000012`."""
    if usd == 0:
        return "$0"
    if usd >= 0.995:
        return f"${usd:,.2f}"
    return f"${usd:.{1 - int(np.floor(np.log10(usd)))}f}"


def _caption(nodes: int, labels: int) -> str:
    return f"{nodes:,} nodes" + (f", {labels:,} labels" if labels else "") + " · principal components, then t-SNE"


def _short(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _plain(text: str) -> str:
    """Dollar signs as they are, not as the start of a formula."""
    return text.replace("$", r"\$")


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)


def _save(figure: Figure, path: str | Path) -> None:
    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        # A label in a script that no font of this machine has is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, format="png", metadata={"Software": None})
